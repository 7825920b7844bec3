//! What the metrics page of an endpoint picker says of its flow-control queue, for the models that somebody asks about.

use std::collections::{BTreeMap, BTreeSet};

use crate::page::{self, Figures};

/// What waits for one model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Waiting {
    /// Requests.
    pub(super) size: f64,
    /// Their bytes.
    pub(super) bytes: f64,
}

impl Waiting {
    /// There is something.
    pub(super) fn is_any(self) -> bool {
        self.size > 0.0 || self.bytes > 0.0
    }

    /// Replicas of a picker have parts of one queue.
    pub(super) fn plus(self, other: Self) -> Self {
        // A sum that overflows would be no number.
        Self { size: (self.size + other.size).min(f64::MAX), bytes: (self.bytes + other.bytes).min(f64::MAX) }
    }

    fn greater(self, other: Self) -> Self {
        Self { size: self.size.max(other.size), bytes: self.bytes.max(other.bytes) }
    }
}

/// What is read of the page.
pub(super) struct QueueFigures<'a> {
    models: &'a BTreeSet<String>,
    /// By model, under the earlier and the later name of the metrics.
    found: BTreeMap<String, [Waiting; 2]>,
    /// Models with a figure that is none: more may wait for them than was found.
    unclear: BTreeSet<String>,
}

impl<'a> QueueFigures<'a> {
    /// For these models.
    pub(super) fn of(models: &'a BTreeSet<String>) -> Self {
        Self { models, found: BTreeMap::new(), unclear: BTreeSet::new() }
    }

    /// What waits for each of the models, which is nothing where the page does not show a queue. A model is left out where
    /// all that is shown are figures that are none.
    pub(super) fn by_model(mut self) -> BTreeMap<String, Waiting> {
        let waiting = |model: &String| {
            // A picker that shows its queue under both names has one queue.
            let [earlier, later] = self.found.remove(model).unwrap_or_default();
            let waiting = earlier.greater(later);
            (waiting.is_any() || !self.unclear.contains(model)).then(|| (model.clone(), waiting))
        };
        self.models.iter().filter_map(waiting).collect()
    }
}

impl Figures for QueueFigures<'_> {
    fn take(&mut self, name: &str, rest: &str) -> Option<()> {
        let (later, bytes) = match name {
            "inference_extension_flow_control_queue_size" => (false, false),
            "inference_extension_flow_control_queue_bytes" => (false, true),
            "llm_d_epp_flow_control_queue_size" => (true, false),
            "llm_d_epp_flow_control_queue_bytes" => (true, true),
            _ => return page::other(rest),
        };
        let (mut target, mut asked) = (None, None);
        let value = page::value(rest, |label, value| match label {
            "target_model_name" if !value.is_empty() => target = Some(value),
            "model_name" if !value.is_empty() => asked = Some(value),
            _ => {}
        })?;
        // The target counts before the one that was asked for.
        let Some(model) = target.or(asked).filter(|model| self.models.contains(model)) else {
            return Some(());
        };
        if !value.is_finite() || value < 0.0 {
            self.unclear.insert(model);
        } else {
            let waiting = &mut self.found.entry(model).or_default()[usize::from(later)];
            let more =
                if bytes { Waiting { size: 0.0, bytes: value } } else { Waiting { size: value, bytes: 0.0 } };
            *waiting = waiting.plus(more);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{NotMetrics, Page};

    fn models() -> BTreeSet<String> {
        ["m", "meta/llama", "a\"b\\c\nd", "t"].map(str::to_owned).into()
    }

    fn page(text: &[u8], chunk: usize) -> Result<Vec<(String, f64, f64)>, NotMetrics> {
        let models = models();
        let mut page = Page::new(QueueFigures::of(&models));
        for chunk in text.chunks(chunk) {
            page.feed(chunk)?;
        }
        let waiting = page.end()?.by_model().into_iter().filter(|(_, w)| w.is_any());
        Ok(waiting.map(|(model, w)| (model, w.size, w.bytes)).collect())
    }

    #[track_caller]
    fn check(text: &str, want: &[(&str, f64, f64)]) {
        let want: Vec<_> =
            want.iter().map(|(model, size, bytes)| ((*model).to_owned(), *size, *bytes)).collect();
        // However it arrives.
        for chunk in [1, 7, 64, usize::MAX] {
            assert_eq!(page(text.as_bytes(), chunk), Ok(want.clone()), "in pieces of {chunk}: {text}");
        }
    }

    #[test]
    fn queues_are_read_under_both_names_and_both_labels() {
        check(
            "# HELP inference_extension_flow_control_queue_size Requests.\n\
             # TYPE inference_extension_flow_control_queue_size gauge\n\
             inference_extension_flow_control_queue_size{fairness_id=\"x\",priority=\"0\",model_name=\"m\"} 2\n\
             inference_extension_flow_control_queue_size{fairness_id=\"y\",model_name=\"m\",} 1\n\
             inference_extension_flow_control_queue_bytes{model_name=\"m\"} 300 1700000000000\n\
             go_goroutines 12\n",
            &[("m", 3.0, 300.0)],
        );
        check(
            "llm_d_epp_flow_control_queue_size{model_name=\"alias\",target_model_name=\"t\"} 4\n\
             llm_d_epp_flow_control_queue_bytes{ target_model_name = \"t\" , model_name = \"alias\" } 1e3",
            &[("t", 4.0, 1000.0)],
        );
        // One queue under both names is one queue.
        check(
            "inference_extension_flow_control_queue_size{model_name=\"m\"} 2\r\n\
             llm_d_epp_flow_control_queue_size{model_name=\"m\",target_model_name=\"\"} 3\r\n",
            &[("m", 3.0, 0.0)],
        );
        check(
            "llm_d_epp_flow_control_queue_size{model_name=\"a\\\"b\\\\c\\nd\"} 1",
            &[("a\"b\\c\nd", 1.0, 0.0)],
        );
    }

    #[test]
    fn what_is_not_asked_about_or_no_figure_is_left_out() {
        check("llm_d_epp_flow_control_queue_size{model_name=\"other\"} 9\n", &[]);
        check(
            "llm_d_epp_flow_control_queue_size 9\nllm_d_epp_flow_control_queue_size_total{model_name=\"m\"} 9\n",
            &[],
        );
        for value in ["NaN", "+Inf", "-Inf", "-1", "1e999"] {
            check(&format!("llm_d_epp_flow_control_queue_size{{model_name=\"m\"}} {value}\n"), &[]);
        }
        let greatest = format!("llm_d_epp_flow_control_queue_size{{model_name=\"m\"}} {}\n", f64::MAX);
        check(&greatest.repeat(2), &[("m", f64::MAX, 0.0)]);
        check("# EOF\n\n", &[]);
    }

    #[test]
    fn a_page_without_a_queue_says_that_nothing_waits_and_one_with_no_figure_says_nothing() {
        let said = |text: &str| {
            let models = ["m".to_owned()].into();
            let mut page = Page::new(QueueFigures::of(&models));
            page.feed(text.as_bytes()).unwrap();
            page.end().unwrap().by_model().remove("m").map(|w| w.size)
        };
        let series = |value: &str| format!("llm_d_epp_flow_control_queue_size{{model_name=\"m\"}} {value}\n");
        assert_eq!(said("go_goroutines 12\n"), Some(0.0));
        assert_eq!(said(&series("0")), Some(0.0));
        for value in ["NaN", "+Inf", "-1"] {
            assert_eq!(said(&series(value)), None, "{value}");
            assert_eq!(said(&(series("0") + &series(value))), None, "0 and {value}");
            assert_eq!(said(&(series("2") + &series(value))), Some(2.0), "2 and {value}");
        }
    }

    #[test]
    fn what_is_no_metrics_page_is_no_answer() {
        for text in [
            "",
            "\n\n",
            "<html><body>hello</body></html>\n",
            "{\"error\": \"no\"}\n",
            "upstream connect error or disconnect\n",
            "go_goroutines 12\n\u{0}\u{1}\u{2}\n",
            "go_goroutines\n",
            "llm_d_epp_flow_control_queue_size{model_name=\"m\"}\n",
            "llm_d_epp_flow_control_queue_size{model_name=\"m\"} many\n",
            "llm_d_epp_flow_control_queue_size{model_name=\"m} 1\n",
            "llm_d_epp_flow_control_queue_size{model_name=m} 1\n",
            "llm_d_epp_flow_control_queue_size{model_name=\"m\"x=\"y\"} 1\n",
            "llm_d_epp_flow_control_queue_size{model_name} 1\n",
        ] {
            assert!(page(text.as_bytes(), 8).is_err(), "{text:?}");
        }
        assert!(page(b"go_goroutines 12\nm\xff 1\n", 8).is_err());
        assert!(page(&vec![b'a'; (64 << 10) + 1], 4096).is_err());
        let told = page("go_goroutines 12\n<html>\n".as_bytes(), 8).unwrap_err().to_string();
        assert_eq!(told, "line 2 is no metric: \"<html>\"");
    }
}
