//! Reviews of the ConfigMaps that the program reads, and what a refused change of an immutable key leaves behind: a
//! line in the log and an event on the map.

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
use wva_crds::events::{ImmutableChange, immutable_change};
use wva_rules::{IMMUTABLE, MapFacts, MapRole, Operation, Place, Verdict, validate_map};
use wva_runtime::api_call::ApiCall;

use crate::review::{Request, State};

/// Refusals that wait to be told. More at once say nothing new; the log has each.
const QUEUE: usize = 32;
/// The same refusal is told once in this time: a pipeline that retries every few seconds is no news.
const QUIET: Duration = Duration::from_mins(10);
/// How long one event may take to be written.
const WRITE: Duration = Duration::from_secs(10);

/// A refused change of an immutable key.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    namespace: String,
    name: String,
    uid: Option<String>,
    note: String,
}

/// Where reviews leave refusals to be told.
#[derive(Clone, Debug)]
pub struct Refusals(mpsc::Sender<Refusal>);

/// The refusals, to be told by [`tell`].
#[derive(Debug)]
pub struct RefusalsToTell(mpsc::Receiver<Refusal>);

/// A bounded way from reviews, which wait for nothing, to the task that writes events.
#[must_use]
pub fn refusals() -> (Refusals, RefusalsToTell) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Refusals(sender), RefusalsToTell(receiver))
}

/// Refusals of one map with the same words.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RefusalKey {
    namespace: String,
    name: String,
    note: String,
}

/// Writes the events of refusals until shutdown. One that cannot be written is dropped with a line in the log.
pub async fn tell(
    client: Client,
    reporter: String,
    mut refusals: RefusalsToTell,
    shutdown: CancellationToken,
) {
    let mut told: BTreeMap<RefusalKey, Instant> = BTreeMap::new();
    while let Some(Some(refusal)) = shutdown.run_until_cancelled(refusals.0.recv()).await {
        let now = Instant::now();
        told.retain(|_, at| now.duration_since(*at) < QUIET);
        let key = RefusalKey {
            namespace: refusal.namespace.clone(),
            name: refusal.name.clone(),
            note: refusal.note.clone(),
        };
        // Bounded, whatever is refused: a flood of different ones loses its events, not its lines in the log.
        if told.contains_key(&key) || told.len() >= QUEUE {
            continue;
        }
        told.insert(key, now);
        let api: Api<Event> = Api::namespaced(client.clone(), &refusal.namespace);
        let event = immutable_change(&ImmutableChange {
            namespace: &refusal.namespace,
            name: &refusal.name,
            uid: refusal.uid.as_deref(),
            note: &refusal.note,
            reporter: Some(&reporter),
            at: Timestamp::now(),
        });
        match tokio::time::timeout(WRITE, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let namespace = &refusal.namespace;
                let call = ApiCall { verb: "create", resource: "events", namespace, name: "" };
                tracing::warn!(
                    error = call.failed(&error),
                    "The event of a refused change could not be written"
                );
            }
            Err(_) => tracing::warn!("The API server takes no event of a refused change in time"),
        }
    }
}

/// Judges a ConfigMap. One that has nothing to do with this controller is admitted without a word.
pub(crate) fn verdict(state: &State, operation: Operation, request: &Request<'_>) -> Verdict {
    let settings = &state.settings;
    let text = |pointer| request.object.pointer(pointer).and_then(Value::as_str).filter(|t| !t.is_empty());
    let Some(name) = text("/metadata/name") else { return Verdict::default() };
    let Some(role) = settings.maps.role(request.namespace, name) else { return Verdict::default() };
    let instead = match role.1 {
        Place::Unread => format!("{}/{name}", settings.maps.namespace),
        Place::Global => read_instead(state, role.0, name).unwrap_or_default(),
        Place::Local => String::new(),
    };
    // What a map of a namespace inherits. Of caches that are not complete, another map may be the first.
    let inherits = role.1 == Place::Local && state.cluster.synced();
    let global = inherits.then(|| state.cluster.global_map(role.0)).flatten();
    let mut facts = MapFacts::of(request.object, request.namespace, role);
    facts.global = global.as_ref();
    facts.operation = operation;
    facts.old = request.old;
    facts.read_instead = &instead;
    facts.running = Some(&settings.running);
    facts.cancelled = Some(request.call.cancelled);
    facts.tracked = state.cluster.synced().then(|| state.cluster.config_tracked(request.namespace)).flatten();
    let verdict = validate_map(&facts);
    if !request.dry_run {
        leave_traces(state, request, &verdict);
    }
    verdict
}

/// The name of the global map that comes before this one, where there is one: of each kind the first alone is read.
fn read_instead(state: &State, role: MapRole, name: &str) -> Option<String> {
    let first = state.cluster.synced().then(|| state.cluster.global_map(role)).flatten()?;
    let first = first.pointer("/metadata/name")?.as_str()?;
    let order = state.settings.maps.in_order(role);
    let position = |name: &str| order.iter().position(|known| *known == name);
    (position(first)? < position(name)?).then(|| first.to_owned())
}

fn leave_traces(state: &State, request: &Request<'_>, verdict: &Verdict) {
    let immutable: Vec<_> = verdict.denials().filter(|v| v.code == IMMUTABLE).collect();
    if immutable.is_empty() {
        return;
    }
    let keys: Vec<&str> = immutable.iter().map(|v| v.field.as_str()).collect();
    tracing::warn!(
        namespace = request.namespace,
        name = verdict.name,
        user = request.user(),
        unverified_user = request.unverified_user(),
        keys = keys.join(", "),
        "Attempted to change immutable parameters"
    );
    let uid = |object: Option<&Value>| object?.pointer("/metadata/uid")?.as_str().map(str::to_owned);
    let refusal = Refusal {
        namespace: request.namespace.to_owned(),
        name: verdict.name.clone(),
        uid: uid(request.old),
        // The values and the command stand in the answer to whoever asked.
        note: format!(
            "Refused a change of {}{}: read at the start alone. The answer to the request says how to change it",
            keys.join(", "),
            request.user().map(|user| format!(" by {user}")).unwrap_or_default()
        ),
    };
    // A full queue drops the event and not the review.
    if let Some(refusals) = &state.refusals {
        drop(refusals.0.try_send(refusal));
    }
}
