//! Output of a replay: text to read, and JSON for programs.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use wva_scaling::VariantKey;

use super::{Difference, MAX_LISTED, Replay, ReplayedTarget, Tally};
use crate::report::format_table;

impl Replay {
    /// Table of the targets by variant, then the differences.
    #[must_use]
    pub fn text(&self) -> String {
        let span = self
            .span
            .as_ref()
            .map(|span| format!(" from {} to {}", span.first, span.last))
            .unwrap_or_default();
        let mut text = format!(
            "{} cycles{span}, each decided as recorded and again with the changed settings.\n\
             Open loop: what became of the fleet is as recorded; a target that differs is not carried out.\n\n{}",
            self.cycles,
            format_table(&self.rows()),
        );
        for difference in &self.differences {
            text.push_str(&difference_text(difference));
        }
        if self.not_shown > 0 {
            let _ = writeln!(
                text,
                "\nOnly the first {MAX_LISTED} differences are shown: {} later decisions differ, too.",
                self.not_shown
            );
        }
        text
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let titles = ["variant", "cycles", "differ", "mean target", "changed", "mean cost", "changed"];
        let mut rows = vec![titles.map(str::to_owned).to_vec()];
        let mut all = Tally::default();
        for (key, tally) in &self.variants {
            rows.push(table_row(format!("{}/{}", key.namespace, key.name), tally));
            all.merge(tally);
        }
        if self.variants.len() > 1 {
            // The mean of the fleet is per cycle, not per variant and cycle.
            all.cycles = self.cycles;
            rows.push(table_row("all".to_owned(), &all));
        }
        rows
    }

    /// [`Replay::text`] for programs.
    #[must_use]
    pub fn report(&self) -> ReplayReport<'_> {
        ReplayReport {
            open_loop: true,
            cycles: self.cycles,
            from: self.span.as_ref().map(|span| span.first.as_str()),
            to: self.span.as_ref().map(|span| span.last.as_str()),
            variants: self.variants.iter().map(|(key, tally)| VariantReplay::new(key, tally)).collect(),
            differences: self.differences.iter().map(DifferenceReport::new).collect(),
            differences_not_shown: self.not_shown,
        }
    }
}

/// Report of `wva simulate --replay FILE -o json`. Times are `null` if a snapshot has none.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport<'a> {
    /// Always true: each cycle starts from its recorded state.
    open_loop: bool,
    /// Cycles decided again.
    cycles: u32,
    /// Time of the first cycle, RFC 3339.
    from: Option<&'a str>,
    /// Time of the last cycle, RFC 3339.
    to: Option<&'a str>,
    /// Variants by namespace and name.
    variants: Vec<VariantReplay<'a>>,
    /// Differences in the order of their first cycle.
    differences: Vec<DifferenceReport<'a>>,
    /// Later differences that are not listed.
    differences_not_shown: u64,
}

/// Means of one variant over its cycles.
#[derive(Debug, Serialize, JsonSchema)]
struct VariantReplay<'a> {
    /// Namespace of the variant.
    namespace: &'a str,
    /// Name of the variant.
    variant: &'a str,
    /// Cycles with this variant.
    cycles: u32,
    /// Cycles in which the targets differ.
    different: u32,
    /// Under the recorded settings.
    recorded: MeanTarget,
    /// Under the changed settings.
    changed: MeanTarget,
}

/// Means over cycles.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MeanTarget {
    /// Replicas.
    mean_target: f64,
    /// Cost of these replicas.
    mean_cost: f64,
}

/// Cycles in a row in which the target of a variant differs for the same reasons.
#[derive(Debug, Serialize, JsonSchema)]
struct DifferenceReport<'a> {
    /// Namespace of the variant.
    namespace: &'a str,
    /// Name of the variant.
    variant: &'a str,
    /// Time of the first cycle.
    from: Option<&'a str>,
    /// Time of the last cycle.
    to: Option<&'a str>,
    /// Number of cycles.
    cycles: u32,
    /// Replicas in the first cycle.
    current: u32,
    /// Under the recorded settings in the first cycle.
    recorded: TargetReport<'a>,
    /// Under the changed settings in the first cycle.
    changed: TargetReport<'a>,
}

/// A target and its reason.
#[derive(Debug, Serialize, JsonSchema)]
struct TargetReport<'a> {
    /// Replicas.
    target: u32,
    /// Code of the reason.
    reason: &'static str,
    /// Reason as a sentence.
    why: &'a str,
}

impl<'a> VariantReplay<'a> {
    fn new(key: &'a VariantKey, tally: &'a Tally) -> Self {
        let mean = |targets: f64, costs: f64| MeanTarget {
            mean_target: tally.mean(targets),
            mean_cost: tally.mean(costs),
        };
        Self {
            namespace: &key.namespace,
            variant: &key.name,
            cycles: tally.cycles,
            different: tally.different,
            recorded: mean(tally.recorded, tally.recorded_cost),
            changed: mean(tally.changed, tally.changed_cost),
        }
    }
}

impl<'a> DifferenceReport<'a> {
    fn new(difference: &'a Difference) -> Self {
        let target = |replayed: &'a ReplayedTarget| TargetReport {
            target: replayed.target,
            reason: replayed.code,
            why: &replayed.why,
        };
        Self {
            namespace: &difference.variant.namespace,
            variant: &difference.variant.name,
            from: difference.from.as_deref(),
            to: difference.to.as_deref(),
            cycles: difference.cycles,
            current: difference.current,
            recorded: target(&difference.recorded),
            changed: target(&difference.changed),
        }
    }
}

impl Tally {
    fn merge(&mut self, other: &Self) {
        self.different += other.different;
        self.recorded += other.recorded;
        self.changed += other.changed;
        self.recorded_cost += other.recorded_cost;
        self.changed_cost += other.changed_cost;
    }

    fn mean(&self, sum: f64) -> f64 {
        if self.cycles == 0 { 0.0 } else { sum / f64::from(self.cycles) }
    }
}

fn table_row(name: String, tally: &Tally) -> Vec<String> {
    vec![
        name,
        tally.cycles.to_string(),
        tally.different.to_string(),
        format!("{:.2}", tally.mean(tally.recorded)),
        format!("{:.2}", tally.mean(tally.changed)),
        format!("{:.1}", tally.mean(tally.recorded_cost)),
        format!("{:.1}", tally.mean(tally.changed_cost)),
    ]
}

fn difference_text(d: &Difference) -> String {
    let time = match (&d.from, &d.to) {
        (Some(from), Some(to)) if from != to => format!("{from} to {to}, "),
        (Some(from), _) => format!("{from}, "),
        _ => String::new(),
    };
    let cycles = if d.cycles == 1 { "1 cycle".to_owned() } else { format!("{} cycles", d.cycles) };
    let line = |name: &str, replayed: &ReplayedTarget| {
        format!("  {name:<8}  -> {}  {}: {}\n", replayed.target, replayed.code, replayed.why)
    };
    format!(
        "\n{}/{}  {time}{cycles}, from {} replicas\n{}{}",
        d.variant.namespace,
        d.variant.name,
        d.current,
        line("recorded", &d.recorded),
        line("changed", &d.changed),
    )
}
