//! The engine cycle: samples into a Snapshot, the Snapshot into decisions, decisions into what is published. One task
//! owns samples, memory and publication; everything else reads.

mod config;
mod early;
mod learned;
mod narrate;
mod progress;
mod publish;
mod sampling;
mod steps;
mod ticks;
mod waking;
mod windows;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, OptionFuture};
use futures::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;
use learned::reads_work;
use narrate::{log_cycle, log_warnings};
use steps::{Look, Steps};
use ticks::{Timers, sooner};
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use windows::{COUNT_PATIENCE, Counted, Counts};
use wva_runtime::repeats::RepeatCounters;
use wva_runtime::{Availability, Synced};
use wva_scaling::snapshot::{Config, MetricsAge, Remembered};
use wva_scaling::{Outcome, VariantKey, decide};

use crate::collect::Answers;
use crate::collect::picker::Pickers;
use crate::collect::prometheus::Prometheus;
use crate::collect::sample::Samples;
use crate::collect::scope::{Scope, Split};
use crate::collect::telemetry::Telemetry;
use crate::config::{ConfigMaps, ConfigReloads, Settings};
use crate::cycle::assemble::assemble;
use crate::cycle::inventory::NoInventory;
use crate::cycle::memory::Memory;
use crate::model::moment::Moment;
use crate::model::published::Published;
use crate::model::refusals::Refusals;
use crate::observe::variants::{self, Managed, Ownership, Suspects, Takeover};
use crate::observe::watches::Watches;
use crate::observe::workloads;

pub use config::EngineConfig;
pub use progress::CycleProgress;
pub use steps::Actuation;

/// Events in quick succession make one cycle.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// The same for changes of settings, which are few and hold within a second.
const SETTLE: Duration = Duration::from_millis(250);
/// Time to the next round of queries while a step to zero waits for its second look: the sooner it comes after a scrape, the
/// fewer requests can have begun since. Prometheus gets a pause of four times as long as the last round took.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
const PAUSE: u32 = 4;
/// A timer is right to about this much.
const TIMER_ERROR: Duration = Duration::from_millis(100);

/// What the engine reads and writes.
pub struct Engine {
    /// Watch caches.
    pub watches: Watches,
    /// Whether they are complete.
    pub synced: Synced,
    /// The ConfigMaps with thresholds.
    pub maps: ConfigMaps,
    /// Where signals come from.
    pub prometheus: Prometheus,
    /// What waits for models at zero.
    pub pickers: Pickers,
    /// Which workloads cannot be scaled.
    pub refusals: watch::Receiver<Arc<Refusals>>,
    /// Which objects are managed.
    pub ownership: Ownership,
    /// The one namespace to ask for, or all.
    pub namespace: Option<String>,
    /// How often it does what, as it is now.
    pub config: watch::Receiver<EngineConfig>,
    /// Its own metrics.
    pub telemetry: Telemetry,
    /// Counter of ConfigMap reloads.
    pub reloads: ConfigReloads,
    /// When the last cycle ended.
    pub progress: CycleProgress,
    /// Where the result of each cycle goes; this is its only writer.
    pub published: watch::Sender<Option<Arc<Published>>>,
}

/// What one run of the engine owns.
#[derive(Default)]
struct State {
    samples: Samples,
    memory: Memory,
    /// What the token analyzer observed in earlier cycles.
    observed: Vec<Remembered>,
    /// When the sample was taken that it last observed.
    observed_at: Option<Instant>,
    settings: Settings,
    scalings: BTreeMap<(VariantKey, &'static str, &'static str), u64>,
    /// Warnings that go on.
    warned: RepeatCounters<String>,
    /// Variants of which the analysis fails.
    safety_nets: RepeatCounters<VariantKey>,
    /// Why nothing was limited in the last cycle, where something should have been.
    unlimited: Option<NoInventory>,
    /// When the last whole round of queries that has ended began, whatever came of it.
    asked: Option<Instant>,
    /// How long the last round took, be it a whole one or not.
    took: Duration,
    /// How queries are split.
    split: Split,
    /// When samples of what is gone were last forgotten.
    cleaned: Option<Instant>,
    /// No cycle has looked at the newest sample yet.
    news: bool,
    /// Counts of completed requests.
    counts: Counts,
    /// Why answers may lack series, as far as it was logged.
    partial_answers: BTreeSet<String>,
    /// Some model is decided by what arrives, so counters are asked for.
    work: bool,
    /// What the throughput analyzer learnt.
    learned: learned::Kept,
    /// Steps that are carried out here.
    steps: Steps,
    /// Variants that came from other controllers.
    takeover: Takeover,
    /// Variants of other controllers that nobody seems to serve.
    suspects: Suspects,
}

impl State {
    /// Forgets what it remembers of variants and models that are not managed.
    fn forget_others(&mut self, managed: &[Managed]) {
        // In order of their keys, so that thousands of them are not compared with each other.
        let is_managed = |key: &VariantKey| managed.binary_search_by(|m| m.key.cmp(key)).is_ok();
        self.memory.retain(is_managed);
        self.learned.retain(is_managed);
        self.safety_nets.retain(is_managed);
        let declared = managed
            .iter()
            .filter_map(|m| m.declared().ok().map(|d| (m.key.namespace.as_str(), d.model_id.as_str())));
        let models: HashSet<(&str, &str)> = declared.collect();
        self.observed.retain(|r| models.contains(&(r.namespace.as_str(), r.model_id.as_str())));
    }

    /// Says what was not so in the last cycle.
    fn warn(&mut self, outcome: &Outcome, unlimited: Option<NoInventory>, now: Instant) {
        log_warnings(&mut self.warned, &outcome.warnings, now);
        if let Some(why) = unlimited.filter(|why| self.unlimited != Some(*why)) {
            tracing::warn!("Scale-ups are not limited to the GPUs that are left: {why}");
        }
        self.unlimited = unlimited;
    }
}

/// One round of queries.
struct Fetched {
    began: Instant,
    /// The namespaces it was for, where it was not for all of them.
    part: Option<Scope>,
    answers: Answers,
}

impl Engine {
    /// Runs cycles until asked to stop: every interval, and at once when something that matters `changed`. To be run
    /// by the leader; what it remembers begins and ends with the run.
    ///
    /// # Errors
    /// The name of a watch cache that will never be complete.
    pub async fn run(&self, changed: &Notify, shutdown: CancellationToken) -> Result<(), String> {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            synced = self.synced.wait() => synced.map_err(|which| format!("the watch of {which} ended"))?,
        }
        tracing::info!("All watch caches are complete");
        // What is decided without the bounds of ScaledObjects, or without the GPUs there are, would be wrong for a cycle.
        if shutdown.run_until_cancelled(self.watches.discovered()).await.is_none() {
            return Ok(());
        }
        self.cycles(changed, &shutdown).await;
        // An HPA without a metric holds; one with that of a process that has stopped deciding does not.
        self.published.send_replace(None);
        Ok(())
    }

    /// Queries run beside the loop, one round at a time: a Prometheus that hangs must not hold up what a change of
    /// objects asks for, nor the end of the process.
    async fn cycles(&self, changed: &Notify, shutdown: &CancellationToken) {
        let _run = self.progress.begin(self.config().period());
        let mut state = State::default();
        let mut settings = self.config.clone();
        let mut timers = Timers::new(*settings.borrow_and_update());
        let mut fetching: OptionFuture<BoxFuture<'_, Fetched>> = None.into();
        let mut idle = true;
        // A cycle that waits for the round under way; none runs before the first.
        let mut due = false;
        // When the cycle is run that a change asked for.
        let mut asked: Option<tokio::time::Instant> = None;
        let mut queues = self.pickers.queues();
        let mut hastened = false;
        let mut counts: BoxStream<'_, Counted> = stream::empty().boxed();
        let mut counting = false;
        // A cycle that waits for counts.
        let mut uncounted = false;
        loop {
            if !counting && state.counts.is_due() {
                counts = self.count(&mut state);
                counting = true;
            }
            if idle && self.looks_again(&state) && !std::mem::replace(&mut hastened, true) {
                timers.fetch.after(LOOK_AGAIN.max(state.took * PAUSE));
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(fetched) = &mut fetching, if !idle => {
                    idle = true;
                    self.take_in(&mut state, fetched);
                    let wanted = std::mem::take(&mut due) || state.steps.wait();
                    if wanted && !counting {
                        self.cycle(&mut state);
                    } else {
                        self.early(&mut state);
                        state.news = wanted;
                        uncounted |= wanted;
                    }
                    if uncounted {
                        sooner(&mut asked, COUNT_PATIENCE);
                    }
                }
                counted = counts.next(), if counting => {
                    counting = counted.is_some();
                    if let Some(counted) = counted {
                        state.take_count(counted);
                    } else {
                        state.end_count();
                        if std::mem::take(&mut uncounted) {
                            asked = None;
                            self.cycle(&mut state);
                        }
                    }
                }
                Ok(()) = queues.changed() => self.wake(&mut state),
                () = timers.fetch.tick(), if idle => {
                    hastened = false;
                    let round = self.round(&mut state);
                    idle = round.is_none();
                    fetching = round.into();
                }
                () = timers.cycle.tick() => {
                    if self.is_young(&state, Duration::ZERO) {
                        self.cycle(&mut state);
                    } else {
                        due = true;
                        if std::mem::take(&mut idle) {
                            fetching = Some(self.fetch(&mut state)).into();
                        }
                    }
                }
                // Whoever writes it may end before the engine does: then it stays as it is.
                Ok(()) = settings.changed() => {
                    timers.change(*settings.borrow_and_update());
                    sooner(&mut asked, SETTLE);
                }
                () = self.maps.changed() => sooner(&mut asked, SETTLE),
                () = changed.notified(), if asked.is_none() => sooner(&mut asked, DEBOUNCE),
                () = sleep_until(asked.unwrap_or_else(tokio::time::Instant::now)), if asked.is_some() => {
                    asked = None;
                    uncounted = false;
                    if state.asked.is_some() {
                        self.cycle(&mut state);
                    } else {
                        due = true;
                    }
                }
            }
        }
    }

    /// How often the engine does what, at this moment.
    fn config(&self) -> EngineConfig {
        *self.config.borrow()
    }

    /// All that is managed, and of which one can know whether its workload is there.
    fn managed(&self) -> Vec<Managed> {
        let mut managed = variants::managed(&self.watches, &self.ownership);
        // Nothing is said of a workload while nobody knows whether it is there: its status is the memory of its target.
        managed.retain(|m| {
            m.declared().ok().and_then(|d| workloads::sight(&self.watches, &d.workload.kind))
                != Some(Availability::Unknown)
        });
        managed
    }

    /// Whether a step to zero is to have its second look soon.
    fn looks_again(&self, state: &State) -> bool {
        state.steps.are_urgent(self.config().fresh)
    }

    fn cycle(&self, state: &mut State) {
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let managed = self.managed();
        state.forget_others(&managed);
        let mut config = self.rules_config(&mut state.settings, &managed);
        state.counts.cap(&mut config.scale_to_zero, self.config().max_retention);
        self.change_windows(state, &config, &managed);
        state.work = reads_work(&config);
        state.memory.refusals = self.refusals.borrow().clone();
        let seen = (&state.samples, &self.pickers);
        let mut assembled = assemble(&self.watches, &managed, seen, &mut state.memory, config, at);
        assembled.snapshot.remembered.clone_from(&state.observed);
        assembled.snapshot.learned = state.learned.aged(at.now);
        let mut outcome = decide(&assembled.snapshot);
        // Another cycle on the same sample observes nothing new.
        let taken = state.samples.taken();
        if state.observed_at != taken {
            state.observed_at = taken;
            state.observed = std::mem::take(&mut outcome.next.remembered);
        }
        // Its steps are counted by time and not by samples, so no cycle counts one twice.
        state.learned.take_in(&assembled.snapshot, std::mem::take(&mut outcome.next.learned), at.now);
        state.warn(&outcome, assembled.unlimited, at.now);
        let all_analyzed = outcome.decisions.iter().all(|d| d.safety_net.is_none());
        let unmapped = assembled.unmapped;
        let variants = self.publish(state, &managed, &assembled, outcome, at);
        log_cycle(&variants, all_analyzed);
        let silent = self.silent(&state.samples, &managed, &variants, (&assembled, at));
        let news = std::mem::take(&mut state.news);
        let look = Look { news, at, silent, evidence: &state.memory.evidence };
        let steps = self.due(&mut state.steps, &managed, &variants, &assembled, &look);
        for model in state.steps.unanswered() {
            state.memory.evidence.begin_anew(model, at.now);
        }
        self.tell_left(&mut state.steps, &managed, &assembled.limits);
        state.scalings.retain(|(key, _, _), _| variants.get(key).is_some_and(|v| v.current.is_some()));
        self.published.send_replace(Some(Arc::new(Published {
            at: at.wall,
            interval: self.config().interval,
            snapshot: Arc::new(assembled.snapshot),
            variants,
            withheld: state.takeover.at(&self.watches, &self.ownership, &managed, at.now),
            unserved: state.suspects.at(&self.watches, &self.ownership, at),
            scalings: state.scalings.clone(),
            steps,
        })));
        self.telemetry.cycle(at.now.elapsed(), all_analyzed, unmapped);
        self.progress.advance(self.config().period());
    }

    /// What the rules read besides signals.
    fn rules_config(&self, settings: &mut Settings, managed: &[Managed]) -> Config {
        let c = self.config();
        let namespaces = self.watches.namespaces.as_ref();
        Config {
            decision_hold: c.decision_hold.into(),
            pending_grace: c.pending_grace.into(),
            limited_mode: c.limited_mode,
            metrics_age: MetricsAge {
                fresh: c.fresh.into(),
                stale: c.stale.into(),
                unavailable: c.unavailable.into(),
            },
            scale_to_zero_default: c.scale_to_zero,
            ..settings.resolve(&self.maps, managed, namespaces, &self.reloads, c.proactive)
        }
    }
}

#[cfg(test)]
mod tests;
