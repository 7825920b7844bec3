//! Which settings hold for a model: entries for its model and namespace over entries for its model, over the entry
//! `default`, over the built-in defaults, field by field. Admission and the engine merge with this code, so that both
//! see the same whole and the same broken rules between fields.

use std::fmt;

use super::{AnalyzerName, SaturationEntry, ScaleToZeroEntry, Throughput};

/// Key of the entry that is for every model.
pub const DEFAULT_ENTRY: &str = "default";

/// Settings of the saturation map, resolved for one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saturation {
    /// KV use at which a replica is saturated, 0..=1.
    pub kv_cache_threshold: f64,
    /// Waiting requests at which a replica is saturated.
    pub queue_length_threshold: f64,
    /// Mean spare KV below which the model grows, at most `kv_cache_threshold`.
    pub kv_spare_trigger: f64,
    /// Mean spare queue below which the model grows.
    pub queue_spare_trigger: f64,
    /// Limit the model to what the inventory has left.
    pub enable_limiter: bool,
    /// Which analyzer decides.
    pub analyzer: AnalyzerName,
    /// Which one's targets are shown beside them. `None`: none.
    pub shadow: Option<AnalyzerName>,
    /// Token analyzer: it grows where demand is above this share of the supply, (0, 1].
    pub scale_up_threshold: f64,
    /// Token analyzer: it shrinks to where demand is this share of the supply, (0, 1], below `scale_up_threshold`.
    pub scale_down_boundary: f64,
    /// Throughput analyzer: what it is held to.
    pub throughput: Throughput,
}

impl Default for Saturation {
    fn default() -> Self {
        Self {
            kv_cache_threshold: 0.80,
            queue_length_threshold: 5.0,
            kv_spare_trigger: 0.1,
            queue_spare_trigger: 3.0,
            enable_limiter: false,
            analyzer: AnalyzerName::Percentage,
            shadow: None,
            scale_up_threshold: 0.85,
            scale_down_boundary: 0.70,
            throughput: Throughput::default(),
        }
    }
}

impl Saturation {
    /// The settings that an entry asks for; what it leaves out has the built-in default. They may conflict.
    #[must_use]
    pub fn of(entry: &SaturationEntry) -> Self {
        Self::default().with(entry)
    }

    /// The settings that layers ask for together, the least specific first.
    #[must_use]
    pub fn of_layers(layers: &[(&str, &SaturationEntry)]) -> Self {
        layers.iter().fold(Self::default(), |settings, (_, entry)| settings.with(entry))
    }

    /// These settings with what a more specific entry says.
    fn with(self, entry: &SaturationEntry) -> Self {
        Self {
            kv_cache_threshold: entry.kv_cache_threshold.map_or(self.kv_cache_threshold, f64::from),
            queue_length_threshold: entry
                .queue_length_threshold
                .map_or(self.queue_length_threshold, f64::from),
            kv_spare_trigger: entry.kv_spare_trigger.map_or(self.kv_spare_trigger, f64::from),
            queue_spare_trigger: entry.queue_spare_trigger.map_or(self.queue_spare_trigger, f64::from),
            enable_limiter: entry.enable_limiter.unwrap_or(self.enable_limiter),
            analyzer: entry.analyzer_name.unwrap_or(self.analyzer),
            shadow: entry.shadow_analyzer.or(self.shadow),
            scale_up_threshold: entry.scale_up_threshold.map_or(self.scale_up_threshold, f64::from),
            scale_down_boundary: entry.scale_down_boundary.map_or(self.scale_down_boundary, f64::from),
            throughput: self.throughput.with(entry),
        }
    }

    /// Every rule between fields that is broken, in the order of the fields. What only another analyzer reads breaks none:
    /// it must not take away what the one that decides does read.
    #[must_use]
    pub fn conflicts(&self) -> Vec<Conflict> {
        let spare = Conflict {
            order: Order::AtMost,
            field: "kvSpareTrigger",
            value: self.kv_spare_trigger,
            other: "kvCacheThreshold",
            other_value: self.kv_cache_threshold,
        };
        let growth = Conflict {
            order: Order::Above,
            field: "scaleUpThreshold",
            value: self.scale_up_threshold,
            other: "scaleDownBoundary",
            other_value: self.scale_down_boundary,
        };
        let growth = Some(growth).filter(|_| self.analyzer == AnalyzerName::Tokens);
        [Some(spare), growth].into_iter().flatten().filter(|rule| !rule.holds()).collect()
    }
}

/// A rule between two fields that is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conflict {
    /// What should hold: `field` is in this order to `other`.
    pub order: Order,
    /// The field that the rule is about, as an entry spells it.
    pub field: &'static str,
    /// Its value after the merge.
    pub value: f64,
    /// The field it is compared with.
    pub other: &'static str,
    /// That field's value after the merge.
    pub other_value: f64,
}

/// How one field has to stand to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// At most the other.
    AtMost,
    /// Above the other.
    Above,
}

impl Conflict {
    fn holds(&self) -> bool {
        match self.order {
            Order::AtMost => self.value <= self.other_value,
            Order::Above => self.value > self.other_value,
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, field, value, other, other_value } = self;
        match order {
            Order::AtMost => write!(f, "{field} {value} is above {other} {other_value}"),
            Order::Above => write!(f, "{field} {value} is not above {other} {other_value}"),
        }
    }
}

/// A layer of settings that was left out because it made the whole invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct DroppedLayer {
    /// Key of the entry.
    pub key: String,
    /// What it broke.
    pub problem: Conflict,
}

impl fmt::Display for DroppedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the saturation entry {:?} is left out: {}", self.key, self.problem)
    }
}

/// Layers of saturation entries, merged.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// Field by field, what the layers say: the entry `explain` writes.
    pub entry: SaturationEntry,
    /// The same with the built-in defaults, valid as a whole.
    pub settings: Saturation,
    /// Layers that had to be left out.
    pub dropped: Vec<DroppedLayer>,
}

impl Merged {
    /// Every setting that holds, said in full: an entry that inherits nothing any more.
    #[must_use]
    pub fn resolved(&self) -> SaturationEntry {
        let settings = self.settings;
        // Each of them comes from an entry or is a default, so it is in its range.
        SaturationEntry {
            kv_cache_threshold: settings.kv_cache_threshold.try_into().ok(),
            queue_length_threshold: settings.queue_length_threshold.try_into().ok(),
            kv_spare_trigger: settings.kv_spare_trigger.try_into().ok(),
            queue_spare_trigger: settings.queue_spare_trigger.try_into().ok(),
            enable_limiter: Some(settings.enable_limiter),
            analyzer_name: Some(settings.analyzer),
            scale_up_threshold: settings.scale_up_threshold.try_into().ok(),
            scale_down_boundary: settings.scale_down_boundary.try_into().ok(),
            ..self.entry.clone()
        }
    }
}

/// Merges entries, the least specific first, each with the key it is named by; a field left out is inherited. While
/// the whole breaks a rule between fields, the most local layer that makes it so is left out. With no layer left the
/// defaults hold.
///
/// Admission refuses where [`Merged::dropped`] is not empty; [`Saturation::of_layers`] with [`Saturation::conflicts`] gives every
/// rule that the whole breaks.
#[must_use]
pub fn merge(layers: &[(&str, &SaturationEntry)]) -> Merged {
    let mut layers = layers.to_vec();
    let mut dropped = Vec::new();
    loop {
        let settings = Saturation::of_layers(&layers);
        let Some(problem) = settings.conflicts().into_iter().next() else {
            return Merged { entry: overlaid(&layers), settings, dropped };
        };
        // Without any layer the settings are valid, so some layer is the last one to turn them.
        let turns = |i: &usize| conflict(&layers[..*i]).is_none() && conflict(&layers[..=*i]).is_some();
        let Some(culprit) = (0..layers.len()).rev().find(turns) else {
            return Merged { entry: SaturationEntry::default(), settings: Saturation::default(), dropped };
        };
        let (key, _) = layers.remove(culprit);
        dropped.push(DroppedLayer { key: key.to_owned(), problem });
    }
}

/// What the layers say together, the least specific first, conflicts or not.
fn overlaid(layers: &[(&str, &SaturationEntry)]) -> SaturationEntry {
    layers.iter().fold(SaturationEntry::default(), |base, (_, entry)| entry.over(base))
}

fn conflict(layers: &[(&str, &SaturationEntry)]) -> Option<Conflict> {
    Saturation::of_layers(layers).conflicts().into_iter().next()
}

/// An entry that may be for one model.
pub trait Scoped {
    /// The model it names.
    fn model_id(&self) -> Option<&str>;
    /// The namespace it names.
    fn namespace(&self) -> Option<&str>;
    /// The rules between fields that it breaks over the built-in defaults.
    fn conflicts(&self) -> Vec<Conflict> {
        Vec::new()
    }
}

impl Scoped for SaturationEntry {
    fn model_id(&self) -> Option<&str> {
        self.model_id.as_deref()
    }

    fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    fn conflicts(&self) -> Vec<Conflict> {
        Saturation::of(self).conflicts()
    }
}

impl Scoped for ScaleToZeroEntry {
    fn model_id(&self) -> Option<&str> {
        self.model_id.as_deref()
    }

    fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::entries::{Amount, EntryIndex, Fraction, PositiveFraction};

    fn entry(kv: Option<f64>, trigger: Option<f64>) -> SaturationEntry {
        let fraction = |v: f64| Fraction::try_from(v).unwrap();
        SaturationEntry {
            kv_cache_threshold: kv.map(fraction),
            kv_spare_trigger: trigger.map(fraction),
            ..SaturationEntry::default()
        }
    }

    #[track_caller]
    fn check(layers: &[(Option<f64>, Option<f64>)], kv: f64, trigger: f64, dropped: &[&str]) {
        let entries: Vec<_> = layers.iter().map(|(kv, trigger)| entry(*kv, *trigger)).collect();
        let named: Vec<_> = ["0", "1", "2"].into_iter().zip(&entries).collect();
        let merged = merge(&named);
        let found = (merged.settings.kv_cache_threshold, merged.settings.kv_spare_trigger);
        assert_eq!(format!("{found:?}"), format!("{:?}", (kv, trigger)), "{layers:?}");
        assert_eq!(merged.dropped.iter().map(|d| d.key.as_str()).collect::<Vec<_>>(), dropped, "{layers:?}");
    }

    #[test]
    fn layers_inherit_and_the_most_local_fault_is_dropped() {
        check(&[], 0.8, 0.1, &[]);
        check(&[(Some(0.9), None), (None, Some(0.2))], 0.9, 0.2, &[]);
        check(&[(Some(0.9), None), (Some(0.05), None)], 0.9, 0.1, &["1"]);
        check(&[(Some(0.05), None)], 0.8, 0.1, &["0"]);
        // Only the merge counts: the second layer makes the first one right.
        check(&[(Some(0.05), None), (None, Some(0.01))], 0.05, 0.01, &[]);
        check(&[(None, Some(0.3)), (Some(0.2), None), (None, Some(0.25))], 0.8, 0.25, &["1"]);
    }

    #[test]
    fn every_broken_rule_is_named_with_both_values() {
        let share = |v: f64| Some(PositiveFraction::try_from(v).unwrap());
        let mut both = entry(Some(0.2), Some(0.3));
        both.scale_up_threshold = share(0.5);
        both.scale_down_boundary = share(0.5);
        assert_eq!(Saturation::of(&both).conflicts().len(), 1, "the percentage analyzer reads neither");
        both.analyzer_name = Some(AnalyzerName::Tokens);
        let conflicts = Saturation::of(&both).conflicts();
        let found: Vec<_> = conflicts.iter().map(|c| (c.field, c.other)).collect();
        assert_eq!(
            found,
            [("kvSpareTrigger", "kvCacheThreshold"), ("scaleUpThreshold", "scaleDownBoundary")]
        );
        let texts: Vec<_> = conflicts.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "kvSpareTrigger 0.3 is above kvCacheThreshold 0.2",
                "scaleUpThreshold 0.5 is not above scaleDownBoundary 0.5"
            ]
        );
        assert_eq!(
            merge(&[("x", &both)]).dropped,
            [DroppedLayer { key: "x".to_owned(), problem: conflicts[0] }]
        );
        assert!(Saturation::of(&entry(Some(0.3), Some(0.3))).conflicts().is_empty(), "equal is at most");
    }

    #[test]
    fn what_is_resolved_inherits_nothing_and_means_the_same() {
        let mut own = entry(None, Some(0.2));
        own.hold = Some("7m".parse().unwrap());
        let merged = merge(&[("0", &entry(Some(0.9), None)), ("1", &own)]);
        let resolved = merged.resolved();
        assert_eq!(Saturation::of(&resolved), merged.settings);
        assert_eq!(resolved.hold, own.hold, "what has no default here stays as the layers say");
        let over = resolved.over(entry(Some(0.1), Some(0.1)));
        assert_eq!(over, resolved, "nothing of another layer comes in");
        assert_eq!(Saturation::of(&merge(&[]).resolved()), Saturation::default());
    }

    #[test]
    fn the_most_specific_entry_wins() {
        let mut entries = BTreeMap::new();
        let mut put = |key: &str, model: Option<&str>, namespace: Option<&str>, queue: f64| {
            let entry = SaturationEntry {
                model_id: model.map(str::to_owned),
                namespace: namespace.map(str::to_owned),
                queue_length_threshold: Some(Amount::constant(queue)),
                ..SaturationEntry::default()
            };
            entries.insert(key.to_owned(), entry);
        };
        put("default", None, None, 7.0);
        put("a", Some("m"), Some("ns"), 9.0);
        put("b", Some("m"), None, 8.0);
        put("c", Some("m"), None, 6.0);
        let index = EntryIndex::new(&entries);
        let queue = |ns, m| merge(&index.layers(ns, m)).settings.queue_length_threshold.to_string();
        assert_eq!([queue("ns", "m"), queue("x", "m"), queue("ns", "x")], ["9", "8", "7"]);
    }
}
