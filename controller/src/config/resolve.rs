//! Which settings hold for each model, out of the maps in force. The engine asks once a cycle; what it is told goes into
//! the Snapshot, resolved, so that a decision can be replayed without the maps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wva_crds::entries::{AnalyzerName, DEFAULT_ENTRY, Merged, SaturationEntry, ScaleToZeroEntry, merge};
use wva_rules::MapRole;
use wva_runtime::Cache;
use wva_scaling::snapshot::Config as RulesConfig;

use super::ConfigMaps;
use super::in_force::{Readers, global, in_force};
use super::layers::InForce;
use super::news::{tell, tell_each};
use super::read::ReadMap;
use super::reloads::{Config, ConfigReloads};
use super::service_classes::{Goal, ServiceClasses};
use crate::model::published::PublishedVariant;
use crate::observe::variants::Managed;
use crate::observe::watches::NamespaceFacts;

/// The analyzer of a model that no saturation map is read for. In a map, an entry that names none means percentages, as in
/// llm-d WVA.
const WITHOUT_MAP: AnalyzerName = AnalyzerName::Throughput;

/// The settings of every model, as one run of the engine knows them. What it holds was told.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    saturation: InForce<SaturationEntry>,
    to_zero: InForce<ScaleToZeroEntry>,
    /// Every one that exists.
    classes: Vec<Arc<ReadMap<ServiceClasses>>>,
    /// It was told that there is no global saturation map.
    told_none: bool,
    /// Layers that are left out for some model, with why.
    left_out: BTreeSet<String>,
    /// Models for which nothing that people wrote can be used, by [`key`], with why.
    unusable: BTreeMap<String, String>,
}

impl Settings {
    /// Looks at the maps anew, tells what changed, and gives the entries of a Snapshot, of both kinds: one for each
    /// managed model, which inherits nothing from another entry any more, and `default` for the rest. The rest of the
    /// configuration is left as it is by default. `proactive`: arrivals decide for every model that a service class names.
    pub(crate) fn resolve(
        &mut self,
        maps: &ConfigMaps,
        managed: &[Managed],
        namespaces: Option<&Cache<NamespaceFacts>>,
        reloads: &ConfigReloads,
        proactive: bool,
    ) -> RulesConfig {
        let readers = Arc::new(Readers::new(maps, managed, namespaces));
        // First, so that a map that comes in meanwhile is either read here or starts the next cycle.
        maps.read_by(&readers);
        self.take_in(maps, &readers, reloads);
        let mut models = BTreeSet::new();
        for m in managed {
            models
                .extend(m.declared().map(|declared| (m.key.namespace.as_str(), declared.model_id.as_str())));
        }
        self.unusable.clear();
        let mut dropped = Dropped::default();
        let mut resolved = self.for_all();
        for (namespace, model) in models {
            let key = key(namespace, model);
            resolved.scale_to_zero.extend(self.to_zero(namespace, model).map(|entry| (key.clone(), entry)));
            let mut entry = self.for_model(namespace, model, &mut dropped);
            if let Some(objectives) = self.objectives(model) {
                entry.itl_slo = entry.itl_slo.or(objectives.itl);
                entry.ttft_slo = entry.ttft_slo.or(objectives.ttft);
                if proactive {
                    entry.analyzer_name = Some(AnalyzerName::Throughput);
                }
            }
            resolved.saturation.insert(key, entry);
        }
        self.left_out = dropped.tell(&self.left_out);
        resolved
    }

    /// What the service classes hold a model to. `None` where none names it.
    fn objectives(&self, model: &str) -> Option<&Goal> {
        let classes = self.classes.iter().flat_map(|map| &map.entries);
        ServiceClasses::objectives(classes.map(|keyed| &keyed.entry), model)
    }

    /// What holds for a model that nobody names.
    fn for_all(&self) -> RulesConfig {
        let entry = self.saturation.global.as_ref().and_then(|map| map.default_entry());
        let layers: Vec<_> = entry.map(|entry| (DEFAULT_ENTRY, entry)).into_iter().collect();
        let mut saturation = SaturationEntry { model_id: None, namespace: None, ..merge(&layers).resolved() };
        if self.saturation.global.is_none() {
            saturation.analyzer_name = Some(WITHOUT_MAP);
        }
        let to_zero = self.to_zero.global.as_ref().and_then(|map| map.default_entry());
        let to_zero = to_zero
            .map(|entry| ScaleToZeroEntry { model_id: None, namespace: None, ..entry.clone() })
            .filter(|entry| *entry != ScaleToZeroEntry::default());
        let named = |entry| (DEFAULT_ENTRY.to_owned(), entry);
        RulesConfig {
            saturation: BTreeMap::from([(DEFAULT_ENTRY.to_owned(), saturation)]),
            scale_to_zero: to_zero.map(named).into_iter().collect(),
            ..RulesConfig::default()
        }
    }

    /// What people wrote of scale to zero for a model. `None` where they wrote nothing: the settings of the program hold.
    fn to_zero(&self, namespace: &str, model: &str) -> Option<ScaleToZeroEntry> {
        let layers = self.to_zero.layers(namespace, model);
        let merged = layers.iter().fold(ScaleToZeroEntry::default(), |base, (_, entry)| entry.over(base));
        let says = merged.enable_scale_to_zero.is_some() || merged.retention_period.is_some();
        says.then(|| ScaleToZeroEntry {
            model_id: Some(model.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..merged
        })
    }

    fn for_model(&mut self, namespace: &str, model: &str, dropped: &mut Dropped) -> SaturationEntry {
        let layers = self.saturation.layers(namespace, model);
        let named: Vec<_> = layers.iter().map(|(name, entry)| (name.as_str(), *entry)).collect();
        let merged = merge(&named);
        if merged.dropped.len() == layers.len()
            && let Some(why) = self.nothing_left(namespace, &merged)
        {
            self.unusable.insert(key(namespace, model), why);
        }
        let mut resolved = merged.resolved();
        if self.saturation.maps(namespace).next().is_none() {
            resolved.analyzer_name = Some(WITHOUT_MAP);
        }
        dropped.add(namespace, model, merged);
        SaturationEntry {
            model_id: Some(model.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..resolved
        }
    }

    /// A variant as it is published: where nothing of what people wrote for its model can be used, it says so. The
    /// built-in defaults hold then, and what they decide is published.
    pub(crate) fn judge(&self, mut variant: PublishedVariant) -> PublishedVariant {
        let unusable =
            variant.decision.as_ref().and_then(|d| self.unusable.get(&key(&d.namespace, &d.model_id)));
        if let Some(why) = unusable {
            variant.conditions.settings_unusable(why);
        }
        variant
    }

    fn take_in(&mut self, maps: &ConfigMaps, readers: &Readers, reloads: &ConfigReloads) {
        let (saturation, to_zero, classes): (_, _, Vec<_>) = {
            let kept = maps.kept();
            (
                in_force(&kept.saturation, &maps.names, MapRole::Saturation, readers),
                in_force(&kept.to_zero, &maps.names, MapRole::ScaleToZero, readers),
                global(&kept.classes, &maps.names, MapRole::ServiceClasses).cloned().collect(),
            )
        };
        tell(Config::Saturation, &self.saturation, &saturation, reloads);
        tell(Config::ScaleToZero, &self.to_zero, &to_zero, reloads);
        tell_each(Config::ServiceClasses, [self.classes.iter(), classes.iter()], reloads);
        let none = saturation.global.is_none();
        if none && !self.told_none {
            tracing::warn!(
                namespace = maps.names.namespace,
                names = maps.names.in_order(MapRole::Saturation).join(", "),
                "No global saturation ConfigMap: the throughput analyzer decides with built-in settings, except in namespaces with a map"
            );
        }
        self.told_none = none;
        (self.saturation, self.to_zero, self.classes) = (saturation, to_zero, classes);
    }

    /// Why no layer is left for a model, where somebody wrote one.
    fn nothing_left(&self, namespace: &str, merged: &Merged) -> Option<String> {
        let lost = self.saturation.maps(namespace).filter_map(|map| {
            let lost = map.default_lost()?;
            Some(format!("the entry {}[{DEFAULT_ENTRY}] cannot be used: {}", map.title(), lost.problem))
        });
        let dropped = merged.dropped.iter().map(ToString::to_string);
        let problems: Vec<String> = lost.chain(dropped).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

/// How a model's entry is called in a Snapshot. A namespace holds no slash, so no two models share one.
fn key(namespace: &str, model: &str) -> String {
    format!("{namespace}/{model}")
}

/// The layers that were left out in one cycle.
#[derive(Debug, Default)]
struct Dropped(BTreeMap<String, DroppedFor>);

/// The models for which a layer was left out.
#[derive(Debug)]
struct DroppedFor {
    first: String,
    models: usize,
}

impl Dropped {
    fn add(&mut self, namespace: &str, model: &str, merged: Merged) {
        for layer in merged.dropped {
            let fresh = || DroppedFor { first: key(namespace, model), models: 0 };
            self.0.entry(layer.to_string()).or_insert_with(fresh).models += 1;
        }
    }

    /// Tells those that were not left out before, one line each, however many models it concerns.
    fn tell(self, before: &BTreeSet<String>) -> BTreeSet<String> {
        for (layer, dropped) in self.0.iter().filter(|(layer, _)| !before.contains(*layer)) {
            let DroppedFor { first: model, models } = dropped;
            tracing::warn!(model, models, "Settings of a model contradict each other: {layer}");
        }
        self.0.into_keys().collect()
    }
}

#[cfg(test)]
mod tests;
