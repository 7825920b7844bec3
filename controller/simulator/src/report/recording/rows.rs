//! Figures of variants, models and all together over the cycles.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use wva_scaling::Decision;
use wva_scaling::snapshot::Mode;

use crate::report::series::{Groups, Merge, Series};

/// Groups of cycles that are drawn.
struct GroupBudget {
    /// Groups of all rows together.
    all: usize,
    /// Fewest of one row.
    least: usize,
    /// Most of one row.
    most: usize,
}

const LINE_GROUPS: GroupBudget = GroupBudget { all: 6000, least: 120, most: 600 };
/// Groups of decisions. A day of one variant at a cycle of 15 s has 5760.
const NOTE_GROUPS: GroupBudget = GroupBudget { all: 12_000, least: 240, most: 6000 };

impl GroupBudget {
    /// Groups of each row if there are so many variants.
    fn of_row(&self, variants: usize) -> usize {
        (self.all / variants.max(1)).clamp(self.least, self.most)
    }
}

/// Sum of the known values; NaN if none is known.
pub(super) fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|v| v.is_finite()).fold(f64::NAN, |sum, v| if sum.is_nan() { v } else { sum + v })
}

/// Time of a cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Seconds since the first cycle, or cycles if it has no time.
    pub(super) at: f64,
    pub(super) time: Option<Timestamp>,
    /// From 1.
    pub(super) cycle: u32,
}

/// Figures of a variant in a cycle. An unknown one is NaN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) current: u32,
    pub(super) target: u32,
    pub(super) ready: u32,
    /// Mean KV cache use of the replicas, 0 to 1.
    pub(super) kv: f64,
    /// Highest KV cache use of a replica.
    pub(super) kv_highest: f64,
    /// Requests that wait in the replicas.
    pub(super) queue: f64,
    /// Running requests.
    pub(super) running: f64,
    /// Cost of the current replicas.
    pub(super) cost: f64,
}

/// Load of a model in a cycle. An unknown figure is NaN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Requests per second.
    pub(super) arrivals: f64,
    /// Requests per second at the end of the horizon.
    pub(super) forecast: f64,
    /// Running requests.
    pub(super) running: f64,
    /// Requests in the scheduler queue and in the replicas.
    pub(super) waiting: f64,
}

/// Load over time.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadSeries {
    pub(super) arrivals: Series,
    pub(super) forecast: Series,
    pub(super) running: Series,
    pub(super) waiting: Series,
}

impl LoadSeries {
    pub(super) fn push(&mut self, at: f64, load: Load, variants: usize) {
        let most = LINE_GROUPS.of_row(variants);
        self.arrivals.push(at, load.arrivals, most);
        self.forecast.push(at, load.forecast, most);
        self.running.push(at, load.running, most);
        self.waiting.push(at, load.waiting, most);
    }
}

/// Replicas and cost over time.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaSeries {
    pub(super) target: Series,
    pub(super) current: Series,
    pub(super) ready: Series,
    pub(super) cost: Series,
}

impl ReplicaSeries {
    /// Sums over `facts`.
    fn push(&mut self, at: f64, facts: &[Facts], most: usize) {
        let sum = |figure: fn(&Facts) -> f64| total(facts.iter().map(figure));
        self.target.push(at, sum(|f| f64::from(f.target)), most);
        self.current.push(at, sum(|f| f64::from(f.current)), most);
        self.ready.push(at, sum(|f| f64::from(f.ready)), most);
        self.cost.push(at, sum(|f| f.cost), most);
    }
}

/// Sums over all chosen variants.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) load: LoadSeries,
    pub(super) replicas: ReplicaSeries,
}

impl Totals {
    pub(super) fn push(&mut self, at: f64, loads: &[Load], facts: impl Iterator<Item = Facts>) {
        let sum = |figure: fn(&Load) -> f64| total(loads.iter().map(figure));
        let load = Load {
            arrivals: sum(|l| l.arrivals),
            forecast: sum(|l| l.forecast),
            running: sum(|l| l.running),
            waiting: sum(|l| l.waiting),
        };
        self.load.push(at, load, 1);
        self.replicas.push(at, &facts.collect::<Vec<_>>(), LINE_GROUPS.of_row(1));
    }
}

/// Load and variants of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelRows {
    pub(super) load: LoadSeries,
    /// Variants by name.
    pub(super) variants: BTreeMap<String, Row>,
}

/// A variant over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) replicas: ReplicaSeries,
    pub(super) kv: Series,
    pub(super) kv_highest: Series,
    pub(super) queue: Series,
    pub(super) notes: Groups<Note>,
}

impl Row {
    pub(super) fn push(
        &mut self,
        moment: &Moment,
        decision: &Decision,
        facts: Facts,
        is_change: bool,
        variants: usize,
    ) {
        let most = LINE_GROUPS.of_row(variants);
        self.replicas.push(moment.at, &[facts], most);
        self.kv.push(moment.at, facts.kv, most);
        self.kv_highest.push(moment.at, facts.kv_highest, most);
        self.queue.push(moment.at, facts.queue, most);
        let note = Note {
            moment: *moment,
            facts,
            code: decision.reason().code(),
            sentence: decision.reason().to_string(),
            cycles: 1,
            changes: u32::from(is_change),
        };
        self.notes.push(note, NOTE_GROUPS.of_row(variants));
    }
}

/// Decision of a cycle. It stands for its group: the one with the largest step to a new target, or the last one.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) moment: Moment,
    pub(super) facts: Facts,
    code: &'static str,
    sentence: String,
    /// Cycles of the group.
    cycles: u32,
    /// Cycles of the group with a new target.
    pub(super) changes: u32,
}

impl Merge for Note {
    fn merge(self, later: Self) -> Self {
        let (cycles, changes) = (self.cycles + later.cycles, self.changes + later.changes);
        let rank = |note: &Self| (note.changes > 0, note.facts.target.abs_diff(note.facts.current));
        let shown = if self.changes > 0 && rank(&self) > rank(&later) { self } else { later };
        Self { cycles, changes, ..shown }
    }
}

impl Note {
    /// Text of the tooltip.
    pub(super) fn text(&self) -> String {
        let Facts { current, target, ready, kv, kv_highest, queue, cost, .. } = self.facts;
        let mut text = match self.moment.time {
            Some(time) => format!("{time:.0}"),
            None => format!("cycle {}", self.moment.cycle),
        };
        let _ = write!(text, ": {current} -> {target}\n{}: {}\n{ready} ready", self.code, self.sentence);
        if kv.is_finite() {
            let _ = write!(text, ", KV {} (highest {})", format_figure(kv), format_figure(kv_highest));
        }
        if queue.is_finite() {
            let _ = write!(text, ", {} waiting", format_figure(queue));
        }
        let _ = write!(text, ", cost {}", format_figure(cost));
        if self.cycles > 1 {
            let _ = write!(text, "\nstands for {} cycles, {} with a new target", self.cycles, self.changes);
        }
        text
    }
}

/// At most two decimals.
pub(super) fn format_figure(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A variant in the table.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) model_id: String,
    pub(super) accelerator: String,
    /// Mode in the last cycle.
    pub(super) mode: Mode,
    pub(super) bounds: (u32, Option<u32>),
    /// Code of the last decision.
    pub(super) code: &'static str,
    pub(super) cycles: u32,
    /// Cycles with a new target.
    pub(super) changes: u32,
    pub(super) highest: u32,
    /// Target of the last cycle; at first, the current replicas.
    last_target: u32,
    targets: f64,
    costs: f64,
}

impl Summary {
    pub(super) fn new(decision: &Decision) -> Self {
        Self {
            model_id: decision.model_id.clone(),
            accelerator: decision.report.accelerator.clone(),
            mode: decision.report.mode,
            bounds: (0, None),
            code: "",
            cycles: 0,
            changes: 0,
            highest: 0,
            last_target: decision.current,
            targets: 0.0,
            costs: 0.0,
        }
    }

    /// Returns whether the target is new.
    pub(super) fn add(&mut self, decision: &Decision, facts: Facts) -> bool {
        let is_change = facts.target != self.last_target;
        self.last_target = facts.target;
        self.mode = decision.report.mode;
        self.bounds = (decision.report.bounds.min, decision.report.bounds.max);
        self.code = decision.reason().code();
        self.cycles += 1;
        self.changes += u32::from(is_change);
        self.highest = self.highest.max(facts.target);
        self.targets += f64::from(facts.target);
        self.costs += facts.cost;
        if self.accelerator != decision.report.accelerator {
            self.accelerator.clone_from(&decision.report.accelerator);
        }
        is_change
    }

    pub(super) fn mean_target(&self) -> f64 {
        self.targets / f64::from(self.cycles.max(1))
    }

    pub(super) fn mean_cost(&self) -> f64 {
        self.costs / f64::from(self.cycles.max(1))
    }
}
