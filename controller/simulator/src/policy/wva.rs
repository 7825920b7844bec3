//! wva as it is deployed: samples every 30 s, `decide` every cycle and early if a sample shows growth, and an HPA that
//! follows the target.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;
use wva_crds::entries::ScaleToZero;
use wva_scaling::snapshot::{
    ComputeBounds, Config, Inventory, Lateness, SaturationEntry, ScaleToZeroEntry, ThroughputMemory,
};
use wva_scaling::{Decision, Outcome, Snapshot, VariantKey, VariantState, decide};

use super::activity::Activity;
use super::autoscaler::external_value;
use super::hpa::{Behavior, Hpa};
use super::snapshot::{Desired, Memory, NAMESPACE, model};
use super::{FleetView, Policy, is_due};
use crate::fleet::GpuUsage;
use crate::fleet::latency::LateCounts;
use crate::fleet::variant::Variant;

/// Settings of wva and of its HPA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// The entry `default` of the saturation map.
    pub saturation: SaturationEntry,
    /// The entry `default` of the scale-to-zero map.
    pub scale_to_zero: ScaleToZeroEntry,
    /// `GLOBAL_OPT_INTERVAL`.
    pub interval: GoDuration,
    /// `PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL`.
    pub fetch_interval: GoDuration,
    /// `WVA_EARLY_SCALE_UP`.
    pub early_scale_up: bool,
    /// `WVA_LIMITED_MODE`.
    pub limited_mode: bool,
    /// `WVA_DECISION_HOLD`.
    pub decision_hold: GoDuration,
    /// `WVA_PENDING_GRACE`.
    pub pending_grace: GoDuration,
    /// The HPA that reads the target.
    pub behavior: Behavior,
}

impl Default for Settings {
    fn default() -> Self {
        let Config { decision_hold, pending_grace, .. } = Config::default();
        Self {
            saturation: SaturationEntry::default(),
            scale_to_zero: ScaleToZeroEntry::default(),
            interval: GoDuration::from_secs(60),
            fetch_interval: GoDuration::from_secs(30),
            early_scale_up: true,
            limited_mode: false,
            decision_hold,
            pending_grace,
            behavior: Behavior::wva_default(),
        }
    }
}

/// State of wva.
pub struct Wva {
    config: Config,
    settings: Settings,
    accelerators: Vec<String>,
    keys: Vec<VariantKey>,
    states: Vec<Option<(VariantState, f64)>>,
    woken: Vec<Option<f64>>,
    remembered: Vec<ComputeBounds>,
    /// State learnt by the throughput analyzer.
    learned: Vec<ThroughputMemory>,
    /// Seconds.
    learned_at: f64,
    /// First tokens and times between two, against the objectives that are stated.
    trackers: [Option<LatencyTracker>; 2],
    last: Vec<Option<Decision>>,
    hpas: Vec<Hpa>,
    activity: Activity,
    /// Snapshots of the cycles, if they are recorded.
    recorded: Option<Vec<Snapshot>>,
}

impl Wva {
    /// The program for the variants of a fleet.
    #[must_use]
    pub fn new(settings: &Settings, variants: &[Variant]) -> Self {
        let config = Config {
            saturation: BTreeMap::from([("default".to_owned(), settings.saturation.clone())]),
            scale_to_zero: BTreeMap::from([("default".to_owned(), settings.scale_to_zero.clone())]),
            limited_mode: settings.limited_mode,
            decision_hold: settings.decision_hold,
            pending_grace: settings.pending_grace,
            ..Config::default()
        };
        let retention = ScaleToZero::with_default(false).with(&settings.scale_to_zero).retention;
        let key = |v: &Variant| VariantKey { namespace: NAMESPACE.to_owned(), name: v.name.clone() };
        Self {
            config,
            settings: settings.clone(),
            accelerators: variants.iter().map(|v| v.accelerator.clone()).collect(),
            keys: variants.iter().map(key).collect(),
            states: vec![None; variants.len()],
            woken: vec![None; variants.len()],
            remembered: Vec::new(),
            learned: Vec::new(),
            learned_at: 0.0,
            trackers: LatencyTracker::of(&settings.saturation),
            last: vec![None; variants.len()],
            hpas: variants.iter().map(|v| Hpa::new(settings.behavior.clone(), v.min, v.max)).collect(),
            activity: Activity::new(retention.get().as_secs_f64(), variants.len()),
            recorded: None,
        }
    }

    /// The same program, which keeps the snapshot of each cycle, as `wva explain --record` does.
    #[must_use]
    pub fn with_recording(self) -> Self {
        Self { recorded: Some(Vec::new()), ..self }
    }

    /// Snapshots of the cycles so far; empty unless they are recorded.
    pub fn recorded(&self) -> impl Iterator<Item = &Snapshot> {
        self.recorded.iter().flatten()
    }

    /// The snapshot that the controller would assemble.
    #[must_use]
    pub fn snapshot(&self, view: &FleetView<'_>) -> Snapshot {
        let memory = (0..self.keys.len()).map(|v| self.memory(view, v)).collect::<Vec<_>>();
        let mut config = self.config.clone();
        config.inventory = self.settings.limited_mode.then(|| self.inventory(view));
        let lateness = self.trackers.map(|tracker| tracker.map(|t| t.lateness));
        let model = model(view, &memory, &self.settings.behavior, &self.activity, lateness);
        let elapsed = Duration::from_secs_f64((view.now - self.learned_at).max(0.0));
        let learned = self.learned.iter().map(|l| l.clone().aged_by(elapsed)).collect();
        Snapshot { now: None, config, remembered: self.remembered.clone(), learned, models: vec![model] }
    }

    fn memory(&self, view: &FleetView<'_>, v: usize) -> Memory {
        let desired = self.states[v].map(|(state, at)| {
            let elapsed = Duration::from_secs_f64((view.now - at).max(0.0));
            let age = state.desired_age_after(elapsed, view.current(v));
            Desired { target: state.desired, before: state.before, age }
        });
        let capacity = self.states[v].and_then(|(state, _)| state.capacity);
        let current_for = self.activity.current_for(v, view.now);
        Memory { desired, capacity, woken: self.woken[v], current_for }
    }

    fn inventory(&self, view: &FleetView<'_>) -> BTreeMap<String, Inventory> {
        let known = |a: &String| {
            let GpuUsage { limit, in_use } = view.gpu_usage(a)?;
            Some((a.clone(), Inventory { limit: limit.into(), used: in_use.into() }))
        };
        self.accelerators.iter().filter_map(known).collect()
    }

    /// Applies all decisions in a cycle; early, only if a model begins to need more.
    fn cycle(&mut self, view: &FleetView<'_>, early: bool) {
        let snapshot = self.snapshot(view);
        let decided = decide(&snapshot);
        if early && !self.begins_to_grow(&decided) {
            return;
        }
        if let Some(recorded) = &mut self.recorded {
            recorded.push(Snapshot { now: Some(time(view.now)), ..snapshot });
        }
        for (v, key) in self.keys.iter().enumerate() {
            if let Some(state) = decided.next.variants.get(key) {
                self.states[v] = Some((*state, view.now));
                if view.current(v) == 0 && state.desired > 0 {
                    self.woken[v] = Some(view.now);
                }
            }
            self.last[v] = decided.decisions.iter().find(|d| d.key() == *key).cloned();
        }
        // Only a full cycle stores its observations.
        if !early {
            self.remembered = decided.next.remembered;
            self.learned = decided.next.learned;
            self.learned_at = view.now;
        }
    }

    fn begins_to_grow(&self, decided: &Outcome) -> bool {
        let before =
            |d: &Decision| self.keys.iter().position(|k| *k == d.key()).and_then(|v| self.last[v].as_ref());
        let needs_more = |d: &Decision| d.grows() && before(d).is_some_and(|b| d.target() > b.target());
        let went_up = self.last.iter().flatten().any(Decision::is_growing);
        !went_up && decided.decisions.iter().any(needs_more)
    }

    /// wva takes steps to and from 0; the HPA takes all others.
    fn act(&mut self, view: &FleetView<'_>, v: usize) -> u32 {
        let current = view.current(v);
        let Some((state, _)) = self.states[v] else { return current };
        if current == 0 || state.desired == 0 {
            return state.desired.min(1);
        }
        let hpa = &mut self.hpas[v];
        let proposed = external_value(hpa, view.created(v), f64::from(state.desired), 1.0);
        hpa.sync(view.now, current, proposed)
    }
}

/// Time of a run as a timestamp.
fn time(now: f64) -> String {
    let start = Timestamp::UNIX_EPOCH;
    let time = Duration::try_from_secs_f64(now).ok().and_then(|elapsed| start.checked_add(elapsed).ok());
    time.unwrap_or(start).to_string()
}

/// Latencies between two cycles.
#[derive(Clone, Copy)]
struct LatencyTracker {
    /// Seconds.
    objective: f64,
    /// Times between two tokens, else first tokens.
    is_of_gaps: bool,
    counted: LateCounts,
    at: f64,
    lateness: Lateness,
}

impl LatencyTracker {
    fn of(entry: &SaturationEntry) -> [Option<Self>; 2] {
        let (counted, lateness) = (LateCounts::default(), Lateness::default());
        let tracker = |slo, is_of_gaps| {
            let objective = f64::from(slo) / 1000.0;
            Self { objective, is_of_gaps, counted, at: 0.0, lateness }
        };
        [entry.ttft_slo.map(|slo| tracker(slo, false)), entry.itl_slo.map(|slo| tracker(slo, true))]
    }

    fn observe(&mut self, view: &FleetView<'_>) {
        let objective = self.objective;
        let now = if self.is_of_gaps { view.gaps(objective) } else { view.first_tokens(objective) };
        let elapsed = Duration::from_secs_f64((view.now - self.at).max(0.0));
        let (requests, late) = (now.all - self.counted.all, now.late - self.counted.late);
        self.lateness = self.lateness.after(elapsed, requests, late);
        (self.counted, self.at) = (now, view.now);
    }
}

impl Policy for Wva {
    fn decide(&mut self, view: &FleetView<'_>) -> Vec<u32> {
        self.activity.observe(view);
        for tracker in self.trackers.iter_mut().flatten() {
            tracker.observe(view);
        }
        let waits = view.queue().is_some_and(|queue| queue.requests > 0);
        let at_zero = (0..self.keys.len()).all(|v| view.current(v) == 0);
        if is_due(view.now, self.settings.interval.get().as_secs_f64()) || (at_zero && waits) {
            self.cycle(view, false);
        } else if self.settings.early_scale_up
            && is_due(view.now, self.settings.fetch_interval.get().as_secs_f64())
        {
            self.cycle(view, true);
        }
        (0..self.keys.len()).map(|v| self.act(view, v)).collect()
    }
}
