//! Executes the steps of each publication. A step to or from zero waits until the object's status shows its target: an
//! HPA that still reads the old target would undo it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tracing::Instrument;
use wva_crds::events::EventReason;
use wva_runtime::spans;
use wva_scaling::VariantKey;

use super::pauses::Pauses;
use super::{ActuateError, Actuator, DeletionCosts, Outcome};
use crate::model::published::{Published, Reader, StatusTargets};
use crate::model::refusals::Refusals;
use crate::model::step::{DueStep, Step};
use crate::model::to_zero;
use crate::publish::events::{EventReporter, PendingEvent};

/// Time after which a step from zero runs without its signal: requests wait. If an HPA undoes it, the next cycle
/// decides again.
const SIGNAL_WAIT_UP: Duration = Duration::from_millis(500);
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Executes steps.
pub struct ScaleExecutor {
    actuator: Actuator,
    costs: Arc<DeletionCosts>,
    status_targets: watch::Receiver<StatusTargets>,
    changed: Arc<Notify>,
    refusals: watch::Sender<Arc<Refusals>>,
    reporter: EventReporter,
}

enum StepResult {
    /// Requests a cycle now.
    Requeue,
    /// Requests a cycle after a delay.
    Failed(ActuateError),
    /// The status did not show the target in time.
    SignalNotObserved,
}

struct StepFailure {
    cause: String,
    pause: Duration,
}

impl ScaleExecutor {
    /// Requests a cycle through `changed` after each step.
    #[must_use]
    pub fn new(
        actuator: Actuator,
        costs: Arc<DeletionCosts>,
        status_targets: watch::Receiver<StatusTargets>,
        changed: Arc<Notify>,
        refusals: watch::Sender<Arc<Refusals>>,
        reporter: EventReporter,
    ) -> Self {
        Self { actuator, costs, status_targets, changed, refusals, reporter }
    }

    /// Executes steps until the engine ends, one per variant. Steps published meanwhile come again.
    pub async fn run(self, mut published: Reader) {
        let mut under_way = FuturesUnordered::new();
        let mut in_progress = BTreeSet::new();
        let mut pauses = Pauses::default();
        let mut failing = BTreeSet::new();
        // Refusals of an earlier term may be outdated.
        self.refusals.send_replace(Arc::default());
        loop {
            let due: Vec<DueStep> = tokio::select! {
                changed = published.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let newest = published.borrow_and_update().clone();
                    let is_published =
                          |variant: &VariantKey| newest.iter().any(|p| p.variants.contains_key(variant));
                    pauses.retain(is_published);
                    failing.retain(is_published);
                    newest.iter().flat_map(|newest| &newest.steps).cloned().collect()
                }
                Some(ended) = under_way.next() => {
                    let (due, failure): (DueStep, Option<StepFailure>) = ended;
                    in_progress.remove(&due.variant);
                    log_new_failure(&due.variant, failure.as_ref(), &mut failing);
                    match failure {
                        None => {
                            self.changed.notify_one();
                            continue;
                        }
                        Some(StepFailure { pause, .. }) => {
                            let next = newest_step(&published, &due.variant);
                            pauses.add(due, pause);
                            next.into_iter().collect()
                        }
                    }
                }
                () = pauses.wait_for_end() => {
                    self.changed.notify_one();
                    continue;
                }
            };
            for due in due {
                if !pauses.is_paused(&due) && in_progress.insert(due.variant.clone()) {
                    under_way.push(self.execute(due, published.clone()));
                }
            }
        }
    }

    async fn execute(&self, due: DueStep, published: Reader) -> (DueStep, Option<StepFailure>) {
        let (Step { from, to, .. }, VariantKey { namespace, name }) = (&due.step, &due.variant);
        let span = spans::scale_step(namespace, name, *from, *to);
        let (cause, pause) = match self.apply(&due, &published).instrument(span).await {
            StepResult::Requeue => return (due, None),
            StepResult::Failed(error) if error.is_refusal() => (error.to_string(), self.record_refusal(&due)),
            StepResult::Failed(error) => (error.to_string(), RETRY_DELAY),
            StepResult::SignalNotObserved => {
                ("the status does not show the target yet".to_owned(), RETRY_DELAY)
            }
        };
        (due, Some(StepFailure { cause, pause }))
    }

    /// Requests a cycle, which can choose another variant. Returns the delay before the next attempt.
    fn record_refusal(&self, due: &DueStep) -> Duration {
        let mut pause = RETRY_DELAY;
        let (variant, up) = (&due.variant, due.step.grows());
        self.refusals.send_modify(|all| pause = Arc::make_mut(all).add(variant, up, Instant::now()));
        self.changed.notify_one();
        pause
    }

    fn clear_refusal(&self, due: &DueStep) {
        let (variant, up) = (&due.variant, due.step.grows());
        self.refusals.send_if_modified(|all| {
            let is_refused = all.has(variant, up);
            if is_refused {
                Arc::make_mut(all).remove(variant, up);
            }
            is_refused
        });
    }

    async fn apply(&self, due: &DueStep, published: &Reader) -> StepResult {
        let Step { from, to, workload, .. } = &due.step;
        let crosses_zero = *from == 0 || *to == 0;
        if crosses_zero && !self.has_signal(due).await && *to == 0 {
            return StepResult::SignalNotObserved;
        }
        // A scale-down may be withdrawn until right before the write.
        let is_current = || due.step.grows() || is_current(due, published);
        let (namespace, variant) = (&due.variant.namespace, &due.variant.name);
        if !due.step.grows() {
            self.costs.mark(&due.variant, published).await;
        }
        match self.actuator.apply(&due.step, &is_current).await {
            Ok(Outcome::Done) => {
                let (kind, name) = (&workload.kind, &workload.name);
                tracing::info!(namespace, variant, kind, name, from, to, "Scaled through /scale");
                self.clear_refusal(due);
                if *from == 0 {
                    self.report_scaled_from_zero(due, published).await;
                }
                StepResult::Requeue
            }
            Ok(outcome) => {
                tracing::debug!(namespace, variant, from, to, ?outcome, "Step needed no write");
                StepResult::Requeue
            }
            // The new leader decides again.
            Err(ActuateError::NotLeading(_)) => StepResult::Requeue,
            Err(error) => StepResult::Failed(error),
        }
    }

    async fn report_scaled_from_zero(&self, due: &DueStep, published: &Reader) {
        let variant = |newest: &Arc<Published>| newest.variants.get(&due.variant).map(|v| v.uid.clone());
        let Some(uid) = published.borrow().as_ref().and_then(variant) else { return };
        let note = format!("scaled from 0 to {}: {}", due.step.to, due.reason);
        let event = PendingEvent { warning: false, reason: EventReason::ScaledFromZero, note, digest: None };
        self.reporter.report(&due.variant, &uid, due.step.workload.reference(), &event).await;
    }

    async fn has_signal(&self, due: &DueStep) -> bool {
        let longest = if due.step.to == 0 { to_zero::SIGNAL_WAIT } else { SIGNAL_WAIT_UP };
        let mut targets = self.status_targets.clone();
        let shown = targets.wait_for(|targets| targets.get(&due.variant) == Some(&due.step.to));
        matches!(tokio::time::timeout(longest, shown).await, Ok(Ok(_)))
    }
}

/// New requests may have changed the target.
fn is_current(due: &DueStep, published: &Reader) -> bool {
    let newest = published.borrow();
    let variant = newest.as_ref().and_then(|newest| newest.variants.get(&due.variant));
    variant.and_then(|variant| variant.target()) == Some(due.step.to)
}

fn newest_step(published: &Reader, variant: &VariantKey) -> Option<DueStep> {
    let newest = published.borrow();
    newest.as_ref()?.steps.iter().find(|due| due.variant == *variant).cloned()
}

fn log_new_failure(variant: &VariantKey, failure: Option<&StepFailure>, failing: &mut BTreeSet<VariantKey>) {
    let VariantKey { namespace, name } = variant;
    match failure {
        Some(StepFailure { cause, .. }) => {
            if failing.insert(variant.clone()) {
                tracing::warn!(namespace, variant = name, error = cause, "Scaling step failed; retrying");
            }
        }
        None => {
            failing.remove(variant);
        }
    }
}

#[cfg(test)]
mod tests;
