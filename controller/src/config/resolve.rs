//! Resolves the settings of each model, once per cycle. The Snapshot has the result at the model, so that a decision can
//! be replayed without the maps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wva_crds::entries::{
    AnalyzerName, DEFAULT_ENTRY, MergedSettings, Priority, SaturationEntry, ScaleToZeroEntry, merge,
};
use wva_rules::MapRole;
use wva_runtime::Cache;
use wva_scaling::ModelKey;
use wva_scaling::resolve::FleetSettings;
use wva_scaling::snapshot::ModelSettings;

use super::ConfigMaps;
use super::change_log::{log_changes, log_map_changes};
use super::effective::{LocalMapScope, effective_maps, global_maps};
use super::layers::EffectiveMaps;
use super::parsed_map::ParsedMap;
use super::reloads::ConfigReloads;
use super::service_classes::{ModelClasses, ServiceClasses};
use crate::model::keys::NamedPickers;
use crate::model::published::PublishedVariant;
use crate::observe::variants::ManagedVariant;
use crate::observe::watches::NamespaceFacts;

/// Analyzer of a model without a saturation map. In a map, an entry without an analyzer means `percentage`, as in llm-d WVA.
const ANALYZER_WITHOUT_MAP: AnalyzerName = AnalyzerName::Throughput;

/// What the maps say in a cycle.
#[derive(Debug, Default)]
pub(crate) struct ResolvedMaps {
    pub(crate) fleet: FleetSettings,
    /// See `Config::priorities`.
    pub(crate) priorities: BTreeMap<String, Priority>,
    /// See `Config::namespace_priorities`.
    pub(crate) namespace_priorities: BTreeMap<String, BTreeMap<String, Priority>>,
}

#[derive(Debug, Default)]
pub(crate) struct Settings {
    saturation: EffectiveMaps<SaturationEntry>,
    to_zero: EffectiveMaps<ScaleToZeroEntry>,
    classes: Vec<Arc<ParsedMap<ServiceClasses>>>,
    warned_no_global: bool,
    /// Each with the reason.
    dropped_layers: BTreeSet<String>,
    /// Keys: [`key`]. Values: the reasons.
    unusable: BTreeMap<String, String>,
}

impl Settings {
    pub(crate) fn resolve(
        &mut self,
        maps: &ConfigMaps,
        managed: &[ManagedVariant],
        namespaces: Option<&Cache<NamespaceFacts>>,
        reloads: &ConfigReloads,
        proactive: bool,
    ) -> ResolvedMaps {
        let scope = Arc::new(LocalMapScope::new(maps, managed, namespaces));
        // First, so that a map that arrives now is either read here or starts the next cycle.
        maps.set_local_scope(&scope);
        self.update_maps(maps, &scope, reloads);
        let mut models = BTreeSet::new();
        for m in managed {
            models.extend(m.spec().map(|spec| (m.key.namespace.as_str(), spec.model_id.as_str())));
        }
        self.unusable.clear();
        let mut dropped = DroppedLayers::default();
        let default = self.resolve_default();
        let mut resolved =
            ResolvedMaps { fleet: FleetSettings { default, ..Default::default() }, ..Default::default() };
        for (namespace, model) in models {
            let mut entry = self.resolve_model(namespace, model, &mut dropped);
            let ModelClasses { best, bound, named } = self.classes_of(namespace, model);
            resolved.priorities.extend(named.map(|priority| (model.to_owned(), priority)));
            if let Some(priority) = bound {
                let models = resolved.namespace_priorities.entry(namespace.to_owned()).or_default();
                models.insert(model.to_owned(), priority);
            }
            if let Some(objectives) = best {
                entry.itl_slo = entry.itl_slo.or(objectives.itl);
                entry.ttft_slo = entry.ttft_slo.or(objectives.ttft);
                entry.slo_target = entry.slo_target.or(objectives.target);
                if proactive {
                    entry.analyzer_name = Some(AnalyzerName::Throughput);
                }
            }
            let to_zero = self.to_zero.layers(namespace, model);
            let scale_to_zero = ScaleToZeroEntry::merge(to_zero.into_iter().map(|(_, entry)| entry));
            let settings = ModelSettings { saturation: entry, scale_to_zero, ..ModelSettings::default() };
            resolved.fleet.models.insert(ModelKey::new(namespace, model), settings);
        }
        self.dropped_layers = dropped.log_new(&self.dropped_layers);
        resolved
    }

    fn classes_of(&self, namespace: &str, model: &str) -> ModelClasses<'_> {
        let classes = self.classes.iter().flat_map(|map| &map.entries);
        ServiceClasses::of_model(classes.map(|keyed| &keyed.entry), namespace, model)
    }

    /// Settings of models without an entry.
    fn resolve_default(&self) -> ModelSettings {
        let entry = self.saturation.global.as_ref().and_then(|map| map.default_entry());
        let layers: Vec<_> = entry.map(|entry| (DEFAULT_ENTRY, entry)).into_iter().collect();
        let mut saturation = merge(&layers).to_full_entry();
        if self.saturation.global.is_none() {
            saturation.analyzer_name = Some(ANALYZER_WITHOUT_MAP);
        }
        let to_zero = self.to_zero.global.as_ref().and_then(|map| map.default_entry());
        let scale_to_zero = ScaleToZeroEntry::merge(to_zero);
        ModelSettings { saturation, scale_to_zero, ..ModelSettings::default() }
    }

    /// Pickers that entries name.
    pub(crate) fn endpoint_pickers(&self, managed: &[ManagedVariant]) -> NamedPickers {
        let is_named = |map: &ParsedMap<ScaleToZeroEntry>| {
            map.entries.iter().any(|keyed| keyed.entry.endpoint_picker.is_some())
        };
        if !self.to_zero.all().any(is_named) {
            return NamedPickers::default();
        }
        let specs = managed.iter().filter_map(|m| Some((&m.key.namespace, &m.spec().ok()?.model_id)));
        let picker = |(namespace, model): (&String, &String)| {
            let layers = self.to_zero.layers(namespace, model);
            let picker = layers.iter().rev().find_map(|(_, entry)| entry.endpoint_picker.clone())?;
            Some((ModelKey::new(namespace, model), picker))
        };
        specs.filter_map(picker).collect()
    }

    fn resolve_model(
        &mut self,
        namespace: &str,
        model: &str,
        dropped: &mut DroppedLayers,
    ) -> SaturationEntry {
        let layers = self.saturation.layers(namespace, model);
        let named: Vec<_> = layers.iter().map(|(name, entry)| (name.as_str(), *entry)).collect();
        let merged = merge(&named);
        if merged.dropped.len() == layers.len()
            && let Some(why) = self.unusable_reason(namespace, &merged)
        {
            self.unusable.insert(key(namespace, model), why);
        }
        let mut resolved = merged.to_full_entry();
        if self.saturation.maps(namespace).next().is_none() {
            resolved.analyzer_name = Some(ANALYZER_WITHOUT_MAP);
        }
        dropped.add(namespace, model, merged);
        resolved
    }

    /// The target comes from the built-in defaults.
    pub(crate) fn flag_unusable(&self, mut variant: PublishedVariant) -> PublishedVariant {
        let unusable =
            variant.decision.as_ref().and_then(|d| self.unusable.get(&key(&d.key.namespace, &d.model_id)));
        if let Some(why) = unusable {
            variant.conditions.note_unusable_settings(why);
        }
        variant
    }

    fn update_maps(&mut self, maps: &ConfigMaps, scope: &LocalMapScope, reloads: &ConfigReloads) {
        let (saturation, to_zero, classes): (_, _, Vec<_>) = {
            let cache = maps.cache();
            (
                effective_maps(&cache.saturation, &maps.names, MapRole::Saturation, scope),
                effective_maps(&cache.to_zero, &maps.names, MapRole::ScaleToZero, scope),
                global_maps(&cache.classes, &maps.names, MapRole::ServiceClasses).cloned().collect(),
            )
        };
        log_changes(MapRole::Saturation, &self.saturation, &saturation, reloads);
        log_changes(MapRole::ScaleToZero, &self.to_zero, &to_zero, reloads);
        log_map_changes(MapRole::ServiceClasses, [self.classes.iter(), classes.iter()], reloads);
        let has_no_global = saturation.global.is_none();
        if has_no_global && !self.warned_no_global {
            tracing::warn!(
                namespace = maps.names.namespace,
                names = maps.names.global_names(MapRole::Saturation).join(", "),
                "No global saturation ConfigMap: the throughput analyzer decides with built-in settings, except in namespaces with a map"
            );
        }
        self.warned_no_global = has_no_global;
        (self.saturation, self.to_zero, self.classes) = (saturation, to_zero, classes);
    }

    /// `None` if the model has no layers.
    fn unusable_reason(&self, namespace: &str, merged: &MergedSettings) -> Option<String> {
        let lost = self.saturation.maps(namespace).filter_map(|map| {
            let lost = map.lost_default()?;
            Some(format!("the entry {}[{DEFAULT_ENTRY}] is invalid: {}", map.title(), lost.problem))
        });
        let dropped = merged.dropped.iter().map(ToString::to_string);
        let problems: Vec<String> = lost.chain(dropped).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

/// Unique, because a namespace contains no slash.
fn key(namespace: &str, model: &str) -> String {
    format!("{namespace}/{model}")
}

#[derive(Debug, Default)]
struct DroppedLayers(BTreeMap<String, AffectedModels>);

#[derive(Debug)]
struct AffectedModels {
    first: String,
    count: usize,
}

impl DroppedLayers {
    fn add(&mut self, namespace: &str, model: &str, merged: MergedSettings) {
        for layer in merged.dropped {
            let none_yet = || AffectedModels { first: key(namespace, model), count: 0 };
            self.0.entry(layer.to_string()).or_insert_with(none_yet).count += 1;
        }
    }

    /// One line per layer, however many models it affects.
    fn log_new(self, before: &BTreeSet<String>) -> BTreeSet<String> {
        for (layer, affected) in self.0.iter().filter(|(layer, _)| !before.contains(*layer)) {
            let AffectedModels { first: model, count: models } = affected;
            tracing::warn!(model, models, "Conflicting settings of a model: {layer}");
        }
        self.0.into_keys().collect()
    }
}

#[cfg(test)]
mod tests;
