//! The engine cycle: samples into a Snapshot, the Snapshot into decisions, decisions into what is published. One task
//! owns samples, memory and publication; everything else reads.

mod config;
mod early;
mod learned;
mod logs;
mod pass;
mod progress;
mod sampling;
mod schedule;
mod state;
mod steps;
mod ticks;
mod variants;
mod waking;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use schedule::{Event, Schedule};
use state::State;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use windows::COUNT_PATIENCE;
use wva_runtime::{Availability, SyncStatus};

use crate::collect::picker::Pickers;
use crate::collect::prometheus::Prometheus;
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

/// Decides, cycle by cycle.
pub struct Engine {
    /// What it decides from.
    pub sources: Sources,
    /// How often it does what, as it is now.
    pub config: watch::Receiver<EngineConfig>,
    /// Its own metrics.
    pub metrics: EngineMetrics,
    /// When the last cycle ended.
    pub progress: CycleProgress,
    /// Where the result of each cycle goes; this is its only writer.
    pub published: watch::Sender<Option<Arc<Published>>>,
}

/// What the engine decides from.
pub struct Sources {
    /// Watch caches.
    pub watches: Watches,
    /// Whether they are complete.
    pub synced: SyncStatus,
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
}

/// What the engine counts of itself.
pub struct EngineMetrics {
    /// Queries and cycles.
    pub telemetry: Telemetry,
    /// Reloads of ConfigMaps.
    pub reloads: ConfigReloads,
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
            synced = self.sources.synced.wait() => synced.map_err(|which| format!("the watch of {which} ended"))?,
        }
        tracing::info!("All watch caches are complete");
        // What is decided without the bounds of ScaledObjects, or without the GPUs there are, would be wrong for a cycle.
        if shutdown.run_until_cancelled(self.sources.watches.wait_for_discovery()).await.is_none() {
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
        let mut schedule = Schedule::new(self);
        while let Some(event) = shutdown.run_until_cancelled(schedule.next(changed)).await {
            self.handle(event, &mut state, &mut schedule);
            self.prepare(&mut state, &mut schedule);
        }
    }

    fn handle<'e>(&'e self, event: Event, state: &mut State, schedule: &mut Schedule<'e>) {
        match event {
            Event::Fetched(fetched) => {
                self.take_in(state, fetched);
                let is_wanted = std::mem::take(&mut schedule.after_round) || state.steps.wait();
                if is_wanted && schedule.counts.is_none() {
                    self.cycle(state);
                } else {
                    self.early(state);
                    state.sampling.has_news = is_wanted;
                    schedule.after_counts |= is_wanted;
                }
                if schedule.after_counts {
                    schedule.cycle_within(COUNT_PATIENCE);
                }
            }
            Event::Counted(Some(counted)) => state.sampling.take_count(counted),
            Event::Counted(None) => {
                state.sampling.end_count();
                if std::mem::take(&mut schedule.after_counts) {
                    schedule.cycle_at = None;
                    self.cycle(state);
                }
            }
            Event::RequestsWait => self.wake(state),
            Event::RoundDue => {
                schedule.hastened = false;
                schedule.round = self.round(state);
            }
            Event::CycleDue if self.is_young(state, Duration::ZERO) => self.cycle(state),
            Event::CycleDue => {
                schedule.after_round = true;
                schedule.round.get_or_insert_with(|| self.fetch(state));
            }
            Event::SettingsChanged => {
                schedule.timers.change(self.config());
                schedule.cycle_within(SETTLE);
            }
            Event::ConfigMapsChanged => schedule.cycle_within(SETTLE),
            Event::ObjectsChanged => schedule.cycle_within(DEBOUNCE),
            Event::RequestedCycleDue => {
                schedule.after_counts = false;
                if state.sampling.last_round.is_some() {
                    self.cycle(state);
                } else {
                    schedule.after_round = true;
                }
            }
        }
    }

    /// Asks for the counts that are due, and sooner for samples where a step to zero waits for its second look.
    fn prepare<'e>(&'e self, state: &mut State, schedule: &mut Schedule<'e>) {
        if schedule.counts.is_none() && state.sampling.counts.is_due() {
            schedule.counts = Some(self.count(state));
        }
        let looks_again = schedule.round.is_none() && self.looks_again(state);
        if looks_again && !std::mem::replace(&mut schedule.hastened, true) {
            schedule.timers.fetch.after(LOOK_AGAIN.max(state.sampling.round_took * PAUSE));
        }
    }

    /// How often the engine does what, at this moment.
    fn config(&self) -> EngineConfig {
        *self.config.borrow()
    }

    /// All that is managed, and of which one can know whether its workload is there.
    fn managed(&self) -> Vec<ManagedVariant> {
        let mut managed = observed::managed_variants(&self.sources.watches, &self.sources.ownership);
        // Nothing is said of a workload while nobody knows whether it is there: its status is the memory of its target.
        managed.retain(|m| {
            m.spec().ok().and_then(|d| workloads::kind_availability(&self.sources.watches, &d.workload.kind))
                != Some(Availability::Unknown)
        });
        managed
    }

    /// Whether a step to zero is to have its second look soon.
    fn looks_again(&self, state: &State) -> bool {
        state.steps.are_urgent(self.config().fresh)
    }
}

#[cfg(test)]
mod tests;
