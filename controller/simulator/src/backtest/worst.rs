//! The ten minutes in which wva would have been late most often, with the reason of each decision.

use wva_scaling::decide;

use super::compare::Outcome;
use super::policies::WVA;
use crate::policy::wva::Wva;
use crate::policy::{FleetView, Policy};
use crate::run::{Setting, run};
use crate::scenario::spec;

/// Minutes.
const LENGTH: usize = 10;
/// Decisions before the first late request: replicas take minutes to start.
const BEFORE: f64 = 180.0;

/// Ten minutes with their decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Worst {
    /// Start, minutes since the start of the history.
    pub minute: usize,
    /// Requests that arrived.
    pub arrived: u32,
    /// Requests that were late or lost.
    pub late: u32,
    /// Decisions that changed something, in order of time.
    pub decisions: Vec<Explanation>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Seconds since the start of the history.
    pub at: f64,
    /// Replicas of the workload.
    pub current: u32,
    /// Target.
    pub target: u32,
    /// Reason of the target.
    pub reason: String,
}

/// The worst ten minutes of the default in the hours that are judged. `None`: no request was late.
#[must_use]
pub fn find(outcomes: &[Outcome], is_judged: impl Fn(usize) -> bool) -> Option<Worst> {
    let minutes =
        &outcomes.iter().find(|outcome| outcome.name == WVA && outcome.doubts.share.is_none())?.minutes;
    let windows = minutes.windows(LENGTH).enumerate().filter(|(first, _)| is_judged(first / 60));
    let counted = windows.map(|(minute, own)| Worst {
        minute,
        arrived: own.iter().map(|m| m.arrived).sum(),
        late: own.iter().map(|m| m.arrived - m.good).sum(),
        decisions: Vec::new(),
    });
    counted.max_by_key(|worst| worst.late).filter(|worst| worst.late > 0)
}

/// Adds the decisions, by running the policy again.
pub fn explain(worst: &mut Worst, setting: &Setting, policies: &[spec::Policy]) {
    let settings = policies.iter().find(|policy| policy.name == WVA).and_then(|policy| policy.wva.as_ref());
    let Some(settings) = settings else { return };
    let minute = f64::from(u32::try_from(worst.minute).unwrap_or(u32::MAX));
    let from = 60.0 * minute - BEFORE;
    let to = 60.0 * minute + 600.0;
    let shortened = Setting { duration: to.min(setting.duration), ..setting.clone() };
    let mut policy = Recorder { wva: Wva::new(settings, &setting.variants), from, decisions: Vec::new() };
    run(&shortened, &mut policy, 1, |_| {});
    worst.decisions = policy.decisions;
}

struct Recorder {
    wva: Wva,
    from: f64,
    decisions: Vec<Explanation>,
}

impl Policy for Recorder {
    fn decide(&mut self, view: &FleetView<'_>) -> Vec<u32> {
        if view.now >= self.from {
            // The same decision as the policy's own, which follows.
            let outcome = decide(&self.wva.snapshot(view));
            if let Some(decision) = outcome.decisions.first() {
                let explained = Explanation {
                    at: view.now,
                    current: view.current(0),
                    target: decision.target(),
                    reason: decision.reason().to_string(),
                };
                let is_news = self
                    .decisions
                    .last()
                    .is_none_or(|last| (last.target, last.current) != (explained.target, explained.current));
                if is_news {
                    self.decisions.push(explained);
                }
            }
        }
        self.wva.decide(view)
    }
}
