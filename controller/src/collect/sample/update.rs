//! Loads of pods from the answers of one round.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use wva_objects::servers::ServerKind;

use super::TimedValue;
use super::load::{EngineSleep, PodLoad};
use crate::collect::pod_model::PodModel;
use crate::collect::signals::Signal;

/// Assumed for a value of unknown age: the window of `max_over_time(..[1m])`.
pub(super) const WINDOW: Duration = Duration::from_mins(1);

/// Values of a round. Answers arrive in any order, so they are joined at the end.
#[derive(Default)]
pub(super) struct LoadUpdate {
    values: Vec<(Signal, PodModel, f64)>,
    /// What says more about these values.
    details: HashMap<(Signal, PodModel), f64>,
    servers: HashMap<PodModel, ServerKind>,
    /// Sums of all counters.
    progress: Vec<(PodModel, f64)>,
}

impl LoadUpdate {
    pub(super) fn add(&mut self, pods: Vec<(Signal, PodModel, f64)>, servers: Vec<(PodModel, ServerKind)>) {
        self.servers.extend(servers);
        for (signal, key, value) in pods {
            match signal {
                Signal::RunningPart | Signal::WaitingPart => {
                    *self.details.entry((signal, key)).or_default() += value;
                }
                Signal::Progress => self.progress.push((key, value)),
                signal if signal.is_detail() => {
                    self.details.insert((signal, key), value);
                }
                signal => self.values.push((signal, key, value)),
            }
        }
    }

    fn detail(&self, signal: Signal, key: &PodModel) -> Option<f64> {
        self.details.get(&(signal, key.clone())).copied()
    }

    /// A value of unknown age is as old as the previous one, because the series may have ended, but not older than its
    /// window.
    pub(super) fn apply(&self, now: Instant, loads: &mut BTreeMap<PodModel, PodLoad>) {
        let oldest = now.checked_sub(WINDOW).unwrap_or(now);
        for (signal, key, value) in &self.values {
            let reported = match signal.age() {
                Some(age) => self.detail(age, key),
                None => Some(0.0),
            };
            let reported = reported.and_then(|age| Duration::try_from_secs_f64(age.max(0.0)).ok());
            let load = loads.entry(key.clone()).or_default();
            if *signal == Signal::Running {
                load.server = self.servers.get(key).copied().unwrap_or_default();
                load.sleep = EngineSleep::of_awake_share(self.detail(Signal::Awake, key));
            }
            let part = signal.part().and_then(|part| self.detail(part, key)).unwrap_or_default();
            let Some(slot) = load.field_mut(*signal) else { continue };
            let at = match (reported, &slot) {
                (Some(age), _) => now.checked_sub(age).unwrap_or(now),
                (None, Some(before)) => before.at.max(oldest),
                (None, None) => oldest,
            };
            *slot = Some(TimedValue { value: value + part, at });
        }
        for (key, counters) in &self.progress {
            if let Some(load) = loads.get_mut(key) {
                load.add_progress(now, *counters);
            }
        }
    }
}
