//! The watch of the ConfigMaps with entries, by name: a cluster holds thousands of others, of up to a megabyte each.
//! A field selector takes one name, so there is a stream for each; one task takes in all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream::{SelectAll, Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use wva_crds::names::{LOCAL_SATURATION_MAP_NAME, LOCAL_SCALE_TO_ZERO_MAP_NAME};
use wva_rules::{MapNames, MapRole, Place};
use wva_runtime::Interruptions;
use wva_runtime::watch::{WatchScope, config};

use super::read::{MapEntry, MapKey, Maps, ReadMap};
use super::{ConfigMaps, Kept};

const TASK: &str = "watch of ConfigMaps";

/// Names of the maps that a namespace may have for itself.
const LOCAL: [&str; 2] = [LOCAL_SATURATION_MAP_NAME, LOCAL_SCALE_TO_ZERO_MAP_NAME];

/// The maps with entries: the global ones in the controller's namespace, and those that watched namespaces have for
/// themselves. `opted_in`: value of the namespace label by which such a map is read before a variant is there.
pub fn watch_config_maps(scope: &mut WatchScope<'_>, names: MapNames, opted_in: String) -> ConfigMaps {
    let selections = selections(&names, scope.namespace.as_deref());
    let maps = ConfigMaps::new(names, opted_in);
    let mut streams = SelectAll::new();
    for (at, selection) in selections.iter().enumerate() {
        streams.push(Box::pin(selection.stream(&scope.client).map(move |event| (at, event))));
    }
    let mut writer = Writer::new(maps.clone(), selections);
    let shutdown = scope.shutdown.clone();
    let (complete, synced) = watch::channel(false);
    scope.synced.add(TASK, synced);
    let mut interruptions = Interruptions::new(TASK, scope.namespace.as_deref());
    let watch = async move {
        while let Some((at, event)) = streams.next().await {
            interruptions.log(&event);
            // After an error the stream goes on by itself, with backoff.
            let Ok(event) = event else { continue };
            if writer.take_in(at, &event) && writer.concerns(&event) {
                writer.maps.tell();
            }
            if matches!(event, Event::InitDone) && writer.is_complete() {
                complete.send_replace(true);
            }
        }
    };
    scope.tasks.spawn(TASK, async move {
        let ended = shutdown.run_until_cancelled(watch).await;
        ended.map_or(Ok(()), |()| Err("its streams ended".to_owned()))
    });
    maps
}

/// The maps that one stream brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    name: String,
    /// `None`: of all namespaces.
    namespace: Option<String>,
}

impl Selection {
    fn stream(
        &self,
        client: &Client,
    ) -> impl Stream<Item = Result<Event<ConfigMap>, watcher::Error>> + Send + use<> {
        let api: Api<ConfigMap> = match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let by_name = config().fields(&format!("metadata.name={}", self.name));
        watcher::watcher(api, by_name).default_backoff()
    }

    fn brings(&self, map: &MapKey) -> bool {
        *self.name == *map.name && self.namespace.as_deref().is_none_or(|own| own == &*map.namespace)
    }
}

/// What has to be watched, each map once.
pub(super) fn selections(names: &MapNames, watched: Option<&str>) -> Vec<Selection> {
    let roles = [MapRole::Saturation, MapRole::ScaleToZero, MapRole::ServiceClasses];
    let global = roles.into_iter().flat_map(|role| names.in_order(role));
    let here = |name: &str| Selection { name: name.to_owned(), namespace: Some(names.namespace.clone()) };
    let there = |name: &str| Selection { name: name.to_owned(), namespace: watched.map(str::to_owned) };
    let elsewhere = watched != Some(&*names.namespace);
    let local = LOCAL.into_iter().filter(|_| elsewhere).map(there);
    // What is watched in all namespaces is watched here, too.
    let seen = |name: &str| watched.is_none() && LOCAL.contains(&name);
    global.filter(|name| !seen(name)).map(here).chain(local).collect()
}

/// Takes in the events of all streams, each in order.
pub(super) struct Writer {
    maps: ConfigMaps,
    selections: Vec<Selection>,
    /// Maps of the list under way, by stream.
    listed: Vec<BTreeSet<MapKey>>,
    /// Which streams have listed once.
    complete: Vec<bool>,
}

impl Writer {
    pub(super) fn new(maps: ConfigMaps, selections: Vec<Selection>) -> Self {
        let (listed, complete) = (vec![BTreeSet::new(); selections.len()], vec![false; selections.len()]);
        Self { maps, selections, listed, complete }
    }

    /// Every stream has seen its first list.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.iter().all(|complete| *complete)
    }

    /// Takes in an event of a stream, and says whether it changed anything.
    pub(super) fn take_in(&mut self, at: usize, event: &Event<ConfigMap>) -> bool {
        let maps = self.maps.clone();
        let _making = maps.making();
        match event {
            Event::Apply(map) => self.put(map),
            Event::Delete(map) => {
                let key = MapKey::of(map);
                self.maps.change(|kept| kept.local.remove(&key).is_some() | kept.forget(&key))
            }
            Event::Init => {
                self.listed[at].clear();
                false
            }
            Event::InitApply(map) => {
                self.listed[at].insert(MapKey::of(map));
                self.put(map)
            }
            Event::InitDone => {
                self.complete[at] = true;
                let listed = std::mem::take(&mut self.listed[at]);
                let selection = &self.selections[at];
                self.maps.change(|kept| {
                    let stays = |key: &MapKey| !selection.brings(key) || listed.contains(key);
                    // All of them, whatever the first one says.
                    kept.local.retain(|key, _| stays(key));
                    retain(&mut kept.saturation, stays)
                        | retain(&mut kept.to_zero, stays)
                        | retain(&mut kept.classes, stays)
                })
            }
        }
    }

    /// Whether it is reason for a cycle: a map of a namespace that nobody reads is kept for the day that somebody does,
    /// whose own event starts a cycle then.
    pub(super) fn concerns(&self, event: &Event<ConfigMap>) -> bool {
        match event {
            Event::Apply(map) | Event::InitApply(map) | Event::Delete(map) => {
                self.maps.are_read(map.metadata.namespace.as_deref().unwrap_or_default())
            }
            Event::Init | Event::InitDone => true,
        }
    }

    /// A map of a namespace that nobody reads is only kept: whether it changes anything is seen when somebody does.
    fn put(&self, map: &ConfigMap) -> bool {
        let key = MapKey::of(map);
        let Some((_, place)) = self.maps.names.role(&key.namespace, &key.name) else { return false };
        if place == Place::Local {
            self.maps.change(|kept| kept.local.insert(key.clone(), Arc::new(text_of(map))));
            if !self.maps.are_read(&key.namespace) {
                return self.maps.change(|kept| kept.forget(&key));
            }
        }
        self.maps.read(map)
    }
}

impl ConfigMaps {
    /// Reads a map and keeps what it says. Says whether that is anything new.
    pub(super) fn read(&self, map: &ConfigMap) -> bool {
        let MapKey { namespace, name } = MapKey::of(map);
        match self.names.role(&namespace, &name) {
            None | Some((_, Place::Unread) | (MapRole::Main, _)) => false,
            Some((MapRole::Saturation, place)) => put(self, |kept| &mut kept.saturation, map, place),
            Some((MapRole::ScaleToZero, place)) => put(self, |kept| &mut kept.to_zero, map, place),
            Some((MapRole::ServiceClasses, place)) => put(self, |kept| &mut kept.classes, map, place),
        }
    }
}

/// Of a map what is read.
fn text_of(map: &ConfigMap) -> ConfigMap {
    let metadata = ObjectMeta {
        namespace: map.metadata.namespace.clone(),
        name: map.metadata.name.clone(),
        uid: map.metadata.uid.clone(),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, data: map.data.clone(), ..ConfigMap::default() }
}

/// Reads a map and keeps it, unless it says what it said before. Whoever reads meanwhile does not wait for the parser.
fn put<E: MapEntry>(
    maps: &ConfigMaps,
    of_kind: fn(&mut Kept) -> &mut Maps<E>,
    map: &ConfigMap,
    place: Place,
) -> bool {
    let key = MapKey::of(map);
    let before = maps.change(|kept| of_kind(kept).get(&key).cloned());
    let read = ReadMap::read(map, place, before.as_deref());
    if before.is_some_and(|before| *before == read) {
        return false;
    }
    maps.change(|kept| of_kind(kept).insert(key, Arc::new(read)));
    true
}

/// Whether anything went.
fn retain<E>(maps: &mut Maps<E>, stays: impl Fn(&MapKey) -> bool) -> bool {
    let before = maps.len();
    maps.retain(|key, _| stays(key));
    maps.len() != before
}

#[cfg(test)]
mod tests;
