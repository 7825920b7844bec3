//! The task that carries out the steps of what was published. The signal comes first: a step to or from zero waits until
//! the object's status shows it, for an HPA that still reads the old target would undo it. It looks into the watch cache,
//! from which the external metrics API answers, since a write that was acknowledged may not have reached that yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tracing::Instrument;
use wva_runtime::spans;
use wva_scaling::VariantKey;

use super::pauses::Pauses;
use super::{ActuateError, Actuator, Outcome};
use crate::model::published::{Published, Reader, StatusTargets};
use crate::model::refusals::Refusals;
use crate::model::step::{DueStep, Step};
use crate::publish::events::{PendingEvent, Reporter};

/// How long a step from zero waits for its signal. Requests wait for it, so it comes all the same: an HPA that undoes it
/// is overruled by the next cycle.
const SIGNAL_UP: Duration = Duration::from_millis(500);
/// How long a step to zero does; without its signal it is not taken.
const SIGNAL_DOWN: Duration = Duration::from_secs(2);
/// Time after which a step that failed is decided on anew.
const PAUSE: Duration = Duration::from_secs(5);

/// Carries out what each publication asks for.
pub struct ScaleExecutor {
    actuator: Actuator,
    status_targets: watch::Receiver<StatusTargets>,
    changed: Arc<Notify>,
    refusals: watch::Sender<Arc<Refusals>>,
    reporter: Reporter,
}

/// What became of a due step.
enum StepResult {
    /// The engine should look at once.
    Look,
    /// The engine should look after a pause; for people.
    Failed(ActuateError),
    /// Its signal cannot be seen.
    NoSignal,
}

/// A step that was not carried out.
struct Failure {
    /// For people.
    why: String,
    /// Time until it is tried again.
    pause: Duration,
}

impl ScaleExecutor {
    /// Asks for a cycle through `changed` when a step has ended, or the pause after its failure, and keeps `refusals`.
    #[must_use]
    pub fn new(
        actuator: Actuator,
        status_targets: watch::Receiver<StatusTargets>,
        changed: Arc<Notify>,
        refusals: watch::Sender<Arc<Refusals>>,
        reporter: Reporter,
    ) -> Self {
        Self { actuator, status_targets, changed, refusals, reporter }
    }

    /// Carries steps out until the engine is gone. Of one variant one at a time: what a newer publication asks for
    /// meanwhile comes again with the next, or at once where the step under way fails.
    pub async fn run(self, mut published: Reader) {
        let mut under_way = FuturesUnordered::new();
        let mut busy = BTreeSet::new();
        let mut pauses = Pauses::default();
        let mut failing = BTreeSet::new();
        // Those of an earlier term may be mended.
        self.refusals.send_replace(Arc::default());
        loop {
            let due: Vec<DueStep> = tokio::select! {
                changed = published.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let newest = published.borrow_and_update().clone();
                    let is_there = |variant: &VariantKey| newest.iter().any(|p| p.variants.contains_key(variant));
                    pauses.retain(is_there);
                    failing.retain(is_there);
                    newest.iter().flat_map(|newest| &newest.steps).cloned().collect()
                }
                Some(ended) = under_way.next() => {
                    let (due, failure): (DueStep, Option<Failure>) = ended;
                    busy.remove(&due.variant);
                    tell(&due.variant, failure.as_ref(), &mut failing);
                    match failure {
                        None => {
                            self.changed.notify_one();
                            continue;
                        }
                        Some(Failure { pause, .. }) => {
                            let next = newest_step(&published, &due.variant);
                            pauses.add(due, pause);
                            next.into_iter().collect()
                        }
                    }
                }
                () = pauses.end() => {
                    self.changed.notify_one();
                    continue;
                }
            };
            for due in due {
                if !pauses.hold(&due) && busy.insert(due.variant.clone()) {
                    under_way.push(self.carry_out(due, published.clone()));
                }
            }
        }
    }

    async fn carry_out(&self, due: DueStep, published: Reader) -> (DueStep, Option<Failure>) {
        let (Step { from, to, .. }, VariantKey { namespace, name }) = (&due.step, &due.variant);
        let span = spans::scale_step(namespace, name, *from, *to);
        let (why, pause) = match self.execute(&due, &published).instrument(span).await {
            StepResult::Look => return (due, None),
            StepResult::Failed(error) if error.is_refusal() => (error.to_string(), self.refused(&due)),
            StepResult::Failed(error) => (error.to_string(), PAUSE),
            StepResult::NoSignal => ("its status does not show the target yet".to_owned(), PAUSE),
        };
        (due, Some(Failure { why, pause }))
    }

    /// Notes that a step was refused, and has the engine choose another at once; the time until this one is tried again.
    fn refused(&self, due: &DueStep) -> Duration {
        let mut pause = PAUSE;
        let (variant, up) = (&due.variant, due.step.grows());
        self.refusals.send_modify(|all| pause = Arc::make_mut(all).add(variant, up, Instant::now()));
        self.changed.notify_one();
        pause
    }

    fn not_refused(&self, due: &DueStep) {
        let (variant, up) = (&due.variant, due.step.grows());
        self.refusals.send_if_modified(|all| {
            let was = all.has(variant, up);
            if was {
                Arc::make_mut(all).remove(variant, up);
            }
            was
        });
    }

    async fn execute(&self, due: &DueStep, published: &Reader) -> StepResult {
        let Step { from, to, workload, .. } = &due.step;
        let crosses_zero = *from == 0 || *to == 0;
        if crosses_zero && !self.has_signal(due).await && *to == 0 {
            return StepResult::NoSignal;
        }
        // A step to zero may be taken back until the last moment.
        let stands = || *to != 0 || stands(due, published);
        let (namespace, variant) = (&due.variant.namespace, &due.variant.name);
        match self.actuator.carry_out(&due.step, &stands).await {
            Ok(Outcome::Done) => {
                let (kind, name) = (&workload.kind, &workload.name);
                tracing::info!(namespace, variant, kind, name, from, to, "Scaled through /scale");
                self.not_refused(due);
                if *from == 0 {
                    self.report_scaled_from_zero(due, published).await;
                }
                StepResult::Look
            }
            Ok(outcome) => {
                tracing::debug!(namespace, variant, from, to, ?outcome, "A step needed no write");
                StepResult::Look
            }
            // Whoever leads now decides anew.
            Err(ActuateError::NotLeading(_)) => StepResult::Look,
            Err(error) => StepResult::Failed(error),
        }
    }

    async fn report_scaled_from_zero(&self, due: &DueStep, published: &Reader) {
        let variant = |newest: &Arc<Published>| newest.variants.get(&due.variant).map(|v| v.uid.clone());
        let Some(uid) = published.borrow().as_ref().and_then(variant) else { return };
        let note = format!("scaled from 0 to {}: {}", due.step.to, due.why);
        let event = PendingEvent { warning: false, reason: "ScaledFromZero", note, digest: None };
        self.reporter.tell(&due.variant, &uid, &event).await;
    }

    /// Waits for the status to show the target of a step.
    async fn has_signal(&self, due: &DueStep) -> bool {
        let longest = if due.step.to == 0 { SIGNAL_DOWN } else { SIGNAL_UP };
        let mut targets = self.status_targets.clone();
        let shown = targets.wait_for(|targets| targets.get(&due.variant) == Some(&due.step.to));
        matches!(tokio::time::timeout(longest, shown).await, Ok(Ok(_)))
    }
}

/// Whether the newest publication still has the target of a step: requests may have come meanwhile.
fn stands(due: &DueStep, published: &Reader) -> bool {
    let newest = published.borrow();
    let variant = newest.as_ref().and_then(|newest| newest.variants.get(&due.variant));
    variant.and_then(|variant| variant.target()) == Some(due.step.to)
}

/// What the newest publication asks for of a variant.
fn newest_step(published: &Reader, variant: &VariantKey) -> Option<DueStep> {
    let newest = published.borrow();
    newest.as_ref()?.steps.iter().find(|due| due.variant == *variant).cloned()
}

/// Says that a step fails, once until it does not.
fn tell(variant: &VariantKey, failure: Option<&Failure>, failing: &mut BTreeSet<VariantKey>) {
    let VariantKey { namespace, name } = variant;
    match failure {
        Some(Failure { why, .. }) => {
            if failing.insert(variant.clone()) {
                tracing::warn!(
                    namespace,
                    variant = name,
                    error = why,
                    "A step was not carried out; it is tried again"
                );
            }
        }
        None => {
            failing.remove(variant);
        }
    }
}

#[cfg(test)]
mod tests;
