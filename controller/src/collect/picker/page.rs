//! Flow control of an endpoint picker, as its metrics page shows it for the models of a query.

use std::collections::{BTreeMap, BTreeSet};

use super::wanted::PickerQuery;
use crate::collect::page::{self, Figures};
use crate::collect::totals::QueueTotals;

/// Families that a picker shows only while its flow control runs. `flow_control_stale_endpoints` is not one of them: a
/// picker without flow control shows it as well.
const EVIDENCE: [&str; 3] =
    ["pool_saturation", "dispatch_cycle_duration_seconds_count", "request_queue_duration_seconds_count"];
/// The name of all models beyond the first 1,000.
pub(crate) const OVERFLOW: &str = "other";

/// The page of a picker's pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PickerPage {
    /// The queue of each model at zero.
    pub(super) waiting: BTreeMap<String, QueueTotals>,
    /// It shows that flow control runs.
    pub(super) has_flow_control: bool,
    /// Models whose requests it may report under another name.
    pub(super) unnamed: BTreeSet<String>,
}

/// Reads the page.
pub(super) struct QueueReader<'a> {
    query: &'a PickerQuery,
    /// By model, under the earlier and the later name of the metrics.
    found: BTreeMap<String, [QueueTotals; 2]>,
    /// Models with a value that is not a number of requests or bytes: more may wait for them than was found.
    unclear: BTreeSet<String>,
    has_flow_control: bool,
    /// Models that it names.
    named: BTreeSet<String>,
    /// It has more model names than it shows.
    overflows: bool,
}

impl<'a> QueueReader<'a> {
    /// For this query.
    pub(super) fn of(query: &'a PickerQuery) -> Self {
        Self {
            query,
            found: BTreeMap::new(),
            unclear: BTreeSet::new(),
            has_flow_control: false,
            named: BTreeSet::new(),
            overflows: false,
        }
    }

    /// The page as it was read. The queue of a model at zero is empty where the page does not show one. A model is left
    /// out where all its values are invalid.
    pub(super) fn into_page(mut self) -> PickerPage {
        let Self { query, has_flow_control, .. } = self;
        let waiting = |model: &String| {
            let [earlier, later] = self.found.remove(model).unwrap_or_default();
            let waiting = earlier.greater(later);
            (waiting.is_any() || !self.unclear.contains(model)).then(|| (model.clone(), waiting))
        };
        let waiting = query.models.iter().filter_map(waiting).collect();
        let hides = self.overflows && query.sole_model.is_none();
        let unnamed = query.all().filter(|model| hides && !self.named.contains(*model)).cloned().collect();
        PickerPage { waiting, has_flow_control, unnamed }
    }

    /// The model that a queue is of, where it is asked about.
    fn model(&mut self, target: Option<String>, asked: Option<String>) -> Option<String> {
        for name in [&target, &asked].into_iter().flatten() {
            self.overflows |= name == OVERFLOW;
            if self.query.models.contains(name) || self.query.candidates.contains(name) {
                self.named.insert(name.clone());
            }
        }
        // All queues of a picker of one model are of that model, those of its adapters and aliases too.
        let model = self.query.sole_model.clone();
        // The target counts before the one that was asked for.
        model.or(target).or(asked).filter(|model| self.query.models.contains(model))
    }
}

impl Figures for QueueReader<'_> {
    fn take(&mut self, name: &str, rest: &str) -> Option<()> {
        let generations = ["inference_extension_flow_control_", "llm_d_epp_flow_control_"];
        let family =
            generations.iter().enumerate().find_map(|(i, prefix)| Some((i, name.strip_prefix(prefix)?)));
        let (generation, bytes) = match family {
            Some((generation, "queue_size")) => (generation, false),
            Some((generation, "queue_bytes")) => (generation, true),
            other => {
                self.has_flow_control |= other.is_some_and(|(_, family)| EVIDENCE.contains(&family));
                return page::other(rest);
            }
        };
        let (mut target, mut asked) = (None, None);
        let value = page::value(rest, |label, value| match label {
            "target_model_name" if !value.is_empty() => target = Some(value),
            "model_name" if !value.is_empty() => asked = Some(value),
            _ => {}
        })?;
        let is_figure = value.is_finite() && value >= 0.0;
        self.has_flow_control |= is_figure;
        let Some(model) = self.model(target, asked) else {
            return Some(());
        };
        if is_figure {
            let waiting = &mut self.found.entry(model).or_default()[generation];
            let (size, bytes) = if bytes { (0.0, value) } else { (value, 0.0) };
            *waiting = waiting.plus(QueueTotals { size, bytes });
        } else {
            self.unclear.insert(model);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::page::{NotMetrics, Page};

    fn models() -> BTreeSet<String> {
        ["m", "meta/llama", "a\"b\\c\nd", "t"].map(str::to_owned).into()
    }

    fn page(text: &[u8], chunk: usize) -> Result<Vec<(String, f64, f64)>, NotMetrics> {
        let query = PickerQuery { models: models(), ..PickerQuery::default() };
        let mut page = Page::new(QueueReader::of(&query));
        for chunk in text.chunks(chunk) {
            page.feed(chunk)?;
        }
        let waiting = page.end()?.into_page().waiting.into_iter().filter(|(_, w)| w.is_any());
        Ok(waiting.map(|(model, w)| (model, w.size, w.bytes)).collect())
    }

    fn read(text: &str, query: &PickerQuery) -> PickerPage {
        let mut page = Page::new(QueueReader::of(query));
        page.feed(text.as_bytes()).unwrap();
        page.end().unwrap().into_page()
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
            let query = PickerQuery { models: ["m".to_owned()].into(), ..PickerQuery::default() };
            read(text, &query).waiting.remove("m").map(|w| w.size)
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
    fn flow_control_is_seen_by_what_only_it_shows() {
        let shows = |text: &str| read(&format!("go_goroutines 12\n{text}\n"), &PickerQuery::default());
        for family in [
            "llm_d_epp_flow_control_pool_saturation{inference_pool=\"p\",stage=\"effective\"} 1",
            "inference_extension_flow_control_pool_saturation{inference_pool=\"p\"} 0",
            "llm_d_epp_flow_control_dispatch_cycle_duration_seconds_count 7",
            "inference_extension_flow_control_request_queue_duration_seconds_count{model_name=\"x\"} 1",
            "llm_d_epp_flow_control_queue_size{model_name=\"x\"} 0",
            "inference_extension_flow_control_queue_bytes 0",
        ] {
            assert!(shows(family).has_flow_control, "{family}");
        }
        for family in [
            "",
            "# TYPE llm_d_epp_flow_control_queue_size gauge",
            // The saturation detector of a picker without flow control.
            "llm_d_epp_flow_control_stale_endpoints{detector=\"utilization-detector\"} 0",
            "llm_d_epp_flow_control_queue_size{model_name=\"x\"} NaN",
            "other_flow_control_pool_saturation 1",
        ] {
            assert!(!shows(family).has_flow_control, "{family}");
        }
    }

    #[test]
    fn every_queue_of_a_picker_of_one_model_is_that_models() {
        let series = |model: &str, size: u32| {
            format!("llm_d_epp_flow_control_queue_size{{target_model_name=\"{model}\"}} {size}\n")
        };
        let page = series("m", 1) + &series("adapter", 2) + &series("other", 4);
        let models: BTreeSet<String> = ["m".to_owned()].into();
        for (sole_model, size) in [(Some("m".to_owned()), 7.0), (None, 1.0)] {
            let query = PickerQuery { models: models.clone(), sole_model, ..PickerQuery::default() };
            let waiting = read(&page, &query).waiting;
            assert_eq!(waiting.get("m").map(|waiting| waiting.size), Some(size));
        }
    }

    #[test]
    fn a_model_beyond_the_names_of_a_picker_is_unnamed() {
        let unnamed = |names: &[&str], sole: Option<&str>| {
            let candidates = ["m".to_owned()].into();
            let query =
                PickerQuery { candidates, sole_model: sole.map(str::to_owned), ..PickerQuery::default() };
            let series =
                |name: &&str| format!("llm_d_epp_flow_control_queue_size{{model_name=\"{name}\"}} 0\n");
            !read(&names.iter().map(series).collect::<String>(), &query).unnamed.is_empty()
        };
        assert!(unnamed(&["n", "other"], None));
        assert!(!unnamed(&["m", "other"], None), "it is one of the first 1,000");
        assert!(!unnamed(&["n"], None), "there are not so many");
        assert!(!unnamed(&["n", "other"], Some("m")), "all of them are its own");
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
