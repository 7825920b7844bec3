//! Keeps `spec.caBundle` of the `APIService` `v1beta1.external.metrics.k8s.io` set. A cluster has only one; one that
//! refers to another Service is left alone.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceCondition};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use wva_certs::TrustReporter;
use wva_runtime::api_call::ApiCall;
use wva_runtime::{Backoff, InterruptionLogger};

const NAME: &str = "v1beta1.external.metrics.k8s.io";
/// Owner of `spec.caBundle`.
const FIELD_MANAGER: &str = "wva";
/// A watch can fail silently.
const READ_INTERVAL: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// First and maximum delay after a failed write. Also the minimum interval of writes, in case of two competing
/// writers.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The Service of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnService {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ApiServiceState {
    NoBundle,
    Absent,
    Foreign {
        service: String,
    },
    /// The APIService skips TLS verification. The API server accepts no CA bundle then.
    Unverified,
    /// The APIService is ours, with another bundle or none.
    Unregistered,
    /// The APIService is ours, with our bundle.
    Registered {
        /// The API server reaches it.
        available: bool,
    },
}

fn availability(found: Option<&APIService>) -> Option<&APIServiceCondition> {
    let conditions = found?.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Available")
}

fn classify(found: Option<&APIService>, own: &OwnService, bundle: &[u8]) -> ApiServiceState {
    let Some(spec) = found.map(|found| found.spec.clone().unwrap_or_default()) else {
        return ApiServiceState::Absent;
    };
    let service = match spec.service {
        None => "the API server itself".to_owned(),
        Some(service) => {
            format!("{}/{}", service.namespace.unwrap_or_default(), service.name.unwrap_or_default())
        }
    };
    if service != format!("{}/{}", own.namespace, own.name) {
        return ApiServiceState::Foreign { service };
    }
    if bundle.is_empty() {
        return ApiServiceState::NoBundle;
    }
    if spec.insecure_skip_tls_verify == Some(true) {
        return ApiServiceState::Unverified;
    }
    if spec.ca_bundle.is_some_and(|ca| ca.0 == bundle) {
        ApiServiceState::Registered { available: availability(found).is_some_and(|c| c.status == "True") }
    } else {
        ApiServiceState::Unregistered
    }
}

/// Writes the newest `bundle` (PEM) by server-side apply, until `shutdown`, and reports to `trust` which one it has.
/// Run it as the leader; two at once do no harm. Needs `get`, `list`, `watch` and `patch`.
pub async fn maintain_ca_bundle(
    client: kube::Client,
    own: OwnService,
    bundle: watch::Receiver<Vec<u8>>,
    trust: TrustReporter,
    shutdown: CancellationToken,
) {
    trust.report_unknown();
    let task = Registration {
        api: Api::all(client),
        own,
        bundle,
        trust,
        found: None,
        is_current: false,
        logged: None,
        write_at: Instant::now(),
        backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        interruptions: InterruptionLogger::new("watch of the APIService", None),
    };
    tokio::select! {
        // First: a former leader must not write.
        biased;
        () = shutdown.cancelled() => {}
        () = Box::pin(task.run()) => {}
    }
}

struct Registration {
    api: Api<APIService>,
    own: OwnService,
    bundle: watch::Receiver<Vec<u8>>,
    trust: TrustReporter,
    found: Option<APIService>,
    is_current: bool,
    logged: Option<ApiServiceState>,
    write_at: Instant,
    backoff: Backoff,
    interruptions: InterruptionLogger,
}

fn call(verb: &str) -> ApiCall<'_> {
    ApiCall { verb, resource: "apiservices", namespace: "", name: NAME }
}

impl Registration {
    async fn run(mut self) {
        let mut watch = watch_object(self.api.clone(), NAME).default_backoff().boxed();
        let mut bundle = self.bundle.clone();
        let mut has_bundle_sender = true;
        let mut read = tokio::time::interval_at(Instant::now() + READ_INTERVAL, READ_INTERVAL);
        read.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let newest = self.bundle.borrow().clone();
            let state = classify(self.found.as_ref(), &self.own, &newest);
            if self.is_current {
                self.log_change(&state);
            }
            self.report_trust(&state, &newest);
            let write_at = self.write_at;
            tokio::select! {
                () = tokio::time::sleep_until(write_at), if state == ApiServiceState::Unregistered => {
                    self.write_bundle().await;
                }
                changed = bundle.changed(), if has_bundle_sender => has_bundle_sender = changed.is_ok(),
                Some(found) = watch.next() => self.handle_watch(found),
                _ = read.tick() => self.read().await,
            }
        }
    }

    fn handle_watch(&mut self, found: watcher::Result<Option<APIService>>) {
        self.interruptions.log_error(found.as_ref().err());
        if let Ok(found) = found {
            (self.found, self.is_current) = (found, true);
        }
    }

    /// Independent of the watch.
    async fn read(&mut self) {
        match tokio::time::timeout(CALL_TIMEOUT, self.api.get_opt(NAME)).await {
            Ok(Ok(found)) => (self.found, self.is_current) = (found, true),
            Ok(Err(error)) => {
                tracing::debug!(error = call("get").describe_failure(&error), "Reading APIService failed");
                self.is_current = false;
            }
            Err(_) => self.is_current = false,
        }
    }

    fn report_trust(&self, state: &ApiServiceState, bundle: &[u8]) {
        match state {
            ApiServiceState::Registered { .. }
            | ApiServiceState::Absent
            | ApiServiceState::Foreign { .. }
            | ApiServiceState::Unverified
                if self.is_current =>
            {
                self.trust.report(bundle);
            }
            _ => self.trust.report_unknown(),
        }
    }

    fn log_change(&mut self, state: &ApiServiceState) {
        if self.logged.as_ref() == Some(state) {
            return;
        }
        match state {
            ApiServiceState::Foreign { service } => tracing::error!(
                "APIService {NAME} belongs to {service}; leaving it unchanged. HPAs get external metrics from that server and \
                 not from wva. Delete it, or disable the external metrics API of wva"
            ),
            ApiServiceState::Absent => tracing::warn!("APIService {NAME} does not exist; waiting for it"),
            ApiServiceState::Unverified => tracing::warn!(
                "APIService {NAME} has insecureSkipTLSVerify: other servers can serve values in place of wva. Remove the field; \
                 wva then sets the CA bundle"
            ),
            ApiServiceState::Registered { available: true } => {
                tracing::info!("APIService {NAME} is available: HPAs can read external metrics");
            }
            ApiServiceState::Registered { available: false } => {
                let condition = availability(self.found.as_ref());
                let reason = condition.and_then(|condition| condition.message.as_deref()).unwrap_or_default();
                if self.logged == Some(ApiServiceState::Registered { available: true }) {
                    tracing::warn!(
                        reason,
                        "APIService {NAME} is not available: HPAs read no external metrics, and no namespace of the cluster \
                         can be deleted. Check the network policies and firewalls between the API server and port 6443 of wva"
                    );
                } else {
                    tracing::info!(
                        reason,
                        "APIService {NAME} has the CA bundle of wva; waiting until the API server reaches it"
                    );
                }
            }
            ApiServiceState::NoBundle | ApiServiceState::Unregistered => {}
        }
        self.logged = Some(state.clone());
    }

    async fn write_bundle(&mut self) {
        let bundle = self.bundle.borrow().clone();
        // JSON, because the type would write empty fields and own them.
        let patch = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": NAME}, "spec": {"caBundle": ByteString(bundle)},
        });
        // Replaces a bundle that was edited by hand.
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&patch);
        let written = tokio::time::timeout(CALL_TIMEOUT, self.api.patch(NAME, &params, &patch)).await;
        let pause = self.backoff.next_delay();
        self.write_at = Instant::now() + pause;
        match written {
            Ok(Ok(found)) => {
                self.backoff.reset();
                self.found = Some(found);
            }
            Ok(Err(error)) => {
                let error = call("patch").describe_failure(&error);
                tracing::warn!(error, ?pause, "Could not set the CA bundle of APIService {NAME}");
            }
            Err(_) => {
                tracing::warn!(?pause, "Could not set the CA bundle of APIService {NAME}: no answer in time");
            }
        }
    }
}

#[cfg(test)]
mod tests;
