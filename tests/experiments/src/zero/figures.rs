//! What is counted over all turns, and the bounds.

use std::iter::Sum;
use std::time::Duration;

use anyhow::ensure;

use super::RETENTION;

/// Counts of some turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Turns from one replica to none and back.
    pub(super) turns: usize,
    pub(super) requests: usize,
    /// The longest of them.
    pub(super) longest: Duration,
    /// Of requests that ran or waited when `/scale` was written: how long they had by then.
    pub(super) cut: Vec<Duration>,
    /// Requests that were sent after it was written, and before anybody could know.
    pub(super) late: usize,
    /// From the end of the last request to 0 replicas.
    pub(super) idle: Vec<Duration>,
    /// From a request for a model at 0 to its start.
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
    /// For people.
    pub(super) fn table(&self) -> String {
        let ages: Vec<String> = self.cut.iter().map(|had| format!("{:.3} s", had.as_secs_f64())).collect();
        let ages =
            if ages.is_empty() { String::new() } else { format!(", begun {} before", ages.join(", ")) };
        [
            ("turns to zero and back", self.turns.to_string()),
            ("requests", format!("{}, the longest of {:.1} s", self.requests, self.longest.as_secs_f64())),
            ("replicas removed while a request ran or waited", format!("{}{ages}", self.cut.len())),
            ("requests sent once /scale was written, before that was known", self.late.to_string()),
            ("from the last request's end to 0 replicas", spread(&self.idle)),
            ("from a request at 0 to its start (pods start in 2 to 3 s)", spread(&self.waited)),
        ]
        .map(|(what, figure)| format!("{what:<75} {figure}"))
        .join("\n")
    }

    pub(super) fn judge(&self) -> anyhow::Result<()> {
        ensure!(self.cut.is_empty(), "{} replicas were removed under requests", self.cut.len());
        let soonest = self.idle.iter().min().copied().unwrap_or_default();
        ensure!(soonest >= RETENTION, "a model went to zero {soonest:?} after its last request");
        Ok(())
    }
}

/// Least, median and greatest.
fn spread(all: &[Duration]) -> String {
    let mut sorted = all.to_vec();
    sorted.sort();
    let at = |i: usize| sorted.get(i).copied().unwrap_or_default().as_secs_f64();
    format!(
        "{:.1} / {:.1} / {:.1} s (least, median, greatest)",
        at(0),
        at(sorted.len() / 2),
        at(sorted.len().saturating_sub(1))
    )
}
