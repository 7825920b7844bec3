//! Figures of all turns, and their bounds.

use std::iter::Sum;
use std::time::Duration;

use super::RETENTION;
use crate::report::{Report, percentile, spread};

/// Counts of some turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Turns to zero and back.
    pub(super) turns: usize,
    pub(super) requests: usize,
    /// Longest of them.
    pub(super) longest: Duration,
    /// Age of requests that ran or waited at a `/scale` write.
    pub(super) cut: Vec<Duration>,
    /// Requests sent after the write, before clients could observe it.
    pub(super) late: usize,
    /// Times from the end of the last request to 0 replicas.
    pub(super) idle: Vec<Duration>,
    /// Times from a request for a model at 0 to its start.
    pub(super) waited: Vec<Duration>,
}

impl Sum for Figures {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.turns += one.turns;
            sum.requests += one.requests;
            sum.longest = sum.longest.max(one.longest);
            sum.cut.extend(one.cut);
            sum.late += one.late;
            sum.idle.extend(one.idle);
            sum.waited.extend(one.waited);
            sum
        })
    }
}

impl Figures {
    /// Prints the figures, and checks the bounds.
    pub(super) fn judge(&self, report: &mut Report) -> anyhow::Result<()> {
        Report::note("turns to zero and back", self.turns)?;
        let longest = self.longest.as_secs_f64();
        Report::note("requests", format!("{}, the longest of {longest:.1} s", self.requests))?;
        let begun: Vec<String> =
            self.cut.iter().map(|had| format!(", begun {:.3} s before", had.as_secs_f64())).collect();
        let cut = format!("{}{}", self.cut.len(), begun.concat());
        report.row("replicas removed while a request ran or waited", cut, "0", self.cut.is_empty())?;
        Report::note("requests sent once /scale was written, before that was known", self.late)?;
        let kept = percentile(&self.idle, 0) >= RETENTION;
        let bound = format!("at least {RETENTION:?}");
        report.row("from the last request's end to 0 replicas", spread(&self.idle), &bound, kept)?;
        Report::note("from a request at 0 to its start (pods start in 2 to 3 s)", spread(&self.waited))
    }
}
