//! What criterion measured, as a table in Markdown: the least, the median and the greatest mean of a sample tell the
//! noise, and the time of one variant tells whether it grows with their number.

#![expect(clippy::print_stdout, reason = "the table is what the command is for")]

use std::path::Path;

use serde_json::Value;
use wva_scaling::{Action, Outcome};

use crate::fleet::{Kind, Size};
use crate::work::State;

/// Bytes of memory that the throughput analyzer may take for each pod.
const MOST: usize = 2048;

/// One line of the table.
pub(crate) struct Row {
    name: &'static str,
    size: Size,
}

impl Row {
    pub(crate) const fn new(kind: Kind, size: Size) -> Self {
        Self { name: kind.name(), size }
    }

    /// The cost of reading a snapshot and of handing out the decisions of percentages, without deciding.
    pub(crate) const fn floor(size: Size) -> Self {
        Self { name: "floor", size }
    }

    /// The group of rows that it belongs to.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    fn variants(&self) -> usize {
        self.size.models * self.size.variants
    }

    fn replicas(&self) -> usize {
        self.variants() * usize::try_from(self.size.replicas).unwrap()
    }

    /// The size, as criterion's folder is called.
    pub(crate) fn label(&self) -> String {
        format!("{} variants, {} replicas, {} in turn", self.variants(), self.replicas(), self.size.fleets)
    }

    /// A fleet in which nothing happens would measure nothing.
    pub(crate) fn check(&self, outcome: &Outcome) {
        let count = |action| outcome.decisions.iter().filter(|d| d.action() == action).count();
        let (up, down) = (count(Action::Up), count(Action::Down));
        let every = outcome.decisions.iter().all(|d| d.safety_net.is_none());
        assert_eq!(outcome.decisions.len(), self.variants(), "a decision for every variant");
        assert!(every, "no analysis fails");
        // Where the inventory holds them back, fewer grow.
        assert!(100 * up > self.size.models, "{}: only {up} variants grow", self.label());
        assert!(20 * down > self.size.models, "{}: only {down} variants shrink", self.label());
    }

    /// Milliseconds of a decide in each of criterion's samples, ascending; none where a filter left the row out.
    fn samples(&self, folder: &Path) -> Option<Vec<f64>> {
        let path = folder.join(self.name).join(self.label()).join("new/sample.json");
        let sample: Value = serde_json::from_slice(&std::fs::read(path).ok()?).unwrap();
        let list = |name: &str| -> Vec<f64> {
            sample[name].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
        };
        let mut each: Vec<f64> = list("times").iter().zip(list("iters")).map(|(t, n)| t / n / 1e6).collect();
        each.sort_by(f64::total_cmp);
        Some(each)
    }
}

/// Prints the rows that were measured.
pub(crate) fn print(folder: &Path, rows: &[Row]) {
    println!("\n| analyzer | variants | replicas | fleets in turn | median | min | max | per variant |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        let Some(each) = row.samples(folder) else { continue };
        let (median, min, max) = (each[each.len() / 2], each[0], each[each.len() - 1]);
        let variants = row.variants();
        let per_variant = median * 1e3 / f64::from(u32::try_from(variants).unwrap());
        println!(
            "| {} | {variants} | {} | {} | {median:.3} ms | {min:.3} ms | {max:.3} ms | {per_variant:.2} µs |",
            row.name,
            row.replicas(),
            row.size.fleets,
        );
    }
}

/// Prints what the throughput analyzer remembers, and holds it to its bound.
pub(crate) fn state(state: &State) {
    let State { pods, in_memory, in_a_file, scrapes } = state;
    println!(
        "\nThe throughput analyzer remembers {in_memory} bytes a pod ({in_a_file} in a snapshot file) of {pods} pods; the \
         scrapes that it reads are {scrapes} more."
    );
    assert!(in_memory + scrapes <= MOST && *in_a_file <= MOST, "more than {MOST} bytes a pod");
}
