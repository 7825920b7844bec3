//! Reviews of ConfigMaps. A refused change of an immutable key is logged, and written as an event.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wva_crds::events::{EventSource, immutable_change};
use wva_crds::runbook_lines::IMMUTABLE_PARAMETERS_CHANGED;
use wva_rules::{IMMUTABLE, MapFacts, MapRole, MapScope, Operation, Verdict, validate_map};
use wva_runtime::api_call::ApiCall;

use crate::review::{Request, State};

/// Further refusals are only logged.
const QUEUE: usize = 32;
/// Least time between events about the same refusal, for pipelines that retry every few seconds.
const REPEAT_INTERVAL: Duration = Duration::from_mins(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A refused change of an immutable key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    namespace: String,
    name: String,
    uid: Option<String>,
    note: String,
}

/// Makes a bounded channel from reviews to [`write_refusal_events`]. Reviews never wait for it.
#[must_use]
pub fn refusal_channel() -> (mpsc::Sender<Refusal>, mpsc::Receiver<Refusal>) {
    mpsc::channel(QUEUE)
}

/// Writes events until shutdown. An event that cannot be written is dropped and logged.
pub async fn write_refusal_events(
    client: Client,
    source: EventSource,
    mut refusals: mpsc::Receiver<Refusal>,
    shutdown: CancellationToken,
) {
    let mut written: BTreeMap<Refusal, Instant> = BTreeMap::new();
    while let Some(Some(refusal)) = shutdown.run_until_cancelled(refusals.recv()).await {
        let now = Instant::now();
        written.retain(|_, at| now.duration_since(*at) < REPEAT_INTERVAL);
        // Without the uid: a recreated map does not get the same event again.
        let key = Refusal { uid: None, ..refusal.clone() };
        // Bounds the memory: a flood of different refusals loses its events, not its log lines.
        if written.contains_key(&key) || written.len() >= QUEUE {
            continue;
        }
        written.insert(key, now);
        let api: Api<Event> = Api::namespaced(client.clone(), &refusal.namespace);
        let Refusal { namespace, name, uid, note } = &refusal;
        let event = immutable_change(namespace, name, uid.as_deref(), note, &source, Timestamp::now());
        match tokio::time::timeout(WRITE_TIMEOUT, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let call = ApiCall { verb: "create", resource: "events", namespace, name: "" };
                tracing::warn!(
                    error = call.describe_failure(&error),
                    "Cannot write the event of a refused change"
                );
            }
            Err(_) => tracing::warn!(
                timeout = ?WRITE_TIMEOUT,
                "Cannot write the event of a refused change: the API server did not answer in time"
            ),
        }
    }
}

/// Admits maps that this controller does not read.
pub(crate) fn validate_config_map(state: &State, operation: Operation, request: &Request<'_>) -> Verdict {
    let settings = &state.settings;
    let text = |pointer| request.object.pointer(pointer).and_then(Value::as_str).filter(|t| !t.is_empty());
    let Some(name) = text("/metadata/name") else { return Verdict::default() };
    let Some((role, scope)) = settings.maps.role(request.namespace, name) else { return Verdict::default() };
    let read_instead = match scope {
        MapScope::Unread => format!("{}/{name}", settings.maps.namespace),
        MapScope::Global => preceding_map(state, role, name).unwrap_or_default(),
        MapScope::Local => String::new(),
    };
    // A local map inherits from the global one. Incomplete caches may show the wrong global map.
    let inherits = scope == MapScope::Local && state.cluster.is_synced();
    let global = inherits.then(|| state.cluster.global_map(role)).flatten();
    let mut facts = MapFacts::new(request.object, request.namespace, role, scope);
    facts.global = global.as_ref();
    facts.operation = operation;
    facts.old = request.old;
    facts.read_instead = &read_instead;
    facts.running = Some(&settings.running);
    facts.cancelled = Some(request.call.cancelled);
    facts.reads_local_maps =
        state.cluster.is_synced().then(|| state.cluster.reads_local_maps(request.namespace)).flatten();
    let verdict = validate_map(&facts);
    if !request.is_dry_run {
        report_refusal(state, request, &verdict);
    }
    verdict
}

/// Name of the global map that takes precedence over this one. Only the first map of each kind is read.
fn preceding_map(state: &State, role: MapRole, name: &str) -> Option<String> {
    let first = state.cluster.is_synced().then(|| state.cluster.global_map(role)).flatten()?;
    let first = first.pointer("/metadata/name")?.as_str()?;
    let order = state.settings.maps.global_names(role);
    let position = |name: &str| order.iter().position(|known| *known == name);
    (position(first)? < position(name)?).then(|| first.to_owned())
}

fn report_refusal(state: &State, request: &Request<'_>, verdict: &Verdict) {
    let immutable: Vec<_> = verdict.denials().filter(|v| v.code == IMMUTABLE).collect();
    if immutable.is_empty() {
        return;
    }
    let keys: Vec<&str> = immutable.iter().map(|v| v.field.as_str()).collect();
    // llm-d WVA logs the same message, and runbooks search for it.
    tracing::warn!(
        namespace = request.namespace,
        name = verdict.name,
        user = request.user(),
        unverified_user = request.unverified_user(),
        keys = keys.join(", "),
        "{IMMUTABLE_PARAMETERS_CHANGED}"
    );
    let uid = |object: Option<&Value>| object?.pointer("/metadata/uid")?.as_str().map(str::to_owned);
    let refusal = Refusal {
        namespace: request.namespace.to_owned(),
        name: verdict.name.clone(),
        uid: uid(request.old),
        // Only the answer to the request has the values and the command.
        note: format!(
            "Refused a change of {}{}: these settings need a restart. The answer to the request shows the command",
            keys.join(", "),
            request.user().map(|user| format!(" by {user}")).unwrap_or_default()
        ),
    };
    // A full queue drops the event, not the review.
    if let Some(refusals) = &state.refusals {
        drop(refusals.try_send(refusal));
    }
}
