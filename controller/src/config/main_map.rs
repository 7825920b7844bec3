//! The watch of the main ConfigMap. It is known from the start of the process; here come its changes.

use futures::future;
use futures::stream::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use wva_runtime::Interruptions;
use wva_runtime::watch::config;

/// The map of this name as it is after each event; an empty one without a name where there is none. The stream goes on
/// by itself when the watch is interrupted, and may bring what it brought before.
pub fn main_map(client: Client, namespace: &str, name: &str) -> impl Stream<Item = ConfigMap> + Send + use<> {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let by_name = config().fields(&format!("metadata.name={name}"));
    let events = watcher::watcher(api, by_name).default_backoff();
    // A list that ends without the map says that it is gone.
    let state = (false, Interruptions::new("watch of the main ConfigMap", Some(namespace)));
    let news = |(listed, interruptions): &mut (bool, Interruptions), event| {
        interruptions.log(&event);
        future::ready(Some(news(listed, event)))
    };
    events.scan(state, news).filter_map(future::ready)
}

/// What an event says of the map: `None` for nothing.
fn news(listed: &mut bool, event: watcher::Result<Event<ConfigMap>>) -> Option<ConfigMap> {
    match event {
        Ok(Event::Init) => {
            *listed = false;
            None
        }
        Ok(Event::InitApply(map)) => {
            *listed = true;
            Some(map)
        }
        Ok(Event::InitDone) => (!*listed).then(ConfigMap::default),
        Ok(Event::Apply(map)) => Some(map),
        Ok(Event::Delete(_)) => Some(ConfigMap::default()),
        Err(_) => None,
    }
}
