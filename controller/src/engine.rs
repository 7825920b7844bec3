//! The engine cycle: samples into a Snapshot, the Snapshot into decisions, decisions into what is published. One task
//! owns samples, memory and publication; everything else reads.

mod early;
mod sampling;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, OptionFuture};
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, Sleep};
use tokio_util::sync::CancellationToken;
use wva_crds::names::UNRESOLVED_ACCELERATOR;
use wva_scaling::snapshot::{Config, MetricsAge, Remembered};
use wva_scaling::trace::Trace;
use wva_scaling::{Decision, FallbackSource, Outcome, VariantKey, decide};

use crate::assemble::{Assembled, Moment, assemble};
use crate::collect::Answers;
use crate::collect::prometheus::Prometheus;
use crate::collect::sample::Samples;
use crate::collect::scope::Split;
use crate::inventory::NoInventory;
use crate::maps::{ConfigMaps, Settings};
use crate::memory::Memory;
use crate::published::{Published, PublishedVariant};
use crate::report::conditions::{Outlook, conditions};
use crate::telemetry::Telemetry;
use crate::variants::{self, Managed, Ownership, Takeover, unserved};
use crate::watches::{Sight, Synced, Watches};
use crate::workloads::{self, WorkloadKey};

/// How often the engine does what.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Time between two cycles.
    pub interval: Duration,
    /// Time between two samples.
    pub fetch_interval: Duration,
    /// A sample younger than this is not fetched again, and one that is older is fetched anew before a cycle.
    pub cache_ttl: Duration,
    /// Time after which samples of what is gone are forgotten.
    pub cleanup_interval: Duration,
    /// Age up to which a signal counts fully.
    pub fresh: Duration,
    /// Age up to which it counts, but forbids scale-down.
    pub stale: Duration,
    /// Age beyond which it is missing.
    pub unavailable: Duration,
    /// How long a decision is kept without progress.
    pub decision_hold: Duration,
    /// Age at which a replica that is not ready is stuck.
    pub pending_grace: Duration,
    /// Every model is limited to the GPUs that are left.
    pub limited_mode: bool,
    /// A sample that shows a need for more replicas is acted on at once.
    pub early_scale_up: bool,
}

/// Events in quick succession make one cycle.
const DEBOUNCE: Duration = Duration::from_secs(1);
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
    /// Which objects are managed.
    pub ownership: Ownership,
    /// The one namespace to ask for, or all.
    pub namespace: Option<String>,
    /// How often it does what.
    pub config: EngineConfig,
    /// Its own metrics.
    pub telemetry: Telemetry,
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
    /// Warnings of the last cycle, which are not said again.
    warned: BTreeSet<String>,
    /// Why nothing was limited in the last cycle, where something should have been.
    unlimited: Option<NoInventory>,
    /// When the last round of queries that has ended began, whatever came of it.
    asked: Option<Instant>,
    /// How queries are split.
    split: Split,
    /// When samples of what is gone were last forgotten.
    cleaned: Option<Instant>,
    /// Variants that came from other controllers.
    takeover: Takeover,
}

/// The answers of one round of queries, and when it began.
type Fetched = (Instant, Answers);

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
        if shutdown.run_until_cancelled(self.watches.looked()).await.is_none() {
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
        let mut state = State::default();
        let mut fetch = ticks(self.config.fetch_interval);
        let mut cycle = ticks(self.config.interval);
        let mut fetching: OptionFuture<BoxFuture<'_, Fetched>> = None.into();
        let mut idle = true;
        // A cycle that waits for the round under way; none runs before the first.
        let mut due = false;
        let mut debounced: OptionFuture<Pin<Box<Sleep>>> = None.into();
        let mut quiet = true;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(fetched) = &mut fetching, if !idle => {
                    idle = true;
                    self.take_in(&mut state, fetched);
                    if std::mem::take(&mut due) {
                        self.cycle(&mut state);
                    } else if self.config.early_scale_up {
                        self.early(&mut state);
                    }
                }
                _ = fetch.tick(), if idle => {
                    if !self.is_young(&state, TIMER_ERROR) {
                        idle = false;
                        fetching = Some(self.fetch(&mut state)).into();
                    }
                }
                _ = cycle.tick() => {
                    if self.is_young(&state, Duration::ZERO) {
                        self.cycle(&mut state);
                    } else {
                        due = true;
                        if std::mem::take(&mut idle) {
                            fetching = Some(self.fetch(&mut state)).into();
                        }
                    }
                }
                () = changed.notified(), if quiet => {
                    quiet = false;
                    debounced = Some(Box::pin(tokio::time::sleep(DEBOUNCE))).into();
                }
                Some(()) = &mut debounced, if !quiet => {
                    quiet = true;
                    if state.asked.is_some() {
                        self.cycle(&mut state);
                    } else {
                        due = true;
                    }
                }
            }
        }
    }

    /// All that is managed, and of which one can know whether its workload is there.
    fn managed(&self) -> Vec<Managed> {
        let mut managed = variants::managed(&self.watches, &self.ownership);
        // Nothing is said of a workload while nobody knows whether it is there: its status is the memory of its target.
        managed.retain(|m| {
            m.declared().ok().and_then(|d| workloads::sight(&self.watches, &d.workload.kind))
                != Some(Sight::Unknown)
        });
        managed
    }

    fn cycle(&self, state: &mut State) {
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let managed = self.managed();
        // In order of their keys, so that thousands of them are not compared with each other.
        state.memory.retain(|key| managed.binary_search_by(|m| m.key.cmp(key)).is_ok());
        let config = self.rules_config(&mut state.settings, &managed);
        let mut assembled = assemble(&self.watches, &managed, &state.samples, &mut state.memory, config, at);
        assembled.snapshot.remembered.clone_from(&state.observed);
        let mut outcome = decide(&assembled.snapshot);
        // Another cycle on the same sample observes nothing new.
        let taken = state.samples.taken();
        if state.observed_at != taken {
            state.observed_at = taken;
            state.observed = std::mem::take(&mut outcome.next.remembered);
        }
        let warnings: BTreeSet<String> = outcome.warnings.iter().map(ToString::to_string).collect();
        for warning in warnings.difference(&state.warned) {
            tracing::warn!("{warning}");
        }
        state.warned = warnings;
        if let Some(why) = assembled.unlimited.filter(|why| state.unlimited != Some(*why)) {
            tracing::warn!("Scale-ups are not limited to the GPUs that are left: {why}");
        }
        state.unlimited = assembled.unlimited;
        let all_analyzed = outcome.decisions.iter().all(|d| d.safety_net.is_none());
        let unmapped = assembled.unmapped;
        let variants = self.publish(state, &managed, &assembled, outcome, at);
        state.scalings.retain(|(key, _, _), _| variants.get(key).is_some_and(|v| v.current.is_some()));
        self.published.send_replace(Some(Arc::new(Published {
            at: at.wall,
            snapshot: Arc::new(assembled.snapshot),
            variants,
            withheld: state.takeover.at(&self.watches, &self.ownership, &managed, at.now),
            unserved: unserved(&self.watches, &self.ownership, at.wall),
            scalings: state.scalings.clone(),
        })));
        self.telemetry.cycle(at.now.elapsed(), all_analyzed, unmapped);
    }

    /// What becomes of the decisions on these variants, and of what is remembered of them.
    fn publish<'a>(
        &self,
        state: &mut State,
        managed: impl IntoIterator<Item = &'a Managed>,
        assembled: &Assembled,
        mut outcome: Outcome,
        at: Moment,
    ) -> BTreeMap<VariantKey, Arc<PublishedVariant>> {
        // In order of their keys, as the managed ones are, so that each is moved to where it stays.
        outcome.decisions.sort_by(|a, b| (&a.namespace, &a.variant).cmp(&(&b.namespace, &b.variant)));
        let mut decisions = outcome.decisions.into_iter().peekable();
        let before = self.published.borrow().clone();
        let mut all = BTreeMap::new();
        for m in managed {
            let remembered = state.memory.of(m, at.now, at.wall);
            let mut decision =
                decisions.next_if(|d| (&d.namespace, &d.variant) == (&m.key.namespace, &m.key.name));
            if let Some(d) = &mut decision {
                d.not_carried_out = remembered.not_carried_out(d.not_carried_out, d.target(), d.current);
            }
            let had_target = remembered.has_target();
            if let (Some(next), Some(d)) = (outcome.next.variants.get(&m.key), &decision) {
                let echo = d.safety_net == Some(FallbackSource::CurrentReplicas);
                remembered.decided(*next, d.mode, echo, at.now);
            }
            let seen = remembered.target_seen;
            let sight = m.declared().ok().and_then(|d| workloads::sight(&self.watches, &d.workload.kind));
            let query_error = state.samples.load_error(&m.key.namespace);
            let told = Told { query_error, had_target, seen, sight };
            let variant = outlook(m, decision, assembled, &told);
            let variant = state.settings.judge(variant);
            let old = before.as_ref().and_then(|b| b.variants.get(&m.key)).filter(|o| o.uid == variant.uid);
            count(&mut state.scalings, &m.key, old.map(AsRef::as_ref), &variant);
            narrate(&m.key, &variant);
            let same = old.filter(|old| ***old == variant).cloned();
            all.insert(m.key.clone(), same.unwrap_or_else(|| Arc::new(variant)));
        }
        all
    }

    /// What the rules read besides signals. Entries of scale to zero stay out of it: nothing could wake a model yet.
    fn rules_config(&self, settings: &mut Settings, managed: &[Managed]) -> Config {
        let c = &self.config;
        let namespaces = self.watches.namespaces.as_ref();
        Config {
            saturation: settings.resolve(&self.maps, managed, namespaces, &self.telemetry),
            decision_hold: c.decision_hold.into(),
            pending_grace: c.pending_grace.into(),
            limited_mode: c.limited_mode,
            metrics_age: MetricsAge {
                fresh: c.fresh.into(),
                stale: c.stale.into(),
                unavailable: c.unavailable.into(),
            },
            ..Config::default()
        }
    }
}

fn ticks(period: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(period);
    // After a slow answer the next tick comes a whole period later, not several at once.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// What a variant's conditions are told beside its decision.
struct Told<'a> {
    query_error: Option<&'a str>,
    had_target: bool,
    /// Its workload was there before.
    seen: bool,
    /// How much of the kind of its workload can be seen; `None` where nobody looks.
    sight: Option<Sight>,
}

fn outlook(
    m: &Managed,
    decision: Option<Decision>,
    assembled: &Assembled,
    told: &Told<'_>,
) -> PublishedVariant {
    let Told { query_error, had_target, seen, sight } = *told;
    let outlook = match (m.declared(), &decision) {
        (Err(unusable), _) => Outlook::Unusable(unusable),
        (Ok(_), Some(decision)) => Outlook::Decided { decision, query_error, had_target },
        (Ok(declared), None) => {
            let WorkloadKey { kind, name, .. } = &declared.workload;
            Outlook::NoTarget { kind, name, seen, sight }
        }
    };
    let conditions = conditions(outlook);
    let accelerator = decision.as_ref().map(|d| d.accelerator.clone()).or_else(|| m.accelerator.clone());
    PublishedVariant {
        uid: m.uid.clone(),
        generation: m.generation,
        instance: m.instance.clone(),
        accelerator: accelerator.unwrap_or_else(|| UNRESOLVED_ACCELERATOR.to_owned()),
        current: assembled.workloads.get(&m.key).map(|r| r.current),
        decision,
        conditions,
    }
}

/// Counts a change of the target that autoscalers are told.
fn count(
    scalings: &mut BTreeMap<(VariantKey, &'static str, &'static str), u64>,
    key: &VariantKey,
    before: Option<&PublishedVariant>,
    after: &PublishedVariant,
) {
    let (Some(from), Some(to), Some(decision)) =
        (before.and_then(PublishedVariant::signal), after.signal(), &after.decision)
    else {
        return;
    };
    let direction = match to.cmp(&from) {
        std::cmp::Ordering::Greater => "up",
        std::cmp::Ordering::Less => "down",
        std::cmp::Ordering::Equal => return,
    };
    *scalings.entry((key.clone(), direction, decision.reason().code())).or_default() += 1;
}

/// The line runbooks of the original look for, and the trace of every decision at debug level.
fn narrate(key: &VariantKey, variant: &PublishedVariant) {
    let Some(decision) = &variant.decision else { return };
    if let Some(source) = decision.safety_net {
        let fallback = match source {
            FallbackSource::PreviousDesired => "previous-desired",
            FallbackSource::CurrentReplicas => "current-replicas",
        };
        tracing::info!(
            namespace = key.namespace,
            variant = key.name,
            currentReplicas = decision.current,
            desiredReplicas = decision.target(),
            fallbackSource = fallback,
            "Safety net activated: emitted fallback metrics"
        );
    }
    tracing::debug!(
        namespace = key.namespace,
        variant = key.name,
        current = decision.current,
        target = decision.target(),
        reason = decision.reason().code(),
        "{}",
        Trace(decision)
    );
}

#[cfg(test)]
mod tests;
