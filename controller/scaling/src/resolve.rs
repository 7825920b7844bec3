//! Which settings hold for a model: overrides for its model and namespace, then overrides for its model in every
//! namespace, then the entry `default`, then the built-in defaults, field by field. A layer that makes the whole
//! invalid is dropped, and named.

use std::collections::BTreeMap;
use std::fmt;

use wva_crds::GoDuration;

use crate::snapshot::{AnalyzerName, Config, SaturationEntry};

/// Settings of the saturation map, resolved for one model. All are valid together.
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
    /// Token analyzer: it grows where demand is above this share of the supply, (0, 1].
    pub scale_up_threshold: f64,
    /// Token analyzer: it shrinks to where demand is this share of the supply, (0, 1], below `scale_up_threshold`.
    pub scale_down_boundary: f64,
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
            scale_up_threshold: 0.85,
            scale_down_boundary: 0.70,
        }
    }
}

/// A layer of settings that was left out because it made the whole invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedLayer {
    /// Key of the entry.
    pub key: String,
    /// What it broke.
    pub problem: String,
}

impl fmt::Display for DroppedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the saturation entry {:?} is left out: {}", self.key, self.problem)
    }
}

/// Whether a model may go to 0, and after how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleToZero {
    /// It may.
    pub enabled: bool,
    /// How long nothing may have happened before it does.
    pub retention: GoDuration,
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

/// Merges entries, the least specific first; a field left out is inherited. While the whole breaks a rule between
/// fields, the most local layer that makes it so is left out. With no layer left the defaults hold.
#[must_use]
pub fn merge(layers: &[(&str, &SaturationEntry)]) -> Merged {
    let mut layers = layers.to_vec();
    let mut dropped = Vec::new();
    loop {
        let entry = layers.iter().fold(SaturationEntry::default(), |base, (_, entry)| entry.over(base));
        let settings = overlay(Saturation::default(), &entry);
        let Some(whole) = problem(&settings) else { return Merged { entry, settings, dropped } };
        // Without any layer the settings are valid, so some layer is the last one to turn them.
        let turns = |i: &usize| {
            let upto = |n: usize| {
                let merged = layers[..n].iter().fold(SaturationEntry::default(), |base, (_, e)| e.over(base));
                problem(&overlay(Saturation::default(), &merged))
            };
            upto(*i).is_none() && upto(*i + 1).is_some()
        };
        let Some(culprit) = (0..layers.len()).rev().find(turns) else {
            return Merged { entry: SaturationEntry::default(), settings: Saturation::default(), dropped };
        };
        let (key, _) = layers.remove(culprit);
        dropped.push(DroppedLayer { key: key.to_owned(), problem: whole });
    }
}

/// Settings of `config`'s saturation entries for one model, and the layers that had to be dropped.
#[must_use]
pub fn saturation(config: &Config, namespace: &str, model_id: &str) -> Merged {
    let found = layers(&config.saturation, |e| (&e.model_id, &e.namespace), namespace, model_id);
    let named: Vec<(&str, &SaturationEntry)> =
        found.into_iter().map(|(key, entry)| (key.as_str(), entry)).collect();
    merge(&named)
}

/// Settings of `config`'s scale-to-zero entries for one model.
#[must_use]
pub fn scale_to_zero(config: &Config, namespace: &str, model_id: &str) -> ScaleToZero {
    let mut resolved =
        ScaleToZero { enabled: config.scale_to_zero_default, retention: GoDuration::from_secs(600) };
    for (_, entry) in layers(&config.scale_to_zero, |e| (&e.model_id, &e.namespace), namespace, model_id) {
        resolved.enabled = entry.enable_scale_to_zero.unwrap_or(resolved.enabled);
        resolved.retention = entry.retention_period.unwrap_or(resolved.retention);
    }
    resolved
}

/// The entries that are for a model, the least specific first. Where two of a kind are for the same model, the
/// first by key wins.
fn layers<'a, E>(
    entries: &'a BTreeMap<String, E>,
    scope: impl Fn(&'a E) -> (&'a Option<String>, &'a Option<String>),
    namespace: &str,
    model_id: &str,
) -> Vec<(&'a String, &'a E)> {
    let mut found: [Option<(&String, &E)>; 3] = [None; 3];
    for (key, entry) in entries {
        let rank = match scope(entry) {
            _ if key == "default" => 0,
            (Some(model), None) if model == model_id => 1,
            (Some(model), Some(ns)) if model == model_id && ns == namespace => 2,
            _ => continue,
        };
        found[rank].get_or_insert((key, entry));
    }
    found.into_iter().flatten().collect()
}

fn overlay(base: Saturation, entry: &SaturationEntry) -> Saturation {
    Saturation {
        kv_cache_threshold: entry.kv_cache_threshold.map_or(base.kv_cache_threshold, f64::from),
        queue_length_threshold: entry.queue_length_threshold.map_or(base.queue_length_threshold, f64::from),
        kv_spare_trigger: entry.kv_spare_trigger.map_or(base.kv_spare_trigger, f64::from),
        queue_spare_trigger: entry.queue_spare_trigger.map_or(base.queue_spare_trigger, f64::from),
        enable_limiter: entry.enable_limiter.unwrap_or(base.enable_limiter),
        analyzer: entry.analyzer_name.unwrap_or(base.analyzer),
        scale_up_threshold: entry.scale_up_threshold.map_or(base.scale_up_threshold, f64::from),
        scale_down_boundary: entry.scale_down_boundary.map_or(base.scale_down_boundary, f64::from),
    }
}

/// The rules that hold between fields.
fn problem(s: &Saturation) -> Option<String> {
    if s.kv_spare_trigger > s.kv_cache_threshold {
        return Some(format!(
            "kvSpareTrigger {} is above kvCacheThreshold {}",
            s.kv_spare_trigger, s.kv_cache_threshold
        ));
    }
    if s.scale_up_threshold <= s.scale_down_boundary {
        return Some(format!(
            "scaleUpThreshold {} is not above scaleDownBoundary {}",
            s.scale_up_threshold, s.scale_down_boundary
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Amount, Fraction};

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
    fn the_most_specific_entry_wins() {
        let mut config = Config::default();
        let mut put = |key: &str, model: Option<&str>, namespace: Option<&str>, queue: f64| {
            let entry = SaturationEntry {
                model_id: model.map(str::to_owned),
                namespace: namespace.map(str::to_owned),
                queue_length_threshold: Some(Amount::constant(queue)),
                ..SaturationEntry::default()
            };
            config.saturation.insert(key.to_owned(), entry);
        };
        put("default", None, None, 7.0);
        put("a", Some("m"), Some("ns"), 9.0);
        put("b", Some("m"), None, 8.0);
        let queue = |ns, m| saturation(&config, ns, m).settings.queue_length_threshold.to_string();
        assert_eq!([queue("ns", "m"), queue("x", "m"), queue("ns", "x")], ["9", "8", "7"]);
    }
}
