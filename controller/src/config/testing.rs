//! ConfigMaps for tests, fed through the writer without an API server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Event;
use serde_json::json;
use wva_rules::MapNames;

use super::ConfigMaps;
use super::watch::{Writer, selections};

pub(crate) const SYSTEM: &str = "wva";

/// Feeds the maps of a controller that watches all namespaces.
pub(crate) struct Feed {
    maps: ConfigMaps,
    writer: Writer,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self::named(MapNames { namespace: SYSTEM.to_owned(), ..MapNames::default() })
    }

    pub(crate) fn named(names: MapNames) -> Self {
        let selections = selections(&names, None);
        let maps = ConfigMaps::new(names, "true".to_owned());
        Self { writer: Writer::new(maps.clone(), selections), maps }
    }

    pub(crate) fn maps(&self) -> ConfigMaps {
        self.maps.clone()
    }

    /// Applies an event; returns whether it changed a map.
    pub(crate) fn event(&mut self, event: &Event<ConfigMap>) -> bool {
        self.writer.apply(0, event)
    }

    pub(crate) fn put(&mut self, path: &str, entries: &[(&str, &str)]) -> bool {
        self.event(&Event::Apply(map(path, entries)))
    }

    pub(crate) fn delete(&mut self, path: &str) -> bool {
        self.event(&Event::Delete(map(path, &[])))
    }
}

pub(crate) fn map(path: &str, entries: &[(&str, &str)]) -> ConfigMap {
    let (namespace, name) = path.split_once('/').unwrap();
    let data: BTreeMap<_, _> = entries.iter().copied().collect();
    let metadata = json!({"namespace": namespace, "name": name, "uid": format!("uid of {path}")});
    serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
}
