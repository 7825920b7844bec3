//! Merges the settings of a model field by field. An entry for model and namespace overrides an entry for the model, then
//! the entry `default`, then the built-in defaults. Admission and engine share this code.

use std::fmt;

use super::{AnalyzerName, SaturationEntry, ScaleToZeroEntry, Throughput};

/// Key of the entry for all models.
pub const DEFAULT_ENTRY: &str = "default";

/// Settings of the saturation map, resolved for one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saturation {
    /// KV cache use at which a replica is saturated, 0 to 1.
    pub kv_cache_threshold: f64,
    /// Waiting requests at which a replica is saturated.
    pub queue_length_threshold: f64,
    /// Mean spare KV cache below which the model scales up, 0 to `kv_cache_threshold`.
    pub kv_spare_trigger: f64,
    /// Mean spare queue, in requests, below which the model scales up.
    pub queue_spare_trigger: f64,
    /// Whether to limit the model to the free GPUs of the inventory.
    pub enable_limiter: bool,
    /// Analyzer that decides.
    pub analyzer: AnalyzerName,
    /// Analyzer whose targets are shown in addition, if any.
    pub shadow: Option<AnalyzerName>,
    /// Token analyzer: share of the supply above which the model scales up, (0, 1].
    pub scale_up_threshold: f64,
    /// Token analyzer: share of the supply to which the model scales down, (0, 1], below `scale_up_threshold`.
    pub scale_down_boundary: f64,
    /// Settings of the throughput analyzer.
    pub throughput: Throughput,
}

impl Default for Saturation {
    fn default() -> Self {
        Self::from_entry(&SaturationEntry::default())
    }
}

impl Saturation {
    /// Settings of one entry over the built-in defaults. They may conflict.
    #[must_use]
    pub fn from_entry(entry: &SaturationEntry) -> Self {
        Self {
            kv_cache_threshold: entry.kv_cache_threshold.map_or(0.80, f64::from),
            queue_length_threshold: entry.queue_length_threshold.map_or(5.0, f64::from),
            kv_spare_trigger: entry.kv_spare_trigger.map_or(0.1, f64::from),
            queue_spare_trigger: entry.queue_spare_trigger.map_or(3.0, f64::from),
            enable_limiter: entry.enable_limiter.unwrap_or(false),
            analyzer: entry.analyzer_name.unwrap_or(AnalyzerName::Percentage),
            shadow: entry.shadow_analyzer,
            scale_up_threshold: entry.scale_up_threshold.map_or(0.85, f64::from),
            scale_down_boundary: entry.scale_down_boundary.map_or(0.70, f64::from),
            throughput: Throughput::from_entry(entry),
        }
    }

    /// Settings of several layers, the least specific first. They may conflict.
    #[must_use]
    pub fn from_layers(layers: &[(&str, &SaturationEntry)]) -> Self {
        Self::from_entry(&overlay(layers))
    }

    /// The violated rules between fields, in the order of the fields. Fields that only an unused analyzer reads are not
    /// checked.
    #[must_use]
    pub fn conflicts(&self) -> Vec<Conflict> {
        let spare = Conflict {
            order: Order::AtMost,
            field: "kvSpareTrigger",
            value: self.kv_spare_trigger,
            other: "kvCacheThreshold",
            other_value: self.kv_cache_threshold,
        };
        let boundaries = Conflict {
            order: Order::Above,
            field: "scaleUpThreshold",
            value: self.scale_up_threshold,
            other: "scaleDownBoundary",
            other_value: self.scale_down_boundary,
        };
        let boundaries = Some(boundaries).filter(|_| self.analyzer == AnalyzerName::Token);
        [Some(spare), boundaries].into_iter().flatten().filter(|rule| !rule.holds()).collect()
    }
}

/// A violated rule between two fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conflict {
    /// Required order of `field` and `other`.
    pub order: Order,
    /// Field in the spelling of entries.
    pub field: &'static str,
    /// Merged value of `field`.
    pub value: f64,
    /// Field that it is compared with.
    pub other: &'static str,
    /// Merged value of `other`.
    pub other_value: f64,
}

/// Required order of two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The value must be at most the other one.
    AtMost,
    /// The value must be above the other one.
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

/// A layer that was ignored because the merged settings violate a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct DroppedLayer {
    /// Key of the entry.
    pub key: String,
    /// The violated rule.
    pub problem: Conflict,
}

impl fmt::Display for DroppedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "saturation entry {:?} ignored: {}", self.key, self.problem)
    }
}

/// Merged saturation entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedSettings {
    /// Merged fields without defaults, and without the names of a model.
    pub entry: SaturationEntry,
    /// Merged fields with the built-in defaults; without conflicts.
    pub settings: Saturation,
    /// Ignored layers.
    pub dropped: Vec<DroppedLayer>,
}

impl MergedSettings {
    /// The merged settings as an entry with every field, which inherits nothing.
    #[must_use]
    pub fn to_full_entry(&self) -> SaturationEntry {
        let settings = self.settings;
        // Each value comes from an entry or is a default, so it is in its range.
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

/// Merges entries with their keys, the least specific first. While the result violates a rule between fields, the most
/// specific layer that causes it is ignored. Without any layer, the defaults apply.
///
/// [`Saturation::conflicts`] of [`Saturation::from_layers`] finds all violated rules.
#[must_use]
pub fn merge(layers: &[(&str, &SaturationEntry)]) -> MergedSettings {
    let mut layers = layers.to_vec();
    let mut dropped = Vec::new();
    loop {
        let entry = overlay(&layers);
        let settings = Saturation::from_entry(&entry);
        let Some(problem) = settings.conflicts().into_iter().next() else {
            return MergedSettings { entry, settings, dropped };
        };
        // The defaults have no conflict, so at least one layer introduces it.
        let introduces =
            |i: &usize| first_conflict(&layers[..*i]).is_none() && first_conflict(&layers[..=*i]).is_some();
        let Some(culprit) = (0..layers.len()).rev().find(introduces) else {
            return MergedSettings { dropped, ..MergedSettings::default() };
        };
        let (key, _) = layers.remove(culprit);
        dropped.push(DroppedLayer { key: key.to_owned(), problem });
    }
}

/// Merges the fields of the layers, the least specific first, without a check for conflicts.
fn overlay(layers: &[(&str, &SaturationEntry)]) -> SaturationEntry {
    let entry = layers.iter().fold(SaturationEntry::default(), |base, (_, entry)| entry.layered_over(base));
    SaturationEntry { model_id: None, namespace: None, ..entry }
}

fn first_conflict(layers: &[(&str, &SaturationEntry)]) -> Option<Conflict> {
    Saturation::from_layers(layers).conflicts().into_iter().next()
}

/// An entry that can be limited to one model and namespace.
pub trait Scoped {
    /// Model of the entry, if it names one.
    fn model_id(&self) -> Option<&str> {
        None
    }
    /// Namespace of the entry, if it names one.
    fn namespace(&self) -> Option<&str> {
        None
    }
    /// Rules between fields that it violates over the built-in defaults.
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
        Saturation::from_entry(self).conflicts()
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
    fn ignores_the_most_specific_conflicting_layer() {
        check(&[], 0.8, 0.1, &[]);
        check(&[(Some(0.9), None), (None, Some(0.2))], 0.9, 0.2, &[]);
        check(&[(Some(0.9), None), (Some(0.05), None)], 0.9, 0.1, &["1"]);
        check(&[(Some(0.05), None)], 0.8, 0.1, &["0"]);
        // Only the merged result counts: the second layer resolves the conflict of the first.
        check(&[(Some(0.05), None), (None, Some(0.01))], 0.05, 0.01, &[]);
        check(&[(None, Some(0.3)), (Some(0.2), None), (None, Some(0.25))], 0.8, 0.25, &["1"]);
    }

    #[test]
    fn conflicts_name_both_fields_and_values() {
        let share = |v: f64| Some(PositiveFraction::try_from(v).unwrap());
        let mut both = entry(Some(0.2), Some(0.3));
        both.scale_up_threshold = share(0.5);
        both.scale_down_boundary = share(0.5);
        assert_eq!(
            Saturation::from_entry(&both).conflicts().len(),
            1,
            "the percentage analyzer reads neither boundary"
        );
        both.analyzer_name = Some(AnalyzerName::Token);
        let conflicts = Saturation::from_entry(&both).conflicts();
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
        assert!(
            Saturation::from_entry(&entry(Some(0.3), Some(0.3))).conflicts().is_empty(),
            "equal is at most"
        );
    }

    #[test]
    fn full_entry_inherits_nothing_and_means_the_same() {
        let mut own = entry(None, Some(0.2));
        own.hold = Some("7m".parse().unwrap());
        let merged = merge(&[("0", &entry(Some(0.9), None)), ("1", &own)]);
        let full = merged.to_full_entry();
        assert_eq!(Saturation::from_entry(&full), merged.settings);
        assert_eq!(full.hold, own.hold, "fields without a default stay unchanged");
        let over = full.layered_over(entry(Some(0.1), Some(0.1)));
        assert_eq!(over, full, "nothing is inherited");
        assert_eq!(Saturation::from_entry(&merge(&[]).to_full_entry()), Saturation::default());
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
