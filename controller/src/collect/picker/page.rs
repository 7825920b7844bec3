//! Reads flow control, queues and refused requests from the page of an endpoint picker.

use std::collections::{BTreeMap, BTreeSet};

use super::refused::RefusedCounts;
use super::selection::PickerQuery;
use crate::collect::page::{self, PageReader};
use crate::collect::totals::QueueTotals;

/// Prefixes of a picker's metrics with their generation: llm-d router since 0.9, and what was there before.
const PREFIXES: [(&str, usize); 5] = [
    ("llm_d_epp_", 1),
    ("inference_extension_", 0),
    ("inference_objective_", 0),
    ("inference_model_", 0),
    ("inference_pool_", 0),
];
/// Metrics that exist only with flow control. A picker without it also has `flow_control_stale_endpoints`.
const EVIDENCE: [&str; 4] = [
    "pool_saturation", "dispatch_cycle_duration_seconds_count", "request_queue_duration_seconds_count",
    "requests_total",
];
/// Values of `error_code` for requests that a replica might have answered: none was there, the queue was full, or the
/// request left the queue. The others are faults of the client or of a model server.
const REFUSALS: [&str; 4] =
    ["ServiceUnavailable", "ResourceExhausted", "InferencePoolResourceExhausted", "Internal"];
/// A restarted process counts from 0.
const STARTED: &str = "process_start_time_seconds";
/// Model name for all models beyond the first 1,000.
pub(crate) const OVERFLOW: &str = "other";

/// What a page shows of flow control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FlowControlState {
    #[default]
    Off,
    /// Pickers before llm-d router 0.9 show it with their first request.
    NotYetShown,
    On,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PickerPage {
    pub(super) waiting: BTreeMap<String, QueueTotals>,
    pub(super) flow_control: FlowControlState,
    /// False: a metrics page of another program.
    pub(super) is_picker: bool,
    pub(super) refused: RefusedCounts,
    /// Models whose requests may be reported under [`OVERFLOW`].
    pub(super) unnamed: BTreeSet<String>,
}

/// Series that a page has.
#[derive(Clone, Copy, Default)]
struct SeenSeries {
    /// Of any picker.
    picker: bool,
    /// Of llm-d router, which shows flow control from its start on.
    router: bool,
    /// A request of a model.
    request: bool,
}

pub(super) struct QueueReader<'a> {
    query: &'a PickerQuery,
    /// Totals under the earlier and the later metric name.
    totals: BTreeMap<String, [QueueTotals; 2]>,
    /// Models with an invalid value: more requests may wait.
    invalid: BTreeSet<String>,
    /// Refused requests under the earlier and the later metric name. NaN: invalid.
    refused: BTreeMap<String, [f64; 2]>,
    started: Option<f64>,
    has_flow_control: bool,
    seen: SeenSeries,
    named: BTreeSet<String>,
    overflows: bool,
}

impl<'a> QueueReader<'a> {
    pub(super) fn new(query: &'a PickerQuery) -> Self {
        Self {
            query,
            totals: BTreeMap::new(),
            invalid: BTreeSet::new(),
            refused: BTreeMap::new(),
            started: None,
            has_flow_control: false,
            seen: SeenSeries::default(),
            named: BTreeSet::new(),
            overflows: false,
        }
    }

    /// Returns the facts. Without series a queue is empty; with only invalid values the model is missing.
    pub(super) fn into_page(mut self) -> PickerPage {
        let Self { query, seen, .. } = self;
        let is_picker = seen.picker;
        let flow_control = if self.has_flow_control {
            FlowControlState::On
        } else if seen.picker && !seen.router && !seen.request {
            FlowControlState::NotYetShown
        } else {
            FlowControlState::Off
        };
        let refused = self.refused_counts();
        let waiting = |model: &String| {
            let [earlier, later] = self.totals.remove(model).unwrap_or_default();
            let waiting = earlier.max(later);
            (waiting.has_requests() || !self.invalid.contains(model)).then(|| (model.clone(), waiting))
        };
        let waiting = query.models.iter().filter_map(waiting).collect();
        let hides_models = self.overflows && query.sole_model.is_none();
        let unnamed = query.all().filter(|model| hides_models && !self.named.contains(*model));
        let unnamed = unnamed.cloned().collect();
        PickerPage { waiting, flow_control, is_picker, refused, unnamed }
    }

    /// Without series a count is 0; an invalid one is missing.
    fn refused_counts(&self) -> RefusedCounts {
        let count = |model: &String| {
            let [earlier, later] = self.refused.get(model).copied().unwrap_or_default();
            let is_valid = earlier.is_finite() && later.is_finite();
            is_valid.then(|| (model.clone(), earlier.max(later)))
        };
        RefusedCounts {
            by_model: self.query.all().filter_map(count).collect(),
            sole_model: self.query.sole_model.clone(),
            started: self.started,
        }
    }

    /// `target` and `requested` are the labels `target_model_name` and `model_name`.
    fn model(&mut self, target: Option<String>, requested: Option<String>) -> Option<String> {
        for name in [&target, &requested].into_iter().flatten() {
            self.overflows |= name == OVERFLOW;
            if self.query.models.contains(name) || self.query.candidates.contains(name) {
                self.named.insert(name.clone());
            }
        }
        // All queues at a picker of one model count, including adapters and aliases.
        let model = self.query.sole_model.clone();
        model.or(target).or(requested)
    }

    fn read_queue(&mut self, generation: usize, is_bytes: bool, rest: &str) -> Option<()> {
        let (mut target, mut requested) = (None, None);
        let value = page::parse_value(rest, |label, value| match label {
            "target_model_name" if !value.is_empty() => target = Some(value),
            "model_name" if !value.is_empty() => requested = Some(value),
            _ => {}
        })?;
        let is_valid = value.is_finite() && value >= 0.0;
        self.has_flow_control |= is_valid;
        let model = self.model(target, requested).filter(|model| self.query.models.contains(model));
        let Some(model) = model else { return Some(()) };
        if is_valid {
            let waiting = &mut self.totals.entry(model).or_default()[generation];
            let (size, bytes) = if is_bytes { (0.0, value) } else { (value, 0.0) };
            *waiting = waiting.plus(QueueTotals { size, bytes });
        } else {
            self.invalid.insert(model);
        }
        Some(())
    }

    fn read_errors(&mut self, generation: usize, rest: &str) -> Option<()> {
        let (mut target, mut requested, mut is_refusal) = (None, None, false);
        let value = page::parse_value(rest, |label, value| match label {
            "target_model_name" if !value.is_empty() => target = Some(value),
            "model_name" if !value.is_empty() => requested = Some(value),
            "error_code" => is_refusal = REFUSALS.contains(&value.as_str()),
            _ => {}
        })?;
        // Probes and lists of models name no model, and do not pass flow control.
        let is_named = target.is_some() || requested.is_some();
        self.seen.request |= is_named;
        if !is_refusal || !is_named {
            return Some(());
        }
        if let Some(model) = self.model(target, requested)
            && self.query.all().any(|one| *one == model)
        {
            let sum = &mut self.refused.entry(model).or_default()[generation];
            *sum += if value >= 0.0 { value } else { f64::NAN };
        }
        Some(())
    }
}

impl PageReader for QueueReader<'_> {
    fn read_series(&mut self, name: &str, rest: &str) -> Option<()> {
        if name == STARTED {
            let value = page::parse_value(rest, |_, _| {})?;
            self.started = Some(value).filter(|value| value.is_finite());
            return Some(());
        }
        let family = PREFIXES.iter().find_map(|(prefix, at)| Some((*at, name.strip_prefix(prefix)?)));
        let Some((generation, family)) = family else { return page::check_number(rest) };
        self.seen.picker = true;
        self.seen.router |= generation == 1;
        match (family, family.strip_prefix("flow_control_")) {
            (_, Some("queue_size")) => return self.read_queue(generation, false, rest),
            (_, Some("queue_bytes")) => return self.read_queue(generation, true, rest),
            ("request_error_total", _) => return self.read_errors(generation, rest),
            ("request_total" | "running_requests", _) => self.seen.request = true,
            (_, Some(family)) => self.has_flow_control |= EVIDENCE.contains(&family),
            _ => {}
        }
        page::check_number(rest)
    }
}

#[cfg(test)]
mod releases;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::page::{InvalidPage, Page};

    fn models() -> BTreeSet<String> {
        ["m", "meta/llama", "a\"b\\c\nd", "t"].map(str::to_owned).into()
    }

    fn page(text: &[u8], chunk: usize) -> Result<Vec<(String, f64, f64)>, InvalidPage> {
        let query = PickerQuery { models: models(), ..PickerQuery::default() };
        let mut page = Page::new(QueueReader::new(&query));
        for chunk in text.chunks(chunk) {
            page.feed(chunk)?;
        }
        let waiting = page.finish()?.into_page().waiting.into_iter().filter(|(_, w)| w.has_requests());
        Ok(waiting.map(|(model, w)| (model, w.size, w.bytes)).collect())
    }

    fn read(text: &str, query: &PickerQuery) -> PickerPage {
        let mut page = Page::new(QueueReader::new(query));
        page.feed(text.as_bytes()).unwrap();
        page.finish().unwrap().into_page()
    }

    #[track_caller]
    fn check(text: &str, want: &[(&str, f64, f64)]) {
        let want: Vec<_> =
            want.iter().map(|(model, size, bytes)| ((*model).to_owned(), *size, *bytes)).collect();
        // The chunk size must not matter.
        for chunk in [1, 7, 64, usize::MAX] {
            assert_eq!(page(text.as_bytes(), chunk), Ok(want.clone()), "chunks of {chunk}: {text}");
        }
    }

    #[test]
    fn reads_queues_under_both_names_and_both_labels() {
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
        // Both metric names show the same queue.
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
    fn skips_other_models_and_invalid_values() {
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
    fn missing_series_means_empty_and_invalid_value_unknown() {
        let size = |text: &str| {
            let query = PickerQuery { models: ["m".to_owned()].into(), ..PickerQuery::default() };
            read(text, &query).waiting.remove("m").map(|w| w.size)
        };
        let series = |value: &str| format!("llm_d_epp_flow_control_queue_size{{model_name=\"m\"}} {value}\n");
        assert_eq!(size("go_goroutines 12\n"), Some(0.0));
        assert_eq!(size(&series("0")), Some(0.0));
        for value in ["NaN", "+Inf", "-1"] {
            assert_eq!(size(&series(value)), None, "{value}");
            assert_eq!(size(&(series("0") + &series(value))), None, "0 and {value}");
            assert_eq!(size(&(series("2") + &series(value))), Some(2.0), "2 and {value}");
        }
    }

    #[test]
    fn detects_flow_control_by_its_own_metrics() {
        let shows = |text: &str| read(&format!("go_goroutines 12\n{text}\n"), &PickerQuery::default());
        for family in [
            "llm_d_epp_flow_control_pool_saturation{inference_pool=\"p\",stage=\"effective\"} 1",
            "inference_extension_flow_control_pool_saturation{inference_pool=\"p\"} 0",
            "llm_d_epp_flow_control_dispatch_cycle_duration_seconds_count 7",
            "inference_extension_flow_control_request_queue_duration_seconds_count{model_name=\"x\"} 1",
            "llm_d_epp_flow_control_queue_size{model_name=\"x\"} 0",
            "inference_extension_flow_control_queue_bytes 0",
        ] {
            assert_eq!(shows(family).flow_control, FlowControlState::On, "{family}");
        }
        for family in [
            "",
            "# TYPE llm_d_epp_flow_control_queue_size gauge",
            // From the saturation detector of a picker without flow control.
            "llm_d_epp_flow_control_stale_endpoints{detector=\"utilization-detector\"} 0",
            "llm_d_epp_flow_control_queue_size{model_name=\"x\"} NaN",
            "other_flow_control_pool_saturation 1",
        ] {
            assert_ne!(shows(family).flow_control, FlowControlState::On, "{family}");
        }
    }

    #[test]
    fn all_queues_of_a_single_model_picker_count_for_it() {
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
    fn model_beyond_the_name_limit_is_unnamed() {
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
        assert!(!unnamed(&["n"], None), "the page does not overflow");
        assert!(!unnamed(&["n", "other"], Some("m")), "all queues are of this model");
    }

    #[test]
    fn rejects_pages_that_are_not_metrics() {
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
        let error = page("go_goroutines 12\n<html>\n".as_bytes(), 8).unwrap_err().to_string();
        assert_eq!(error, "line 2 is not a metric: \"<html>\"");
    }
}
