//! The engine: decides on all variants in cycles and publishes the result. One task owns samples, memory and
//! publication.

mod completed_counts;
mod config;
mod early;
mod following;
mod latencies;
mod learned;
mod logs;
mod pass;
mod progress;
mod sampling;
mod schedule;
mod series;
mod state;
mod steps;
mod timers;
mod variants;
mod waking;

use std::sync::Arc;
use std::time::Duration;

use completed_counts::COUNT_WAIT;
use schedule::{Event, Schedule};
use state::State;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use wva_objects::signal::MetricsApi;
use wva_runtime::{Availability, SyncStatus};

use crate::collect::PrometheusSource;
use crate::collect::picker::Pickers;
use crate::collect::telemetry::Telemetry;
use crate::config::{ConfigMaps, ConfigReloads};
use crate::model::published::Published;
use crate::model::refusals::Refusals;
use crate::observe::variants::{self as observed, ManagedVariant, Ownership};
use crate::observe::watches::Watches;
use crate::observe::workloads;

pub use config::EngineConfig;
pub use progress::CycleProgress;
pub use steps::Actuation;

/// Changes of objects within this time cause one cycle.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// Changes of settings within this time cause one cycle.
const SETTINGS_DEBOUNCE: Duration = Duration::from_millis(250);
/// Until the next round while a step to zero waits for its second check: a short delay leaves less time for new
/// requests. At least [`RECHECK_FACTOR`] times the duration of the last round.
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
    /// Which variants this controller manages.
    pub ownership: Ownership,
}

/// Metrics of the engine.
pub struct EngineMetrics {
    /// Queries and cycles.
    pub telemetry: Telemetry,
    /// Reloads of ConfigMaps.
    pub reloads: ConfigReloads,
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
        let _run = self.progress.begin(self.config().period());
        let mut state = State::default();
        let mut schedule = Schedule::new(self);
        while let Some(event) = shutdown.run_until_cancelled(schedule.next(changed)).await {
            self.handle(event, &mut state, &mut schedule);
            schedule.signal_check_at = Self::next_signal_check(&state, tokio::time::Instant::now());
            self.start_queries(&mut state, &mut schedule);
        }
    }

    fn handle<'e>(&'e self, event: Event, state: &mut State, schedule: &mut Schedule<'e>) {
        match event {
            Event::RoundEnded(round) => {
                self.apply_round(state, round);
                let is_wanted =
                    std::mem::take(&mut schedule.cycle_after_round) || state.steps.has_steps_to_zero();
                if is_wanted && schedule.counts.is_none() {
                    self.run_cycle(state);
                } else {
                    self.scale_up_early(state);
                    state.sampling.has_new_samples = is_wanted;
                    schedule.cycle_after_counts |= is_wanted;
                }
                if schedule.cycle_after_counts {
                    schedule.request_cycle_within(COUNT_WAIT);
                }
            }
            Event::CountAnswered(Some(answer)) => state.sampling.add_count(*answer),
            Event::CountAnswered(None) => {
                state.sampling.end_counts();
                if std::mem::take(&mut schedule.cycle_after_counts) {
                    schedule.cycle_at = None;
                    self.run_cycle(state);
                }
            }
            Event::LatenciesAnswered(round) => state.sampling.latencies.add(round),
            Event::QueuesChanged => self.wake_models(state),
            Event::RoundDue => {
                schedule.is_round_hastened = false;
                schedule.round = self.due_round(state);
            }
            Event::CycleDue if self.is_sample_recent(state, Duration::ZERO) => self.run_cycle(state),
            Event::CycleDue => self.run_cycle_after_round(state, schedule),
            Event::SettingsChanged => {
                schedule.timers.set_periods(self.config());
                schedule.request_cycle_within(SETTINGS_DEBOUNCE);
            }
            Event::ConfigMapsChanged => schedule.request_cycle_within(SETTINGS_DEBOUNCE),
            Event::ObjectsChanged | Event::SignalCheckDue => schedule.request_cycle_within(DEBOUNCE),
            Event::RequestedCycleDue => {
                schedule.cycle_after_counts = false;
                if self.has_read_all(state) {
                    self.run_cycle(state);
                } else {
                    self.run_cycle_after_round(state, schedule);
                }
            }
        }
    }

    fn run_cycle_after_round<'e>(&'e self, state: &mut State, schedule: &mut Schedule<'e>) {
        schedule.cycle_after_round = true;
        schedule.round.get_or_insert_with(|| self.fetch(state));
    }

    /// Starts due counts and queries for latencies, and hastens the next round if a step to zero waits for its second check.
    fn start_queries<'e>(&'e self, state: &mut State, schedule: &mut Schedule<'e>) {
        if schedule.counts.is_none() && state.sampling.counts.is_due() {
            schedule.counts = Some(self.query_counts(state));
        }
        if schedule.latencies.is_none() {
            schedule.latencies = self.due_latencies(&mut state.sampling.latencies);
        }
        let needs_recheck = schedule.round.is_none() && self.needs_recheck(state);
        if needs_recheck && !std::mem::replace(&mut schedule.is_round_hastened, true) {
            schedule.timers.fetch.reset_after(RECHECK_DELAY.max(state.sampling.round_took * RECHECK_FACTOR));
        }
    }

    fn config(&self) -> EngineConfig {
        *self.config.borrow()
    }

    /// Managed variants. Those whose kind of workload has unknown availability are left out, and those whose namespace
    /// has ConfigMaps that are not read yet.
    fn managed(&self) -> Vec<ManagedVariant> {
        let mut managed = observed::managed_variants(&self.sources.watches, &self.sources.ownership);
        // Their status must stay unchanged, because it holds the target.
        managed.retain(|m| {
            m.spec().ok().and_then(|d| workloads::kind_availability(&self.sources.watches, &d.workload.kind))
                != Some(Availability::Unknown)
        });
        self.sources.maps.retain_read(&mut managed, |m| &m.key.namespace);
        managed
    }

    /// A step to zero waits for its second check.
    fn needs_recheck(&self, state: &State) -> bool {
        state.steps.has_recent_step_to_zero(self.config().fresh)
    }
}

#[cfg(test)]
mod tests;
