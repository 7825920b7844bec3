//! Results of criterion as a Markdown table: minimum, median and maximum show the noise, and the time per variant shows how
//! the time grows with their number.

#![expect(clippy::print_stdout, reason = "the output of the bench")]

use std::path::Path;

use serde_json::Value;
use wva_scaling::{Action, Outcome};

use crate::fleet::{Kind, Size};
use crate::work::MemorySize;

/// Bound of the memory of the throughput analyzer, bytes per pod.
const MAX_BYTES_PER_POD: usize = 2048;

/// One line of the table.
pub(crate) struct Row {
    name: &'static str,
    size: Size,
}

impl Row {
    pub(crate) const fn new(kind: Kind, size: Size) -> Self {
        Self { name: kind.name(), size }
    }

    /// Row of the floor: reading a snapshot and returning decisions, without deciding.
    pub(crate) const fn floor(size: Size) -> Self {
        Self { name: "floor", size }
    }

    /// Name of the analyzer.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    fn variants(&self) -> usize {
        self.size.models * self.size.variants
    }

    fn replicas(&self) -> usize {
        self.variants() * usize::try_from(self.size.replicas).unwrap()
    }

    /// Size of the fleet, and name of criterion's folder.
    pub(crate) fn label(&self) -> String {
        format!("{} variants, {} replicas, {} in turn", self.variants(), self.replicas(), self.size.fleets)
    }

    /// Asserts that enough variants grow and shrink for a realistic measurement.
    pub(crate) fn check(&self, outcome: &Outcome) {
        let count = |action| outcome.decisions.iter().filter(|d| d.action() == action).count();
        let (up, down) = (count(Action::Up), count(Action::Down));
        let is_analyzed = outcome.decisions.iter().all(|d| d.safety_net().is_none());
        assert_eq!(outcome.decisions.len(), self.variants(), "a decision for every variant");
        assert!(is_analyzed, "no analysis fails");
        // With the inventory fewer variants grow.
        assert!(100 * up > self.size.models, "{}: only {up} variants grow", self.label());
        assert!(20 * down > self.size.models, "{}: only {down} variants shrink", self.label());
    }

    /// Milliseconds of `decide` in each sample of criterion, ascending. `None`: the row was filtered out.
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

/// Prints the measured rows.
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

/// Prints the memory of the throughput analyzer, and asserts its bound.
pub(crate) fn print_memory_size(size: &MemorySize) {
    let MemorySize { pods, in_memory, in_a_file, scrapes } = size;
    println!(
        "\nMemory of the throughput analyzer: {in_memory} bytes per pod ({in_a_file} in a snapshot file) for {pods} pods, plus \
         {scrapes} bytes of scrapes."
    );
    let is_small = in_memory + scrapes <= MAX_BYTES_PER_POD && *in_a_file <= MAX_BYTES_PER_POD;
    assert!(is_small, "more than {MAX_BYTES_PER_POD} bytes per pod");
}
