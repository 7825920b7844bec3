//! Opens the door that the chart draws: sets `spec.caBundle` of the `APIService` `v1beta1.external.metrics.k8s.io`, and
//! keeps it set. There is one for the whole cluster, so one that names somebody else's Service is left alone.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
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

/// The `APIService`'s name.
const NAME: &str = "v1beta1.external.metrics.k8s.io";
/// Owner of `spec.caBundle` in server-side apply.
const FIELD_MANAGER: &str = "wva";
/// Between two looks without an event: a watch can break without a word.
const LOOK: Duration = Duration::from_secs(10);
/// One call to the API server.
const CALL: Duration = Duration::from_secs(10);
/// Pause after a failed write, doubled up to the longest; also the least distance of two writes, so that two writers
/// who disagree do not chase each other.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The Service that leads to this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnService {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// What is to be done about the `APIService`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// There is no CA to write yet.
    NoBundle,
    /// It does not exist, or has not been seen.
    Absent,
    /// It leads to this Service.
    SomebodyElses { whose: String },
    /// It asks for no verification; the API server refuses a CA bundle beside that.
    Unverified,
    /// Ours, with another bundle or none.
    Shut,
    /// Ours, and right.
    Open,
}

fn judge(found: Option<&APIService>, own: &OwnService, bundle: &[u8]) -> Verdict {
    let Some(spec) = found.map(|found| found.spec.clone().unwrap_or_default()) else {
        return Verdict::Absent;
    };
    let whose = match spec.service {
        None => "the API server itself".to_owned(),
        Some(service) => {
            format!("{}/{}", service.namespace.unwrap_or_default(), service.name.unwrap_or_default())
        }
    };
    if whose != format!("{}/{}", own.namespace, own.name) {
        return Verdict::SomebodyElses { whose };
    }
    if bundle.is_empty() {
        return Verdict::NoBundle;
    }
    if spec.insecure_skip_tls_verify == Some(true) {
        return Verdict::Unverified;
    }
    if spec.ca_bundle.is_some_and(|ca| ca.0 == bundle) { Verdict::Open } else { Verdict::Shut }
}

/// Keeps the `APIService` open with the newest of `bundle` (PEM) until `shutdown`, by server-side apply, and tells
/// `trust` what it carries: one that is absent, somebody else's or unverified trusts nothing of ours. To be run by the
/// leader; two that run it at once do no harm. Needs `get`, `list`, `watch` and `patch` on this `APIService`.
pub async fn keep_open(
    client: kube::Client,
    own: OwnService,
    bundle: watch::Receiver<Vec<u8>>,
    trust: TrustReporter,
    shutdown: CancellationToken,
) {
    trust.report_unknown();
    let task = Task {
        api: Api::all(client),
        own,
        bundle,
        trust,
        found: None,
        synced: false,
        said: None,
        write_at: Instant::now(),
        backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        interruptions: InterruptionLogger::new("watch of the APIService", None),
    };
    tokio::select! {
        // First: who does not lead any more must not write, however late it learns of that.
        biased;
        () = shutdown.cancelled() => {}
        () = Box::pin(task.run()) => {}
    }
}

struct Task {
    api: Api<APIService>,
    own: OwnService,
    bundle: watch::Receiver<Vec<u8>>,
    trust: TrustReporter,
    found: Option<APIService>,
    /// What was found is what there is.
    synced: bool,
    said: Option<Verdict>,
    /// No write before this.
    write_at: Instant,
    backoff: Backoff,
    interruptions: InterruptionLogger,
}

/// A request about the APIService.
fn call(verb: &str) -> ApiCall<'_> {
    ApiCall { verb, resource: "apiservices", namespace: "", name: NAME }
}

impl Task {
    async fn run(mut self) {
        let mut watch = watch_object(self.api.clone(), NAME).default_backoff().boxed();
        let mut bundle = self.bundle.clone();
        let mut bundles_end = false;
        let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let newest = self.bundle.borrow().clone();
            let verdict = judge(self.found.as_ref(), &self.own, &newest);
            if self.synced {
                self.say(&verdict);
            }
            self.report(&verdict, &newest);
            let write_at = self.write_at;
            tokio::select! {
                () = tokio::time::sleep_until(write_at), if verdict == Verdict::Shut => self.open().await,
                changed = bundle.changed(), if !bundles_end => bundles_end = changed.is_err(),
                Some(found) = watch.next() => self.seen(found),
                _ = look.tick() => self.look().await,
            }
        }
    }

    fn seen(&mut self, found: watcher::Result<Option<APIService>>) {
        self.interruptions.log_error(found.as_ref().err());
        if let Ok(found) = found {
            (self.found, self.synced) = (found, true);
        }
    }

    /// Reads it again, whatever the watch said.
    async fn look(&mut self) {
        match tokio::time::timeout(CALL, self.api.get_opt(NAME)).await {
            Ok(Ok(found)) => (self.found, self.synced) = (found, true),
            Ok(Err(error)) => {
                tracing::debug!(error = call("get").describe_failure(&error), "Could not read APIService");
                self.synced = false;
            }
            Err(_) => self.synced = false,
        }
    }

    fn report(&self, verdict: &Verdict, bundle: &[u8]) {
        match verdict {
            Verdict::Open | Verdict::Absent | Verdict::SomebodyElses { .. } | Verdict::Unverified
                if self.synced =>
            {
                self.trust.report(bundle);
            }
            _ => self.trust.report_unknown(),
        }
    }

    /// Says a verdict once.
    fn say(&mut self, verdict: &Verdict) {
        if self.said.as_ref() == Some(verdict) {
            return;
        }
        match verdict {
            Verdict::SomebodyElses { whose } => tracing::error!(
                "APIService {NAME} belongs to {whose}: left alone. A cluster has one; HPAs get their values from that \
                 server and not from here. Delete it, or turn this program's external metrics off"
            ),
            Verdict::Absent => tracing::warn!("APIService {NAME} does not exist: waiting for it"),
            Verdict::Unverified => tracing::warn!(
                "APIService {NAME} has insecureSkipTLSVerify: anybody in between can serve other values. Remove it, \
                 and the CA bundle will be set"
            ),
            Verdict::Open => tracing::info!("APIService {NAME} is open: HPAs reach the external metrics"),
            Verdict::NoBundle | Verdict::Shut => {}
        }
        self.said = Some(verdict.clone());
    }

    async fn open(&mut self) {
        let bundle = self.bundle.borrow().clone();
        // JSON and not the type, which would send empty fields and take ownership of them.
        let patch = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": NAME}, "spec": {"caBundle": ByteString(bundle)},
        });
        // Forced: a bundle that somebody edited by hand would otherwise stay theirs, and wrong, for ever.
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&patch);
        let written = tokio::time::timeout(CALL, self.api.patch(NAME, &params, &patch)).await;
        let pause = self.backoff.next_delay();
        self.write_at = Instant::now() + pause;
        match written {
            Ok(Ok(found)) => {
                self.backoff.reset();
                self.found = Some(found);
            }
            Ok(Err(error)) => {
                let error = call("patch").describe_failure(&error);
                tracing::warn!(error, ?pause, "Could not open APIService {NAME}");
            }
            Err(_) => {
                tracing::warn!(?pause, "Could not open APIService {NAME}: no answer in time");
            }
        }
    }
}

#[cfg(test)]
mod tests;
