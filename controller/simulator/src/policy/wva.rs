//! wva as it is deployed: samples every 30 s, `decide` every cycle and early if a sample shows growth, and an HPA that
//! follows the target.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;
use wva_crds::entries::DEFAULT_ENTRY;
use wva_scaling::control_loop::{DecidedMemory, Early, EarlyTrigger, InForce, Loop, decide_early};
use wva_scaling::snapshot::{Config, Inventory, Lateness, ModelSettings, SaturationEntry, ScaleToZeroEntry};
use wva_scaling::{Decision, ModelKey, Outcome, Snapshot, VariantKey, decide};

use super::activity::{Activity, Seconds};
use super::autoscaler::external_value;
use super::hpa::{Behavior, Hpa};
use super::snapshot::{MODEL, NAMESPACE, model};
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
    /// Settings of the one model.
    model: ModelSettings,
    settings: Settings,
    variants: Vec<ManagedVariant>,
    control_loop: Loop<Seconds>,
    /// First tokens and times between two, against the objectives that are stated.
    trackers: [Option<LatencyTracker>; 2],
    in_force: Option<Published>,
    activity: Activity,
    /// Snapshots of the decisions, if they are recorded.
    recorded: Option<Vec<Snapshot>>,
}

/// A variant, as a controller and its HPA know it.
struct ManagedVariant {
    key: VariantKey,
    accelerator: String,
    memory: DecidedMemory<Seconds>,
    hpa: Hpa,
}

impl ManagedVariant {
    fn new(variant: &Variant, behavior: &Behavior) -> Self {
        Self {
            key: VariantKey { namespace: NAMESPACE.to_owned(), name: variant.name.clone() },
            accelerator: variant.accelerator.clone(),
            memory: DecidedMemory::default(),
            hpa: Hpa::new(behavior.clone(), variant.min, variant.max),
        }
    }
}

/// The decisions in force, and their snapshot.
struct Published {
    snapshot: Snapshot,
    decisions: BTreeMap<VariantKey, Decision>,
}

impl Wva {
    /// The program for the variants of a fleet.
    #[must_use]
    pub fn new(settings: &Settings, variants: &[Variant]) -> Self {
        let config = Config {
            limited_mode: settings.limited_mode,
            decision_hold: settings.decision_hold,
            pending_grace: settings.pending_grace,
            ..Config::default()
        };
        let model = ModelSettings::merge(&[(DEFAULT_ENTRY, &settings.saturation)], [&settings.scale_to_zero]);
        let retention = model.scale_to_zero(config.scale_to_zero_default).retention;
        Self {
            config,
            model,
            settings: settings.clone(),
            variants: variants.iter().map(|v| ManagedVariant::new(v, &settings.behavior)).collect(),
            control_loop: Loop::default(),
            trackers: LatencyTracker::of(&settings.saturation),
            in_force: None,
            activity: Activity::new(retention.get().as_secs_f64()),
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

    /// The snapshot that the controller would assemble for a cycle.
    #[must_use]
    pub fn snapshot(&self, view: &FleetView<'_>) -> Snapshot {
        self.assemble(view, self.control_loop.begin(self.config.clone(), Seconds(view.now)))
    }

    fn assemble(&self, view: &FleetView<'_>, mut known: Snapshot) -> Snapshot {
        known.config.inventory = self.settings.limited_mode.then(|| self.inventory(view));
        let lateness = self.trackers.map(|tracker| tracker.map(|t| t.lateness));
        let memory = self.variants.iter().map(|v| &v.memory);
        let model = model(view, &self.model, memory, &self.settings.behavior, &self.activity, lateness);
        Snapshot { models: vec![model], ..known }
    }

    fn inventory(&self, view: &FleetView<'_>) -> BTreeMap<String, Inventory> {
        let known = |v: &ManagedVariant| {
            let GpuUsage { limit, in_use } = view.gpu_usage(&v.accelerator)?;
            Some((v.accelerator.clone(), Inventory { limit: limit.into(), used: in_use.into() }))
        };
        self.variants.iter().filter_map(known).collect()
    }

    fn cycle(&mut self, view: &FleetView<'_>) {
        let snapshot = self.snapshot(view);
        let mut decided = decide(&snapshot);
        let now = Seconds(view.now);
        self.control_loop.end(&mut decided.next, Some(now), now);
        self.in_force = None;
        self.publish(view, snapshot, decided);
    }

    /// Decides between two cycles, as the controller does. `false`: this takes a cycle.
    fn decide_early(&mut self, view: &FleetView<'_>, trigger: EarlyTrigger<'_>) -> bool {
        let Some(before) = &self.in_force else { return false };
        let newest = self.assemble(view, self.control_loop.begin_early(&before.snapshot, Seconds(view.now)));
        let decision = |key: &VariantKey| before.decisions.get(key);
        match decide_early(newest, InForce { snapshot: &before.snapshot, decision: &decision }, trigger) {
            Early::Nothing => {}
            Early::NeedsCycle => return false,
            Early::Decided(decided) => self.publish(view, decided.snapshot, decided.outcome),
        }
        true
    }

    fn publish(&mut self, view: &FleetView<'_>, snapshot: Snapshot, outcome: Outcome) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(Snapshot { now: Some(time(view.now)), ..snapshot.clone() });
        }
        let mut decisions = self.in_force.take().map(|before| before.decisions).unwrap_or_default();
        for decision in outcome.decisions {
            let key = decision.key.clone();
            let variant = self.variants.iter_mut().find(|v| v.key == key);
            if let Some((variant, state)) = variant.zip(outcome.next.variants.get(&key)) {
                variant.memory.record(&decision, *state, self.config.decision_hold.get(), Seconds(view.now));
            }
            decisions.insert(key, decision);
        }
        self.in_force = Some(Published { snapshot, decisions });
    }

    /// wva takes steps to and from 0; the HPA takes all others.
    fn act(&mut self, view: &FleetView<'_>, v: usize) -> u32 {
        let current = view.current(v);
        let variant = &mut self.variants[v];
        let Some(last) = variant.memory.last_target(current, Seconds(view.now)) else { return current };
        if current == 0 || last.target == 0 {
            return last.target.min(1);
        }
        let proposed = external_value(&variant.hpa, view.created(v), f64::from(last.target), 1.0);
        variant.hpa.sync(view.now, current, proposed)
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
        for (v, variant) in self.variants.iter_mut().enumerate() {
            variant.memory.observe(view.current(v), Seconds(view.now));
        }
        for tracker in self.trackers.iter_mut().flatten() {
            tracker.observe(view);
        }
        let waits = view.queue().is_some_and(|queue| queue.requests > 0);
        let waiting = BTreeSet::from_iter(waits.then(|| ModelKey::new(NAMESPACE, MODEL)));
        if is_due(view.now, self.settings.interval.get().as_secs_f64()) {
            self.cycle(view);
        } else {
            let grows = self.settings.early_scale_up
                && is_due(view.now, self.settings.fetch_interval.get().as_secs_f64());
            let trigger = EarlyTrigger { has_new_samples: grows, waiting: &waiting };
            let needs_cycle = (waits || grows) && !self.decide_early(view, trigger);
            // Growth alone waits for the next cycle.
            if needs_cycle && waits {
                self.cycle(view);
            }
        }
        (0..self.variants.len()).map(|v| self.act(view, v)).collect()
    }
}
