//! Recorded cycles, decided again under other settings. Open loop: each cycle starts from its recorded state, so a
//! difference shows a target, not its effect on the fleet.

mod render;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use wva_crds::GoDuration;
use wva_scaling::snapshot::{
    Config, Entries, Inventory, MetricsAge, Model, Priority, QuotaLimit, SaturationEntry, ScaleToZeroEntry,
};
use wva_scaling::{Decision, Snapshot, SnapshotError, VariantKey, decide};

pub use render::ReplayReport;

/// Later differences are only counted.
pub const MAX_LISTED: usize = 1000;

/// Fields of a snapshot's `config` to replace, a map as a whole. Entries replace the settings of every model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Change {
    saturation: Option<BTreeMap<String, SaturationEntry>>,
    #[serde(alias = "scale_to_zero")]
    scale_to_zero: Option<BTreeMap<String, ScaleToZeroEntry>>,
    scale_to_zero_default: Option<bool>,
    limited_mode: Option<bool>,
    decision_hold: Option<GoDuration>,
    pending_grace: Option<GoDuration>,
    metrics_age: Option<MetricsAge>,
    inventory: Option<BTreeMap<String, Inventory>>,
    quotas: Option<Vec<QuotaLimit>>,
    quotas_forbidden: Option<bool>,
    priorities: Option<BTreeMap<String, Priority>>,
    namespace_priorities: Option<BTreeMap<String, BTreeMap<String, Priority>>>,
}

impl Change {
    /// Reads YAML or JSON.
    ///
    /// # Errors
    /// A snapshot with this `config` is invalid, or no field is set.
    pub fn read(text: &str) -> Result<Self, SnapshotError> {
        let field = |path: &str, problem: String| SnapshotError::Field { path: path.to_owned(), problem };
        let tree: Value = serde_saphyr::from_str(text).map_err(|e| field(".", e.to_string()))?;
        Snapshot::read(json!({ "config": tree }))?;
        let change = Self::deserialize(&tree).map_err(|e| field("config", e.to_string()))?;
        if change == Self::default() {
            let example = "saturation: {default: {kvSpareTrigger: 0.2}}";
            return Err(field(
                "config",
                format!("nothing is changed: name at least one field, as in `{example}`"),
            ));
        }
        Ok(change)
    }

    fn apply(&self, snapshot: &mut Snapshot) {
        self.apply_entries(&mut snapshot.models);
        // Every field is named, so that the compiler reports a new one.
        let Config {
            saturation: _,
            scale_to_zero: _,
            scale_to_zero_default,
            limited_mode,
            decision_hold,
            pending_grace,
            metrics_age,
            inventory,
            quotas,
            quotas_forbidden,
            priorities,
            namespace_priorities,
        } = &mut snapshot.config;
        set(scale_to_zero_default, self.scale_to_zero_default.as_ref());
        set(limited_mode, self.limited_mode.as_ref());
        set(decision_hold, self.decision_hold.as_ref());
        set(pending_grace, self.pending_grace.as_ref());
        set(metrics_age, self.metrics_age.as_ref());
        set(quotas, self.quotas.as_ref());
        set(quotas_forbidden, self.quotas_forbidden.as_ref());
        set(priorities, self.priorities.as_ref());
        set(namespace_priorities, self.namespace_priorities.as_ref());
        if self.inventory.is_some() {
            inventory.clone_from(&self.inventory);
        }
    }

    fn apply_entries(&self, models: &mut [Model]) {
        let (saturation, scale_to_zero) = (BTreeMap::new(), BTreeMap::new());
        let saturation = self.saturation.as_ref().unwrap_or(&saturation);
        let entries = Entries::new(saturation, self.scale_to_zero.as_ref().unwrap_or(&scale_to_zero));
        for model in models {
            if self.saturation.is_some() {
                model.settings.saturation = SaturationEntry::default();
            }
            if self.scale_to_zero.is_some() {
                model.settings.scale_to_zero = ScaleToZeroEntry::default();
            }
            model.settings = entries.resolve(&model.namespace, &model.model_id, &model.settings);
        }
    }
}

fn set<T: Clone>(place: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        place.clone_from(value);
    }
}

/// A target and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedTarget {
    /// Replicas.
    pub target: u32,
    /// Code of the reason.
    pub code: &'static str,
    /// Reason as a sentence.
    pub why: String,
}

impl ReplayedTarget {
    fn from_decision(decision: &Decision) -> Self {
        let reason = decision.reason();
        Self { target: decision.target(), code: reason.code(), why: reason.to_string() }
    }
}

/// Consecutive cycles in which the target of a variant differs for the same reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The variant.
    pub variant: VariantKey,
    /// Recorded time of the first cycle.
    pub from: Option<String>,
    /// Recorded time of the last cycle.
    pub to: Option<String>,
    /// Number of cycles.
    pub cycles: u32,
    /// Replicas in the first cycle.
    pub current: u32,
    /// Target under the recorded settings in the first cycle.
    pub recorded: ReplayedTarget,
    /// Target under the changed settings in the first cycle.
    pub changed: ReplayedTarget,
}

/// Sums of one variant over its cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Cycles with this variant.
    pub cycles: u32,
    /// Cycles in which the targets differ.
    pub different: u32,
    /// Sum of the targets under the recorded settings.
    pub recorded: f64,
    /// Sum of the targets under the changed settings.
    pub changed: f64,
    /// Sum of the costs of the targets under the recorded settings.
    pub recorded_cost: f64,
    /// Sum of the costs of the targets under the changed settings.
    pub changed_cost: f64,
}

/// First and last time of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// Time of the first cycle.
    pub first: String,
    /// Time of the last cycle.
    pub last: String,
}

/// Results of the cycles so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// Cycles decided again.
    pub cycles: u32,
    /// First and last time of the cycles, if recorded.
    pub span: Option<TimeRange>,
    /// Sums of each variant.
    pub variants: BTreeMap<VariantKey, Tally>,
    /// Differences in order of their first cycle; at most [`MAX_LISTED`].
    pub differences: Vec<Difference>,
    /// Differing decisions that are not listed.
    pub not_shown: u64,
    /// Index in `differences` and cycle of the last difference.
    last: BTreeMap<VariantKey, (usize, u32)>,
}

impl Replay {
    /// Decides a cycle with the recorded and with the changed settings.
    pub fn add_cycle(&mut self, mut snapshot: Snapshot, change: &Change) {
        self.cycles += 1;
        if let Some(now) = &snapshot.now {
            let span = self.span.get_or_insert_with(|| TimeRange { first: now.clone(), last: String::new() });
            span.last.clone_from(now);
        }
        let costs = costs(&snapshot);
        let recorded = decide(&snapshot);
        change.apply(&mut snapshot);
        let changed = decide(&snapshot);
        // Both have one decision for each variant, in the same order.
        for (old, new) in recorded.decisions.iter().zip(&changed.decisions) {
            let key = old.key.clone();
            let cost = costs.get(&key).copied().unwrap_or_default();
            self.variants.entry(key.clone()).or_default().add(old.target(), new.target(), cost);
            if old.target() != new.target() {
                self.record_difference(key, snapshot.now.as_deref(), old, new);
            }
        }
    }

    fn record_difference(&mut self, key: VariantKey, now: Option<&str>, old: &Decision, new: &Decision) {
        let (recorded, changed) = (ReplayedTarget::from_decision(old), ReplayedTarget::from_decision(new));
        let before = self.last.get(&key).filter(|(_, cycle)| cycle + 1 == self.cycles);
        if let Some(&(index, _)) = before
            && let Some(difference) = self.differences.get_mut(index)
            && is_same_outcome(&difference.recorded, &recorded)
            && is_same_outcome(&difference.changed, &changed)
        {
            difference.cycles += 1;
            difference.to = now.map(str::to_owned);
            self.last.insert(key, (index, self.cycles));
            return;
        }
        if self.differences.len() == MAX_LISTED {
            self.not_shown += 1;
            return;
        }
        self.last.insert(key.clone(), (self.differences.len(), self.cycles));
        let time = || now.map(str::to_owned);
        self.differences.push(Difference {
            variant: key,
            from: time(),
            to: time(),
            cycles: 1,
            current: old.current,
            recorded,
            changed,
        });
    }
}

/// The figures in the sentence may differ.
fn is_same_outcome(a: &ReplayedTarget, b: &ReplayedTarget) -> bool {
    a.target == b.target && a.code == b.code
}

fn costs(snapshot: &Snapshot) -> BTreeMap<VariantKey, f64> {
    let models = snapshot.models.iter();
    let each = models.flat_map(|model| {
        model.variants.iter().map(|variant| {
            let key = VariantKey { namespace: model.namespace.clone(), name: variant.name.clone() };
            (key, variant.cost.get())
        })
    });
    each.collect()
}

impl Tally {
    fn add(&mut self, recorded: u32, changed: u32, cost: f64) {
        self.cycles += 1;
        self.different += u32::from(recorded != changed);
        self.recorded += f64::from(recorded);
        self.changed += f64::from(changed);
        self.recorded_cost += f64::from(recorded) * cost;
        self.changed_cost += f64::from(changed) * cost;
    }
}
