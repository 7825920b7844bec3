//! Prints the figures of an experiment, and collects exceeded bounds.

use std::fmt::Display;
use std::time::Duration;

use anyhow::ensure;

use crate::command::print_line;

/// Exceeded bounds so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    missed: Vec<String>,
}

impl Report {
    /// Prints a figure without a bound.
    pub(crate) fn note(what: &str, figure: impl Display) -> anyhow::Result<()> {
        print_line(&format!("  {what:<60} {figure}"))
    }

    /// Prints a figure with a bound.
    pub(crate) fn row(
        &mut self,
        what: &str,
        figure: impl Display,
        bound: &str,
        kept: bool,
    ) -> anyhow::Result<()> {
        let verdict = if kept { "ok" } else { "MISSED" };
        Self::note(what, format!("{figure}  (bound: {bound})  {verdict}"))?;
        self.require(kept, || format!("{what}: {figure}, bound: {bound}"));
        Ok(())
    }

    /// Prints a figure with a maximum.
    pub(crate) fn at_most<T: PartialOrd + Copy, S: Display>(
        &mut self,
        what: &str,
        figure: T,
        bound: T,
        show: impl Fn(T) -> S,
    ) -> anyhow::Result<()> {
        self.row(what, show(figure), &format!("at most {}", show(bound)), figure <= bound)
    }

    /// Records a violation that has no row.
    pub(crate) fn require(&mut self, kept: bool, what: impl FnOnce() -> String) {
        if !kept {
            self.missed.push(what());
        }
    }

    /// Fails if a bound was exceeded.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        let Self { missed } = self;
        ensure!(missed.is_empty(), "{} bounds were exceeded:\n  {}", missed.len(), missed.join("\n  "));
        Ok(())
    }
}

/// Percentile of the times: 50 is the median, 0 the minimum, 100 the maximum.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Minimum, median and maximum time.
pub(crate) fn spread(times: &[Duration]) -> String {
    let [least, median, greatest] = [0, 50, 100].map(|percent| percentile(times, percent).as_secs_f64());
    format!("{least:.1} / {median:.1} / {greatest:.1} s (least, median, greatest)")
}

/// Milliseconds.
pub(crate) fn ms(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1e3)
}

/// Formats KiB as MiB.
#[expect(clippy::cast_precision_loss, reason = "KiB of a process, far below 2^52")]
pub(crate) fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_sorted_times() {
        let times: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        let found = [0, 50, 99, 100].map(|percent| percentile(&times, percent).as_millis());
        assert_eq!(found, [1, 50, 99, 100]);
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn missed_bound_fails_the_experiment() -> anyhow::Result<()> {
        let mut report = Report::default();
        report.row("kept", 1, "at most 2", true)?;
        report.at_most("kept too", 2, 2, |n| n)?;
        report.at_most("missed", 3, 2, |n| n)?;
        assert_eq!(report.missed, ["missed: 3, bound: at most 2"]);
        assert!(report.end().is_err());
        Report::default().end()
    }
}
