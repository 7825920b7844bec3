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
/// What is read, without prefix.
const READ: [&str; 6] = [
    "flow_control_queue_size",
    "flow_control_queue_bytes",
    "flow_control_pool_saturation",
    "flow_control_dispatch_cycle_duration_seconds_count",
    "request_error_total",
    "request_total",
];
/// Names that a report shows.
const MAX_NAMES: usize = 4;
const LONGEST_NAME: usize = 64;
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
    /// The page is one of llm-d router.
    pub(super) is_router: bool,
    pub(super) refused: RefusedCounts,
    /// Models whose requests may be reported under [`OVERFLOW`].
    pub(super) unnamed: BTreeSet<String>,
    /// Metrics of [`READ`] that the page has.
    pub(super) families: BTreeSet<&'static str>,
    /// Names of models of the query on it, and the first [`MAX_NAMES`] others.
    pub(super) names: BTreeSet<String>,
}

/// Series that a page has.
#[derive(Clone, Copy, Default)]
struct SeenSeries {
    /// A series that any picker has.
    picker: bool,
    /// A series of llm-d router, which shows flow control from its start on.
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
    families: BTreeSet<&'static str>,
    names: BTreeSet<String>,
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
            families: BTreeSet::new(),
            names: BTreeSet::new(),
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
        let families = self.families;
        let names = self.named.iter().chain(&self.names).cloned().collect();
        PickerPage {
            waiting,
            flow_control,
            is_picker,
            is_router: seen.router,
            refused,
            unnamed,
            families,
            names,
        }
    }

    /// Refused requests by model. Without series a count is 0; an invalid one is missing.
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
            if self.names.len() < MAX_NAMES && !self.names.contains(name) {
                self.names.insert(name.chars().take(LONGEST_NAME).collect());
            }
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
        self.families.extend(READ.iter().find(|read| **read == family));
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
mod tests;
