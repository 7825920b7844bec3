//! Watch of the ConfigMaps with entries, by name, because a cluster has thousands of others. One task reads a stream
//! for each name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{SelectAll, Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use wva_crds::names::{LOCAL_SATURATION_MAP_NAME, LOCAL_SCALE_TO_ZERO_MAP_NAME};
use wva_rules::{MapNames, MapRole, MapScope};
use wva_runtime::InterruptionLogger;
use wva_runtime::watch::{WatchScope, config, events};

use super::parsed_map::{MapEntry, MapKey, Maps, ParsedMap};
use super::{ConfigMaps, MapCache};

const TASK: &str = "watch of ConfigMaps";
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Time until maps that could not be read are read again.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

const LOCAL_NAMES: [&str; 2] = [LOCAL_SATURATION_MAP_NAME, LOCAL_SCALE_TO_ZERO_MAP_NAME];

/// `opt_in_value`: value of the namespace label by which local maps are used before the namespace has a variant.
pub fn watch_config_maps(scope: &mut WatchScope<'_>, names: MapNames, opt_in_value: String) -> ConfigMaps {
    let selections = selections(&names, scope.namespace.as_deref());
    let maps = ConfigMaps::new(names, opt_in_value);
    // No namespace is in use before the first cycle.
    maps.set_local_scope(&Arc::default());
    let client = scope.client.clone();
    let mut streams = SelectAll::new();
    for (at, selection) in selections.iter().enumerate() {
        streams.push(Box::pin(selection.stream(&scope.client).map(move |event| (at, event))));
    }
    let mut writer = Writer::new(maps.clone(), selections);
    let shutdown = scope.shutdown.clone();
    let (complete, synced) = watch::channel(false);
    scope.synced.add(TASK, synced);
    let mut interruptions = InterruptionLogger::new(TASK, scope.namespace.as_deref());
    let watch = async move {
        let mut retry_at = None;
        loop {
            let next = tokio::select! {
                next = streams.next() => next,
                () = writer.maps.wanted.notified() => {
                    retry_at = writer.read_wanted(&client).await;
                    continue;
                }
                () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                    retry_at = writer.read_wanted(&client).await;
                    continue;
                }
            };
            let Some((at, event)) = next else { break };
            interruptions.log(&event);
            // The stream resumes by itself, with backoff.
            let Ok(event) = event else { continue };
            if writer.apply(at, &event) && writer.starts_cycle(&event) {
                writer.maps.notify_changed();
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    name: String,
    /// `None`: all namespaces.
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
        events(api, by_name).default_backoff()
    }

    fn matches(&self, map: &MapKey) -> bool {
        *self.name == *map.name && self.namespace.as_deref().is_none_or(|own| own == &*map.namespace)
    }
}

/// They do not overlap.
pub(super) fn selections(names: &MapNames, watched: Option<&str>) -> Vec<Selection> {
    let roles = [MapRole::Saturation, MapRole::ScaleToZero, MapRole::ServiceClasses];
    let global = roles.into_iter().flat_map(|role| names.global_names(role));
    let in_own_namespace =
        |name: &str| Selection { name: name.to_owned(), namespace: Some(names.namespace.clone()) };
    let in_watched = |name: &str| Selection { name: name.to_owned(), namespace: watched.map(str::to_owned) };
    let watches_others = watched != Some(&*names.namespace);
    let local = LOCAL_NAMES.into_iter().filter(|_| watches_others).map(in_watched);
    // A stream of all namespaces includes the controller's.
    let is_covered = |name: &str| watched.is_none() && LOCAL_NAMES.contains(&name);
    global.filter(|name| !is_covered(name)).map(in_own_namespace).chain(local).collect()
}

pub(super) struct Writer {
    maps: ConfigMaps,
    selections: Vec<Selection>,
    /// One set per stream.
    listed: Vec<BTreeSet<MapKey>>,
    /// Streams that have completed a list.
    complete: Vec<bool>,
}

impl Writer {
    pub(super) fn new(maps: ConfigMaps, selections: Vec<Selection>) -> Self {
        let (listed, complete) = (vec![BTreeSet::new(); selections.len()], vec![false; selections.len()]);
        Self { maps, selections, listed, complete }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete.iter().all(|complete| *complete)
    }

    pub(super) fn apply(&mut self, at: usize, event: &Event<ConfigMap>) -> bool {
        let maps = self.maps.clone();
        let _parsing = maps.lock_parsing();
        match event {
            Event::Apply(map) => self.put(map),
            Event::Delete(map) => {
                let key = MapKey::from_map(map);
                self.maps.change(|cache| cache.remove(&key))
            }
            Event::Init => {
                self.listed[at].clear();
                false
            }
            Event::InitApply(map) => {
                self.listed[at].insert(MapKey::from_map(map));
                self.put(map)
            }
            Event::InitDone => {
                self.complete[at] = true;
                let listed = std::mem::take(&mut self.listed[at]);
                let selection = &self.selections[at];
                self.maps.change(|cache| {
                    let remains = |key: &MapKey| !selection.matches(key) || listed.contains(key);
                    cache.unread.retain(remains);
                    cache.wanted.retain(remains);
                    // Without short-circuit evaluation: every map must be filtered.
                    retain(&mut cache.saturation, remains)
                        | retain(&mut cache.to_zero, remains)
                        | retain(&mut cache.classes, remains)
                })
            }
        }
    }

    /// Maps of unused namespaces start none.
    pub(super) fn starts_cycle(&self, event: &Event<ConfigMap>) -> bool {
        match event {
            Event::Apply(map) | Event::InitApply(map) | Event::Delete(map) => {
                self.maps.is_in_use(map.metadata.namespace.as_deref().unwrap_or_default())
            }
            Event::Init | Event::InitDone => true,
        }
    }

    /// Returns whether it changed.
    fn put(&self, map: &ConfigMap) -> bool {
        let key = MapKey::from_map(map);
        let Some((_, place)) = self.maps.names.role(&key.namespace, &key.name) else { return false };
        if place == MapScope::Local && !self.maps.is_in_use(&key.namespace) {
            return self.maps.change(|cache| cache.set_unread(&key));
        }
        let is_changed = self.maps.parse(map);
        self.maps.change(|cache| {
            cache.wanted.remove(&key);
            cache.unread.remove(&key)
        }) | is_changed
    }

    fn replace(&self, key: &MapKey, read: Option<&ConfigMap>) {
        let maps = self.maps.clone();
        let _parsing = maps.lock_parsing();
        match read {
            Some(map) => self.put(map),
            None => maps.change(|cache| cache.remove(key)),
        };
    }

    /// Reads the maps of namespaces that came into use, one by one. Returns when to try again.
    async fn read_wanted(&self, client: &Client) -> Option<Instant> {
        let wanted = self.maps.change(|cache| cache.wanted.clone());
        let mut is_complete = true;
        for key in wanted {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), &key.namespace);
            // The roles grant lists by name, and no other read.
            let by_name = ListParams::default().fields(&format!("metadata.name={}", key.name));
            let read = tokio::time::timeout(READ_TIMEOUT, api.list(&by_name)).await;
            match read.map_err(|late| late.to_string()).and_then(|read| read.map_err(|e| e.to_string())) {
                Ok(found) => self.replace(&key, found.items.first()),
                Err(error) => {
                    let MapKey { namespace, name } = &key;
                    tracing::warn!(
                        error, %namespace, %name,
                        "Cannot read a ConfigMap; the variants of its namespace wait for it"
                    );
                    is_complete = false;
                }
            }
        }
        self.maps.notify_changed();
        (!is_complete).then(|| Instant::now() + RETRY_PAUSE)
    }
}

impl ConfigMaps {
    pub(super) fn parse(&self, map: &ConfigMap) -> bool {
        let MapKey { namespace, name } = MapKey::from_map(map);
        match self.names.role(&namespace, &name) {
            None | Some((_, MapScope::Unread) | (MapRole::Main, _)) => false,
            Some((MapRole::Saturation, place)) => put(self, |cache| &mut cache.saturation, map, place),
            Some((MapRole::ScaleToZero, place)) => put(self, |cache| &mut cache.to_zero, map, place),
            Some((MapRole::ServiceClasses, place)) => put(self, |cache| &mut cache.classes, map, place),
        }
    }
}

/// Returns whether the content changed. Parses without the lock.
fn put<E: MapEntry>(
    maps: &ConfigMaps,
    of_kind: fn(&mut MapCache) -> &mut Maps<E>,
    map: &ConfigMap,
    place: MapScope,
) -> bool {
    let key = MapKey::from_map(map);
    let before = maps.change(|cache| of_kind(cache).get(&key).cloned());
    let parsed = ParsedMap::parse(map, place, before.as_deref());
    if before.is_some_and(|before| *before == parsed) {
        return false;
    }
    maps.change(|cache| of_kind(cache).insert(key, Arc::new(parsed)));
    true
}

/// Returns whether other maps were removed.
fn retain<E>(maps: &mut Maps<E>, remains: impl Fn(&MapKey) -> bool) -> bool {
    let before = maps.len();
    maps.retain(|key, _| remains(key));
    maps.len() != before
}

#[cfg(test)]
mod tests;
