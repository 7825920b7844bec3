//! Output of a replay: text to read, and JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
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

    /// [`Replay::text`] as JSON. Times are `null` if a snapshot has none.
    #[must_use]
    pub fn json(&self) -> Value {
        let variant = |(key, tally): (&VariantKey, &Tally)| {
            json!({
                "namespace": key.namespace, "variant": key.name,
                "cycles": tally.cycles, "different": tally.different,
                "recorded": {"meanTarget": tally.mean(tally.recorded), "meanCost": tally.mean(tally.recorded_cost)},
                "changed": {"meanTarget": tally.mean(tally.changed), "meanCost": tally.mean(tally.changed_cost)},
            })
        };
        let difference = |d: &Difference| {
            json!({
                "namespace": d.variant.namespace, "variant": d.variant.name,
                "from": d.from, "to": d.to, "cycles": d.cycles, "current": d.current,
                "recorded": target_json(&d.recorded), "changed": target_json(&d.changed),
            })
        };
        json!({
            "openLoop": true,
            "cycles": self.cycles,
            "from": self.span.as_ref().map(|span| &span.first),
            "to": self.span.as_ref().map(|span| &span.last),
            "variants": self.variants.iter().map(variant).collect::<Vec<_>>(),
            "differences": self.differences.iter().map(difference).collect::<Vec<_>>(),
            "differencesNotShown": self.not_shown,
        })
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

fn target_json(replayed: &ReplayedTarget) -> Value {
    json!({ "target": replayed.target, "reason": replayed.code, "why": replayed.why })
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
