//! The engine: decides on all variants in cycles and publishes the result. One task runs it. The state of its three parts
//! is apart: [`Sampler`] has what Prometheus answered, [`Decider`] what the next decision needs to know of the last ones,
//! and [`Stepper`] the steps to zero that wait. [`Schedule`] has what the task waits for.

mod config;
mod decider;
mod inputs;
mod progress;
mod sampler;
mod schedule;
mod stepper;
mod timers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use wva_objects::signal::MetricsApi;
use wva_runtime::{SyncStatus, spans};
use wva_scaling::ModelKey;
use wva_scaling::control_loop::EarlyTrigger;

use self::decider::{Decided, Decider, EarlyResult, Pass};
use self::inputs::Inputs;
use self::sampler::{COUNT_WAIT, Sampler};
use self::schedule::{CycleWait, Event, Schedule};
use self::stepper::Stepper;
use crate::collect::PrometheusSource;
use crate::collect::picker::Pickers;
use crate::collect::scope::Scope;
use crate::collect::telemetry::Telemetry;
use crate::config::{ConfigMaps, ConfigReloads};
use crate::cycle::attainment::objectives;
use crate::model::moment::Moment;
use crate::model::published::Published;
use crate::model::refusals::Refusals;
use crate::observe::variants::Ownership;
use crate::observe::watches::Watches;

pub use config::{Actuation, EngineConfig};
pub use progress::CycleProgress;

/// Changes of objects within this time cause one cycle.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// Changes of settings within this time cause one cycle.
const SETTINGS_DEBOUNCE: Duration = Duration::from_millis(250);
/// Time until the next round while a step to zero waits for its second check: a short delay leaves less time for new
/// requests. It is at least [`RECHECK_FACTOR`] times the duration of the last round.
const RECHECK_DELAY: Duration = Duration::from_millis(250);
const RECHECK_FACTOR: u32 = 4;
const TIMER_TOLERANCE: Duration = Duration::from_millis(100);

/// Runs the decision cycles.
pub struct Engine {
    /// Sources of the decisions.
    pub sources: Sources,
    /// Current settings.
    pub config: watch::Receiver<EngineConfig>,
    /// Metrics of the engine.
    pub metrics: EngineMetrics,
    /// Time of the last cycle.
    pub progress: CycleProgress,
    /// The engine is the only writer.
    pub published: watch::Sender<Option<Arc<Published>>>,
}

/// Sources of the decisions.
pub struct Sources {
    /// Watch caches.
    pub watches: Watches,
    /// Whether the watch caches are complete.
    pub synced: SyncStatus,
    /// ConfigMaps with thresholds.
    pub maps: ConfigMaps,
    /// Client for Prometheus.
    pub prometheus: PrometheusSource,
    /// Queues at endpoint pickers.
    pub pickers: Pickers,
    /// Availability of the API that HPAs query.
    pub metrics_api: watch::Receiver<MetricsApi>,
    /// Refused scale-ups.
    pub refusals: watch::Receiver<Arc<Refusals>>,
    /// Selects the variants that this controller manages.
    pub ownership: Ownership,
}

/// Metrics of the engine.
pub struct EngineMetrics {
    /// Queries and cycles.
    pub telemetry: Telemetry,
    /// Reloads of ConfigMaps.
    pub reloads: ConfigReloads,
}

/// State of one term.
#[derive(Default)]
struct State {
    sampler: Sampler,
    decider: Decider,
    stepper: Stepper,
}

impl Engine {
    /// Runs cycles until `shutdown`: at every interval, and soon after `changed`. Run it as the leader. Its memory ends
    /// with this call.
    ///
    /// # Errors
    /// The name of a watch cache that cannot become complete.
    pub async fn run(&self, changed: &Notify, shutdown: CancellationToken) -> Result<(), String> {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            synced = self.sources.synced.wait() => synced.map_err(|which| format!("the watch of {which} ended"))?,
        }
        tracing::info!("All watch caches are complete");
        // Without ScaledObject bounds or GPU nodes, the first cycle would decide wrongly.
        if shutdown.run_until_cancelled(self.sources.watches.wait_for_discovery()).await.is_none() {
            return Ok(());
        }
        self.run_cycles(changed, &shutdown).await;
        // An HPA holds its replicas if a metric is missing, but not if it is outdated.
        self.published.send_replace(None);
        Ok(())
    }

    /// One round of queries runs concurrently. A hanging Prometheus delays neither cycles nor the shutdown.
    async fn run_cycles(&self, changed: &Notify, shutdown: &CancellationToken) {
        let _run = self.progress.begin(self.inputs().config.period());
        let mut state = State::default();
        let mut schedule = Schedule::new(self);
        while let Some(event) = shutdown.run_until_cancelled(schedule.next(changed)).await {
            self.handle(event, &mut state, &mut schedule);
            schedule.signal_check_at = state.decider.next_signal_check(tokio::time::Instant::now());
            self.start_queries(&mut state, &mut schedule);
        }
    }

    fn handle<'e>(&'e self, event: Event, state: &mut State, schedule: &mut Schedule<'e>) {
        let inputs = self.inputs();
        match event {
            Event::RoundEnded(round) => {
                state.sampler.add_round(inputs, round);
                let is_wanted = schedule.take_wait(CycleWait::Round) || state.stepper.has_steps_to_zero();
                if is_wanted && schedule.counts.is_none() {
                    self.run_cycle(state);
                } else {
                    self.scale_up_early(state);
                    if is_wanted {
                        schedule.wait = CycleWait::Counts;
                    }
                }
                if schedule.wait == CycleWait::Counts {
                    schedule.request_cycle_within(COUNT_WAIT);
                }
            }
            Event::CountAnswered(Some(answer)) => state.sampler.add_count(*answer),
            Event::CountAnswered(None) => {
                state.sampler.end_counts();
                if schedule.take_wait(CycleWait::Counts) {
                    schedule.cycle_at = None;
                    self.run_cycle(state);
                }
            }
            Event::LatenciesAnswered(round) => {
                state.sampler.latencies.add(round, &mut state.decider.control_loop.attainment);
            }
            Event::QueuesChanged => self.wake_models(state),
            Event::RoundDue => {
                let recheck = state.stepper.needs_recheck(inputs.config);
                let to_zero = recheck.then(|| Scope::new(state.stepper.namespaces_to_zero()));
                schedule.round = state.sampler.due_round(inputs, to_zero);
            }
            Event::CycleDue => {
                self.run_cycle_on(state.sampler.is_recent(inputs.config, Duration::ZERO), state, schedule);
            }
            Event::SettingsChanged => {
                schedule.timers.set_periods(inputs.config);
                schedule.request_cycle_within(SETTINGS_DEBOUNCE);
            }
            Event::ConfigMapsChanged => schedule.request_cycle_within(SETTINGS_DEBOUNCE),
            Event::ObjectsChanged | Event::SignalCheckDue => schedule.request_cycle_within(DEBOUNCE),
            Event::RequestedCycleDue => {
                schedule.take_wait(CycleWait::Counts);
                self.run_cycle_on(state.sampler.has_read_all(inputs), state, schedule);
            }
        }
    }

    /// Runs a cycle on the samples, or after the current or a new round if they are not `enough`.
    fn run_cycle_on<'e>(&'e self, enough: bool, state: &mut State, schedule: &mut Schedule<'e>) {
        if enough {
            return self.run_cycle(state);
        }
        schedule.wait = CycleWait::Round;
        schedule.round.get_or_insert_with(|| state.sampler.full_round(self.inputs()));
    }

    /// Starts due counts and queries for latencies, and hastens the next round if a step to zero waits for its second check.
    fn start_queries<'e>(&'e self, state: &mut State, schedule: &mut Schedule<'e>) {
        let (inputs, State { sampler, decider, stepper }) = (self.inputs(), state);
        if schedule.counts.is_none() && sampler.counts.is_due() {
            schedule.counts = Some(sampler.query_counts(inputs, stepper.namespaces_to_zero()));
        }
        if schedule.latencies.is_none() {
            schedule.latencies = sampler.due_latencies(inputs, &decider.control_loop.attainment);
        }
        if schedule.round.is_none() && stepper.needs_recheck(inputs.config) {
            schedule.timers.fetch.hasten(RECHECK_DELAY.max(sampler.round_took() * RECHECK_FACTOR));
        }
    }

    fn run_cycle(&self, state: &mut State) {
        let at = Moment::current();
        let _span = spans::cycle(&at.wall, "all").entered();
        let (inputs, State { sampler, decider, stepper }) = (self.inputs(), state);
        let managed = inputs.managed();
        decider.retain_managed(&managed);
        let config = decider.resolve(inputs, &managed);
        sampler.adapt_to(&config, &mut decider.fleet, &managed, inputs);
        if decider.control_loop.attainment.set_objectives(objectives(&decider.fleet), at.now) {
            sampler.latencies.request();
        }
        let before = self.published.borrow().clone();
        let (decided, all_analyzed) =
            decider.decide_all(inputs, sampler, config, managed, at, before.as_deref());
        let steps = stepper.due_steps(inputs, sampler, &decided, &mut decider.memory.evidence);
        let published = Published {
            interval: inputs.config.interval,
            scale_downs: stepper::scale_downs(inputs, &decided),
            steps,
            ..decider.report_cycle(inputs, &decided.pass)
        };
        self.publish(decided, published, decider);
        let unmapped = sampler.samples.unmapped();
        self.metrics.telemetry.record_cycle(at.now.elapsed(), all_analyzed, unmapped);
        self.progress.advance(inputs.config.period());
    }

    /// Decides between two cycles on models that need more replicas. If other models are affected, the next cycle
    /// decides.
    fn scale_up_early(&self, state: &mut State) {
        let Some(before) = self.published.borrow().clone() else { return };
        let (has_new_samples, waiting) = (self.inputs().config.early_scale_up, BTreeSet::new());
        let trigger = EarlyTrigger { has_new_samples, waiting: &waiting };
        self.decide_early(state, &before, trigger, "Model needs more replicas");
    }

    /// Wakes models at zero, or on their way there, with requests at their endpoint pickers.
    fn wake_models(&self, state: &mut State) {
        let waiting = self.sources.pickers.queues().borrow().waiting();
        // The first cycle waits for Prometheus; a wake does not.
        let before = self.published.borrow().clone();
        let before = before.unwrap_or_else(|| state.decider.empty_publication(self.inputs(), &state.sampler));
        let trigger = EarlyTrigger { has_new_samples: false, waiting: &waiting };
        let is_done = self.decide_early(state, &before, trigger, "Requests wait at the endpoint picker");
        // Other models are affected: run a cycle if there is a sample.
        if !is_done && state.sampler.has_sample() {
            self.run_cycle(state);
        }
    }

    /// Decides between two cycles. `false`: this takes a cycle. `cause`: for the log.
    fn decide_early(
        &self,
        state: &mut State,
        before: &Published,
        trigger: EarlyTrigger<'_>,
        cause: &str,
    ) -> bool {
        let at = Moment::current();
        let _span = spans::cycle(&at.wall, "some").entered();
        let (inputs, State { sampler, decider, .. }) = (self.inputs(), state);
        let (decided, models) = match decider.decide_early(inputs, sampler, before, trigger, at) {
            EarlyResult::Nothing => return true,
            EarlyResult::NeedsCycle => return false,
            EarlyResult::Decided(decided, models) => (*decided, models),
        };
        let published = Published {
            interval: before.interval,
            withheld: before.withheld.clone(),
            orphans: before.orphans.clone(),
            steps: stepper::early_steps(inputs, &decided),
            scale_downs: stepper::scale_downs(inputs, &decided),
            ..Published::default()
        };
        self.publish(decided, published, decider);
        for ModelKey { namespace, model_id } in models {
            tracing::info!(namespace, model_id, "{cause}; deciding before the next cycle");
        }
        true
    }

    fn publish(&self, decisions: Decided, published: Published, decider: &Decider) {
        let Decided { pass: Pass { at, assembled, .. }, variants } = decisions;
        self.published.send_replace(Some(Arc::new(Published {
            at: at.wall,
            snapshot: Arc::new(assembled.snapshot),
            scalings: decider.scalings(),
            variants,
            ..published
        })));
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs { sources: &self.sources, metrics: &self.metrics, config: *self.config.borrow() }
    }
}

#[cfg(test)]
mod tests;
