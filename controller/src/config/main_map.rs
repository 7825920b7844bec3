//! Watch of the main ConfigMap.

use futures::future;
use futures::stream::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use wva_runtime::InterruptionLogger;

/// States of the map; one without a name means that it does not exist. The stream resumes after an interruption, and
/// may repeat a state.
pub fn main_map(client: Client, namespace: &str, name: &str) -> impl Stream<Item = ConfigMap> + Send + use<> {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let mut interruptions = InterruptionLogger::new("watch of the main ConfigMap", Some(namespace));
    watch_object(api, name).default_backoff().filter_map(move |map| {
        interruptions.log_error(map.as_ref().err());
        future::ready(map.ok().map(Option::unwrap_or_default))
    })
}
