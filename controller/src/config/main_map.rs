//! The watch of the main ConfigMap. It is known from the start of the process; here come its changes.

use futures::future;
use futures::stream::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use wva_runtime::Interruptions;

/// The map of this name as it is after each change; an empty one without a name where there is none. The stream goes on
/// by itself when the watch is interrupted, and may bring what it brought before.
pub fn main_map(client: Client, namespace: &str, name: &str) -> impl Stream<Item = ConfigMap> + Send + use<> {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let mut interruptions = Interruptions::new("watch of the main ConfigMap", Some(namespace));
    watch_object(api, name).default_backoff().filter_map(move |map| {
        interruptions.log_error(map.as_ref().err());
        future::ready(map.ok().map(Option::unwrap_or_default))
    })
}
