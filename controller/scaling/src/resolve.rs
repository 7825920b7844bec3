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

/// Settings of `config`'s saturation entries for one model, and the layers that had to be dropped.
#[must_use]
pub fn saturation(config: &Config, namespace: &str, model_id: &str) -> (Saturation, Vec<DroppedLayer>) {
    let mut resolved = Saturation::default();
    let mut dropped = Vec::new();
    for (key, entry) in layers(&config.saturation, |e| (&e.model_id, &e.namespace), namespace, model_id) {
        let merged = overlay(resolved, entry);
        match problem(&merged) {
            None => resolved = merged,
            Some(problem) => dropped.push(DroppedLayer { key: key.clone(), problem }),
        }
    }
    (resolved, dropped)
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
