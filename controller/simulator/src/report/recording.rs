//! Recorded cycles, decided again, as one page: load, replicas, KV cache, queue and cost over time, and each decision
//! with its sentence. The length of the page is bounded, whatever the length of the recording.

mod document;
mod rows;
mod timeline;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use wva_scaling::snapshot::{Model, SchedulerQueue, Variant};
use wva_scaling::trace::variants_by_name;
use wva_scaling::{Decision, Snapshot, VariantKey, decide};

use document::TimeAxis;
use rows::{Facts, Load, ModelRows, Moment, Summary, Totals, total};

use super::document::Document;

pub use timeline::TimelineStyle;

/// Most variants of which the page has charts. Of more, it has sums and a table.
pub const MAX_ROWS: usize = 50;
/// Variants of the table; those with the highest cost.
const MAX_LISTED: usize = 1000;

/// Variants to show. Default: all.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// `None`: all namespaces.
    pub namespace: Option<String>,
    /// Empty: all names.
    pub names: Vec<String>,
}

impl Selection {
    fn includes(&self, decision: &Decision) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == decision.key.namespace)
            && (self.names.is_empty() || self.names.contains(&decision.key.name))
    }
}

/// The cycles so far, in bounded memory for each variant.
#[derive(Clone, Debug, Default)]
pub struct History {
    selection: Selection,
    cycles: u32,
    /// `None`: the first cycle has no time, so cycles are counted instead.
    start: Option<Timestamp>,
    /// Last time of a cycle.
    end: Option<Timestamp>,
    last: f64,
    summaries: BTreeMap<VariantKey, Summary>,
    /// Rows by namespace and model. Empty if there are more than [`MAX_ROWS`] variants.
    models: BTreeMap<(String, String), ModelRows>,
    totals: Totals,
}

impl History {
    /// A history without cycles.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self { selection, ..Self::default() }
    }

    /// Decides a cycle, and keeps its figures.
    pub fn add_cycle(&mut self, snapshot: &Snapshot) {
        let moment = self.advance(snapshot.now.as_deref());
        let variants = variants_by_name(snapshot);
        let models: BTreeMap<(&str, &str), &Model> =
            snapshot.models.iter().map(|m| ((m.namespace.as_str(), m.model_id.as_str()), m)).collect();
        let outcome = decide(snapshot);
        let chosen: Vec<(&Decision, Facts)> = outcome
            .decisions
            .iter()
            .filter(|decision| self.selection.includes(decision))
            .filter_map(|decision| {
                let variant = variants.get(&(decision.key.namespace.as_str(), decision.key.name.as_str()))?;
                Some((decision, Facts::new(decision, variant)))
            })
            .collect();
        let changes: Vec<bool> = chosen.iter().map(|(d, facts)| self.summarize(d, *facts)).collect();
        if self.summaries.len() > MAX_ROWS {
            self.models.clear();
        }
        let mut loads = Vec::new();
        let mut done = 0;
        for of_model in
            chosen.chunk_by(|(a, _), (b, _)| a.key.namespace == b.key.namespace && a.model_id == b.model_id)
        {
            let Some((first, _)) = of_model.first() else { continue };
            let model = models.get(&(first.key.namespace.as_str(), first.model_id.as_str()));
            let load = find_load(model.copied(), of_model);
            self.add_rows(&moment, load, of_model, changes.get(done..).unwrap_or_default());
            done += of_model.len();
            loads.push(load);
        }
        self.totals.push(moment.at, &loads, chosen.iter().map(|(_, facts)| *facts));
    }

    /// Cycles so far.
    #[must_use]
    pub fn cycles(&self) -> u32 {
        self.cycles
    }

    /// Variants so far.
    #[must_use]
    pub fn variants(&self) -> usize {
        self.summaries.len()
    }

    /// Chosen names that no variant has.
    #[must_use]
    pub fn missing_names(&self) -> Vec<&str> {
        let present: BTreeSet<&str> = self.summaries.keys().map(|key| key.name.as_str()).collect();
        self.selection.names.iter().map(String::as_str).filter(|name| !present.contains(name)).collect()
    }

    /// The report; `name` is that of the recording.
    #[must_use]
    pub fn document(&self, name: &str) -> Document {
        document::document(self, name)
    }

    /// Load, targets and ready replicas as lines of text, at most `columns` characters long (at least 70).
    #[must_use]
    pub fn timeline(&self, columns: usize, style: TimelineStyle) -> String {
        timeline::timeline(self, columns, style)
    }

    /// Time never runs back: the clocks of two leaders may differ.
    fn advance(&mut self, now: Option<&str>) -> Moment {
        let time: Option<Timestamp> = now.and_then(|now| now.parse().ok());
        if self.cycles == 0 {
            self.start = time;
        }
        let at = match (self.start, time) {
            (None, _) => f64::from(self.cycles),
            (Some(start), Some(time)) => time.duration_since(start).as_secs_f64(),
            (Some(_), None) => self.last,
        };
        self.cycles += 1;
        self.last = self.last.max(at);
        self.end = time.or(self.end);
        Moment { at: self.last, time, cycle: self.cycles }
    }

    /// Returns whether the target differs from that of the cycle before.
    fn summarize(&mut self, decision: &Decision, facts: Facts) -> bool {
        let summary = self.summaries.entry(decision.key.clone()).or_insert_with(|| Summary::new(decision));
        summary.add(decision, facts)
    }

    fn add_rows(&mut self, moment: &Moment, load: Load, decisions: &[(&Decision, Facts)], changes: &[bool]) {
        let variants = self.summaries.len();
        let Some((first, _)) = decisions.first().filter(|_| variants <= MAX_ROWS) else { return };
        let key = (first.key.namespace.clone(), first.model_id.clone());
        let rows = self.models.entry(key).or_default();
        rows.load.push(moment.at, load, variants);
        for ((decision, facts), is_change) in decisions.iter().zip(changes) {
            let row = rows.variants.entry(decision.key.name.clone()).or_default();
            row.push(moment, decision, *facts, *is_change, variants);
        }
    }
}

fn find_load(model: Option<&Model>, decisions: &[(&Decision, Facts)]) -> Load {
    let flows = || decisions.iter().flat_map(|(d, _)| &d.steps).find_map(|step| step.reason.flow());
    let scheduler = match model.map(|model| model.scheduler_queue) {
        Some(SchedulerQueue::Known(queue)) => queue.size.get(),
        _ => f64::NAN,
    };
    let waiting = decisions.iter().map(|(_, facts)| facts.queue).chain([scheduler]);
    Load {
        arrivals: flows().map_or(f64::NAN, |flow| flow.arrivals),
        forecast: flows().map_or(f64::NAN, |flow| flow.forecast),
        running: total(decisions.iter().map(|(_, facts)| facts.running)),
        waiting: total(waiting),
    }
}

impl Facts {
    fn new(decision: &Decision, variant: &Variant) -> Self {
        let kv = || variant.replicas.iter().filter_map(|replica| replica.kv).map(f64::from);
        let known = u32::try_from(kv().count()).unwrap_or(u32::MAX);
        Self {
            current: decision.current,
            target: decision.target(),
            ready: decision.report.replicas.ready,
            kv: total(kv()) / f64::from(known.max(1)),
            kv_highest: kv().fold(f64::NAN, f64::max),
            queue: total(variant.replicas.iter().filter_map(|replica| replica.queue).map(f64::from)),
            running: variant.running.map_or(f64::NAN, f64::from),
            cost: f64::from(decision.current) * variant.cost.get(),
        }
    }
}
