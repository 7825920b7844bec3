//! Discovery of the API that HPAs query. Any authenticated user may read it.

use std::time::Duration;

use http::Request;
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use wva_objects::signal::MetricsApi;

const PATH: &str = "/apis/external.metrics.k8s.io/v1beta1";
const INTERVAL: Duration = Duration::from_secs(20);
/// The client repeats a request that is answered 503, for longer than this.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads its availability every 20 seconds until `shutdown`. An answer that says neither changes nothing.
pub async fn watch_metrics_api(
    client: Client,
    found: watch::Sender<MetricsApi>,
    shutdown: CancellationToken,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        let discovered = tokio::time::timeout(TIMEOUT, discover(&client));
        let Some(discovered) = shutdown.run_until_cancelled(discovered).await else { return };
        if let Some(api) = discovered.unwrap_or(Some(MetricsApi::Unavailable)) {
            found.send_if_modified(|before| std::mem::replace(before, api) != api);
        }
    }
}

async fn discover(client: &Client) -> Option<MetricsApi> {
    let request = Request::get(PATH).body(Vec::new()).ok()?;
    match client.request_text(request).await {
        Ok(_) => Some(MetricsApi::Served),
        Err(kube::Error::Api(status)) if status.code == 404 => Some(MetricsApi::Missing),
        Err(kube::Error::Api(status)) if status.code >= 500 => Some(MetricsApi::Unavailable),
        Err(_) => None,
    }
}
