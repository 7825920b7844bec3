//! Checks scrapes and the audit log against the owner of each variant over time.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use wva_testbed::audit::Write;

use super::{CONTROLLERS, DELAY, SCRAPE, name};
use crate::command::print_line;
use crate::report::{Report, spread};

/// Controller that owns all variants at first.
const FIRST: usize = 2;
/// Longest gap after a move: one cycle of the new controller (including a second of debouncing), the takeover delay,
/// and two scrapes, on a busy machine.
const GAP: Duration = DELAY.saturating_add(SCRAPE.saturating_mul(4));
/// A write received within this time after a move may have been sent before it.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(1);

/// A change of the label.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) began: Instant,
    pub(super) done: Instant,
    pub(super) wall: Timestamp,
    pub(super) to: usize,
}

/// Moves of each variant, in order.
pub(super) struct History(Vec<Vec<Move>>);

impl History {
    pub(super) fn new(variants: usize) -> Self {
        Self(vec![Vec::new(); variants])
    }

    pub(super) fn moved(&mut self, variant: usize, moved: Move) {
        self.0[variant].push(moved);
    }

    /// Current owner of a variant.
    pub(super) fn owner(&self, variant: usize) -> usize {
        self.last(variant).map_or(FIRST, |last| last.to)
    }

    fn last(&self, variant: usize) -> Option<&Move> {
        self.0[variant].last()
    }

    /// Owners of a variant between two moments.
    fn owners(&self, variant: usize, from: Timestamp, until: Timestamp) -> Vec<usize> {
        let moves = &self.0[variant];
        let before = moves.iter().rev().find(|m| m.wall <= from).map_or(FIRST, |m| m.to);
        let since = moves.iter().filter(|m| m.wall > from && m.wall <= until).map(|m| m.to);
        std::iter::once(before).chain(since).collect()
    }
}

/// Counts of the experiment.
#[derive(Default)]
pub(super) struct Figures {
    scrapes: usize,
    one: usize,
    none: usize,
    several: Vec<String>,
    wrong: Vec<String>,
    unexplained: Vec<String>,
    /// Times from a move to the first scrape with the new publisher.
    gaps: Vec<Duration>,
    /// Last completed move of each variant.
    settled: Vec<Option<Instant>>,
    moves: usize,
    writes: usize,
    foreign: Vec<String>,
}

impl Figures {
    /// Adds one scrape of all controllers, begun at `at`. The history may already contain later moves.
    pub(super) fn scraped(&mut self, at: Instant, publishers: &[Vec<usize>], history: &History) {
        self.scrapes += 1;
        self.settled.resize(publishers.len(), None);
        for (variant, publishers) in publishers.iter().enumerate() {
            let last = history.last(variant);
            let who = || format!("{} at scrape {}", name(variant), self.scrapes);
            match publishers.as_slice() {
                [] => {
                    self.none += 1;
                    if last.is_none_or(|m| at.saturating_duration_since(m.done) > GAP) {
                        self.unexplained.push(format!("{}: none publishes it", who()));
                    }
                }
                [only] => {
                    self.one += 1;
                    // Before the move, the old owner is right.
                    if *only != history.owner(variant) && last.is_none_or(|m| at > m.done + SCRAPE) {
                        self.wrong.push(format!("{}: {} publishes it", who(), CONTROLLERS[*only].0));
                    }
                    if let Some(last) = last.filter(|m| m.to == *only && at > m.done)
                        && self.settled[variant] != Some(last.done)
                    {
                        self.gaps.push(at.duration_since(last.began));
                        self.settled[variant] = Some(last.done);
                    }
                }
                several => self.several.push(format!("{}: {} publish it", who(), several.len())),
            }
        }
    }

    /// Adds the audit log's writes of the controllers' service accounts.
    pub(super) fn writes(&mut self, audit: &[Write], history: &History) {
        self.moves = history.0.iter().map(Vec::len).sum();
        for write in audit.iter().filter(|w| w.resource == "variantautoscalings/status" && w.stored()) {
            let variant = (0..history.0.len()).find(|i| name(*i) == write.name);
            let writer =
                CONTROLLERS.iter().position(|(release, _)| write.user.contains(&format!(":{release}-")));
            let (Some(variant), Some(writer)) = (variant, writer) else { continue };
            self.writes += 1;
            if !history.owners(variant, write.at - ON_ITS_WAY, write.at).contains(&writer) {
                self.foreign.push(format!("{} at {}: written by {}", write.name, write.at, write.user));
            }
        }
    }

    /// Prints the figures; fails if a rule was violated.
    pub(super) fn report(&self) -> anyhow::Result<()> {
        let mut report = Report::default();
        Report::note("scrapes of all three", self.scrapes)?;
        Report::note("moves", self.moves)?;
        Report::note("scrapes x variants with one publisher", self.one)?;
        Report::note("  with none, after a move", self.none - self.unexplained.len())?;
        Report::note("from a move to the new publisher", spread(&self.gaps))?;
        Report::note("statuses written", self.writes)?;
        for (what, broken) in [
            ("scrapes x variants with more than one publisher", &self.several),
            ("  with the wrong one", &self.wrong),
            ("  with none, without a move", &self.unexplained),
            ("statuses written by others than the owner", &self.foreign),
        ] {
            report.at_most(what, broken.len(), 0, |n| n)?;
            broken.iter().take(20).try_for_each(|one| print_line(&format!("    {one}")))?;
        }
        report.end()
    }
}
