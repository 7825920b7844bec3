//! A row of the table of faults: what was seen during one fault, and whether that is what must hold.

use std::time::Duration;

use wva_testbed::replicas::LEASE;
use wva_testbed::reviews::Tally;

use super::INTERVAL;
use super::kind::Kind;
use crate::command::print_line;
use crate::report::{Report, mib};

/// One poll per second, and a round of queries that may just have begun.
const SLACK: Duration = Duration::from_secs(9);
/// A lease that has to run out, the start of a process, and its caches.
const NEW_LEADER: Duration = LEASE.saturating_add(Duration::from_secs(20));

/// Heads of the columns.
const HEADS: [&str; 12] = [
    "fault", "looks", "scale-downs", "two publishers", "series changed or absent", "invalid admitted",
    "reviews failed", "condition after", "safety net after", "back after", "scaled down after",
    "resident at most",
];

/// Observations of one fault; times since it began, or since its end.
#[derive(Debug)]
pub(super) struct Row {
    kind: Kind,
    /// Polls that the API server answered.
    pub(super) looks: usize,
    /// Polls with the target or the Deployment below its earlier value.
    pub(super) scale_downs: usize,
    /// Polls in which both replicas published the series.
    pub(super) two_publishers: usize,
    /// Polls with the series missing or changed.
    pub(super) gaps: usize,
    /// `MetricsAvailable` became False.
    pub(super) reported: Option<Duration>,
    /// `OptimizationReady` had the reason `SafetyNet`.
    pub(super) safety_net: Option<Duration>,
    /// A decision gave the reason for holding replicas.
    pub(super) reason_seen: bool,
    /// Both conditions recovered.
    pub(super) back: Option<Duration>,
    /// Scaled down for the load that fell.
    pub(super) scaled_down: Option<Duration>,
    /// Resident memory of a replica, KiB.
    pub(super) resident: u64,
    sent: u64,
    failed: u64,
    let_through: u64,
}

impl Row {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            looks: 0,
            scale_downs: 0,
            two_publishers: 0,
            gaps: 0,
            reported: None,
            safety_net: None,
            reason_seen: kind != Kind::Half,
            back: None,
            scaled_down: None,
            resident: 0,
            sent: 0,
            failed: 0,
            let_through: 0,
        }
    }

    /// Head of the table, as Markdown.
    pub(super) fn print_head() -> anyhow::Result<()> {
        print_line(&format!("| {} | kept |", HEADS.join(" | ")))?;
        print_line(&format!("|---|{}---|", "---:|".repeat(HEADS.len() - 1)))
    }

    /// Adds the reviews between two tallies.
    pub(super) fn reviewed(&mut self, before: &Tally, after: &Tally) {
        self.sent = after.sent() - before.sent();
        self.failed = after.failed - before.failed;
        self.let_through = after.let_through - before.let_through;
    }

    /// Prints the row, and checks the bounds of its kind.
    pub(super) fn judge(&self, report: &mut Report) -> anyhow::Result<()> {
        let faults = self.faults();
        let seconds =
            |after: Option<Duration>| after.map_or("–".to_owned(), |d| format!("{} s", d.as_secs()));
        let times = [self.reported, self.safety_net, self.back, self.scaled_down].map(seconds);
        let cells = [
            self.kind.name().to_owned(),
            self.looks.to_string(),
            self.scale_downs.to_string(),
            self.two_publishers.to_string(),
            self.gaps.to_string(),
            self.let_through.to_string(),
            format!("{} of {}", self.failed, self.sent),
            times.join(" | "),
            mib(self.resident),
        ];
        let verdict = if faults.is_empty() { "yes" } else { "**no**" };
        print_line(&format!("| {} | {verdict} |", cells.join(" | ")))?;
        report.require(faults.is_empty(), || format!("{}: {}", self.kind.name(), faults.join("; ")));
        Ok(())
    }

    /// What did not hold.
    fn faults(&self) -> Vec<String> {
        let kind = self.kind;
        let is_within =
            |after: Option<Duration>, most: Duration| after.is_some_and(|after| after <= most + SLACK);
        let back = if kind.keeps_series() { INTERVAL * 2 } else { INTERVAL * 2 + NEW_LEADER };
        let wrong = [
            (self.scale_downs > 0, "scaled down"),
            (self.two_publishers > 0, "two publishers"),
            (self.let_through > 0, "an invalid object was admitted"),
            (kind.keeps_reviews() && self.failed > 0, "reviews failed"),
            (kind.keeps_series() && self.gaps > 0, "the series changed or was absent"),
            (
                kind.reported_within().is_some_and(|most| !is_within(self.reported, most)),
                "the condition came late or never",
            ),
            (!self.reason_seen, "no decision named the gap"),
            (!is_within(self.back, back), "the conditions came back late or never"),
            (self.scaled_down.is_none(), "never scaled down afterwards"),
            (self.sent == 0, "no review was sent"),
        ];
        wrong.into_iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, what)| what.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_violation_is_named() {
        let good = || Row {
            reported: Some(Duration::from_secs(10)),
            back: Some(Duration::from_secs(10)),
            scaled_down: Some(Duration::from_secs(10)),
            sent: 100,
            ..Row::new(Kind::Down)
        };
        assert!(good().faults().is_empty());
        let bad = [
            Row { scale_downs: 1, ..good() },
            Row { two_publishers: 1, ..good() },
            Row { let_through: 1, ..good() },
            Row { failed: 1, ..good() },
            Row { gaps: 1, ..good() },
            Row { reported: None, ..good() },
            Row { back: Some(Duration::from_mins(2)), ..good() },
            Row { scaled_down: None, ..good() },
            Row { sent: 0, ..good() },
        ];
        for row in bad {
            assert_eq!(row.faults().len(), 1, "{row:?}: {:?}", row.faults());
        }
        // Without an API server no review can be answered, and the series may be absent until a replica leads.
        let away = Row { kind: Kind::ApiserverStopped, failed: 5, gaps: 5, reported: None, ..good() };
        assert!(away.faults().is_empty(), "{:?}", away.faults());
    }
}
