//! One review: from the bytes of an `AdmissionReview` to the bytes of its answer. Pure but for metrics and the log
//! line of a refusal; every way in which a body can be wrong ends in a message that says how.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::http::StatusCode;
use k8s_openapi::ByteString;
use prometheus::Registry;
use serde_json::{Value, json};
use wva_crds::names::{GROUP, KIND};
use wva_rules::{
    Facts, InstancePolicy, MapNames, Operation, Reach, Running, Target, Verdict, mutate, validate,
};
use wva_runtime::spans;

use crate::client_ca::ClientCa;
use crate::cluster::{ClusterFacts, TargetState};
use crate::config_maps::{self, Refusals};
use crate::decode::{self, decode};
use crate::metrics::Metrics;

/// Path of the mutating reviews of `VariantAutoscaling`.
pub const MUTATE_PATH: &str = "/mutate-llmd-ai-v1alpha1-variantautoscaling";
/// Path of the validating reviews of `VariantAutoscaling`.
pub const VALIDATE_PATH: &str = "/validate-llmd-ai-v1alpha1-variantautoscaling";
/// Path of the reviews of ConfigMaps.
pub const CONFIG_MAP_PATH: &str = "/validate-v1-configmap";

/// The settings that verdicts depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `CONTROLLER_INSTANCE`.
    pub instance: Option<String>,
    /// What the instance does with unlabelled objects.
    pub policy: InstancePolicy,
    /// The ConfigMaps that are read.
    pub maps: MapNames,
    /// What the process was started with.
    pub running: Running,
    /// The CA of the API server's client certificate; `None`: callers are not verified.
    pub client_ca: Option<Arc<ClientCa>>,
}

impl Settings {
    /// Settings of an instance, or of none, with the ConfigMaps' default names and nothing known of the process.
    #[must_use]
    pub fn of(instance: Option<String>, policy: InstancePolicy) -> Self {
        Self { instance, policy, maps: MapNames::default(), running: Running::default(), client_ca: None }
    }
}

/// What reviews need: settings, facts of the cluster, and the metrics of their outcome.
pub struct State {
    pub(crate) settings: Settings,
    pub(crate) cluster: Arc<dyn ClusterFacts>,
    pub(crate) refusals: Option<Refusals>,
    pub(crate) metrics: Metrics,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl State {
    /// Registers the metrics of reviews. Refused changes of immutable keys go to `refusals`, where there is one.
    ///
    /// # Errors
    /// When the registry holds metrics of these names already.
    pub fn new(
        settings: Settings,
        cluster: Arc<dyn ClusterFacts>,
        refusals: Option<Refusals>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        Ok(Self { settings, cluster, refusals, metrics: Metrics::register(registry)? })
    }
}

/// JSON pointer to the label `wva.llmd.ai/controller-instance`.
const INSTANCE_LABEL_POINTER: &str = "/metadata/labels/wva.llmd.ai~1controller-instance";

/// The most bytes of memory that a review takes once it is read. A map of a megabyte is far below, before and after a
/// change together, unless it is all of the smallest keys there are. Row "a hundred times its size" of
/// `make test-bad-input`.
const DECODED: usize = 16 << 20;

/// Which webhook asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Mutate,
    Validate,
    ConfigMap,
}

impl Phase {
    /// Group and kind of the objects it judges.
    const fn judges(self) -> (&'static str, &'static str) {
        match self {
            Self::Mutate | Self::Validate => (GROUP, KIND),
            Self::ConfigMap => ("", "ConfigMap"),
        }
    }

    /// The resource, as in URLs and metrics.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::Mutate | Self::Validate => wva_crds::names::PLURAL,
            Self::ConfigMap => "configmaps",
        }
    }
}

/// An answer to a review, or to what should have been one.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Result<Value, String>,
    pub(crate) operation: &'static str,
    pub(crate) allowed: bool,
    /// The code of the verdict, for metrics.
    pub(crate) code: u16,
}

impl Answer {
    /// No verdict: the body is no review that this server can judge.
    pub(crate) fn unjudged(status: StatusCode, message: impl Into<String>) -> Self {
        let body = Err(message.into());
        Self { status, body, operation: "other", allowed: false, code: status.as_u16() }
    }
}

/// What the server knows about a call beyond its body.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The caller showed that it is the API server: the user that it names is the one who asked it.
    pub(crate) verified: bool,
    /// Set once the answer is not awaited any more.
    pub(crate) cancelled: &'a AtomicBool,
}

/// Judges the review in `body`.
pub(crate) fn answer(state: &State, phase: Phase, body: &[u8], call: Call<'_>) -> Answer {
    let review = match decode(body, DECODED) {
        Ok(review) => review,
        Err(error @ decode::Error::Syntax(_)) => {
            return Answer::unjudged(StatusCode::BAD_REQUEST, error.to_string());
        }
        Err(error @ decode::Error::TooMuch(_)) => {
            return Answer::unjudged(StatusCode::PAYLOAD_TOO_LARGE, error.to_string());
        }
    };
    match Request::parse(&review, phase.judges(), call) {
        Ok(request) => {
            let span = spans::review(&short(request.uid), phase.resource(), request.operation_label);
            span.in_scope(|| judged(state, phase, &request))
        }
        Err(message) => Answer::unjudged(StatusCode::BAD_REQUEST, message),
    }
}

/// The parts of a review's request that matter here.
pub(crate) struct Request<'a> {
    pub(crate) call: Call<'a>,
    uid: &'a str,
    pub(crate) namespace: &'a str,
    user: &'a str,
    operation: Option<Operation>,
    operation_label: &'static str,
    subresource: bool,
    pub(crate) dry_run: bool,
    pub(crate) object: &'a Value,
    pub(crate) old: Option<&'a Value>,
}

impl<'a> Request<'a> {
    fn parse(review: &'a Value, (group, kind): (&str, &str), call: Call<'a>) -> Result<Self, String> {
        let text = |pointer: &str| review.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if (text("/apiVersion"), text("/kind")) != ("admission.k8s.io/v1", "AdmissionReview") {
            return Err("the body is no AdmissionReview of admission.k8s.io/v1".to_owned());
        }
        let uid = text("/request/uid");
        if uid.is_empty() {
            return Err("the AdmissionReview has no request with a uid".to_owned());
        }
        if (text("/request/kind/group"), text("/request/kind/kind")) != (group, kind) {
            let group = if group.is_empty() { "the core group" } else { group };
            return Err(format!(
                "this path judges {kind} of {group} alone: check the webhook's rules and path"
            ));
        }
        let (operation, operation_label) = match text("/request/operation") {
            "CREATE" => (Some(Operation::Create), "CREATE"),
            "UPDATE" => (Some(Operation::Update), "UPDATE"),
            "DELETE" => (Some(Operation::Delete), "DELETE"),
            _ => (None, "other"),
        };
        let object = |pointer: &str| review.pointer(pointer).filter(|v| !v.is_null());
        Ok(Self {
            call,
            uid,
            namespace: text("/request/namespace"),
            user: text("/request/userInfo/username"),
            operation,
            operation_label,
            subresource: !text("/request/subResource").is_empty(),
            dry_run: review.pointer("/request/dryRun").and_then(Value::as_bool).unwrap_or_default(),
            object: object("/request/object").unwrap_or(&Value::Null),
            old: object("/request/oldObject"),
        })
    }

    /// The user of a verified call.
    pub(crate) fn user(&self) -> Option<String> {
        self.call.verified.then(|| short(self.user))
    }

    /// The user that any other call names, which proves nothing.
    pub(crate) fn unverified_user(&self) -> Option<String> {
        (!self.call.verified).then(|| short(self.user))
    }
}

fn judged(state: &State, phase: Phase, request: &Request<'_>) -> Answer {
    let verdict = match request.operation {
        // Status writes and scaling are never judged, whatever rules somebody gave the webhook.
        Some(operation) if !request.subresource && operation != Operation::Delete => match phase {
            Phase::ConfigMap => config_maps::verdict(state, operation, request),
            Phase::Mutate | Phase::Validate => verdict(state, phase, operation, request),
        },
        _ => Verdict::default(),
    };
    let denied = verdict.denied();
    if denied {
        let codes: Vec<&str> = verdict.denials().map(|v| v.code).collect();
        tracing::info!(
            codes = codes.join(","),
            user = request.user(),
            unverified_user = request.unverified_user(),
            namespace = short(request.namespace),
            name = short(&verdict.name),
            operation = request.operation_label,
            "Refused a {}",
            verdict.kind
        );
    }
    Answer {
        status: StatusCode::OK,
        body: Ok(respond(request.uid, &verdict)),
        operation: request.operation_label,
        allowed: !denied,
        code: if denied { 422 } else { 200 },
    }
}

/// As much of a client's text as a log line should carry, without control characters.
pub(crate) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(256).collect()
}

fn verdict(state: &State, phase: Phase, operation: Operation, request: &Request<'_>) -> Verdict {
    let (cluster, namespace) = (&state.cluster, request.namespace);
    // Asked first: what is complete now was complete when the rest is looked up.
    let synced = cluster.synced();
    let text = |pointer| request.object.pointer(pointer).and_then(Value::as_str);
    let target = Target::of(request.object);
    let of_target = target
        .as_ref()
        .map(|t| (cluster.others(namespace, t), cluster.readers(namespace, t), cluster.target(namespace, t)));
    let (others, readers, found) = of_target.unwrap_or_default();
    let cost_set_by = text("/spec/modelID")
        .and_then(|model| cluster.cost_set_by(namespace, model, text("/metadata/name").unwrap_or_default()));
    // An instance is asked about a new object without its label only by the entry whose selector has seen that the
    // namespace is the instance's own: the API server may know of the label before our watch does.
    let unlabelled = request.object.pointer(INSTANCE_LABEL_POINTER).is_none();
    let vouched = operation == Operation::Create && state.settings.instance.is_some() && unlabelled;
    let facts = Facts {
        operation,
        old: request.old,
        instance: state.settings.instance.as_deref(),
        policy: state.settings.policy,
        reach: Reach::Own,
        namespace_owned: vouched || cluster.namespace_owned(namespace),
        namespace: cluster.namespace(namespace),
        controller_namespace: cluster.controller_namespace(),
        synced,
        others: &others,
        cost_set_by: cost_set_by.as_deref(),
        readers: &readers.readers,
        readers_complete: readers.are_complete,
        target_exists: found.map(|f| f != TargetState::Absent),
        accelerator_derivable: found.and_then(|f| match f {
            TargetState::Present { accelerator_derivable } => Some(accelerator_derivable),
            TargetState::Absent => None,
        }),
        ..Facts::of(request.object)
    };
    match phase {
        Phase::Mutate => mutate(&facts),
        _ => validate(&facts),
    }
}

fn respond(uid: &str, verdict: &Verdict) -> Value {
    let mut response = json!({ "uid": uid, "allowed": !verdict.denied() });
    if let Some(status) = verdict.to_status() {
        response["status"] = json!(status);
    }
    if !verdict.warnings.is_empty() {
        response["warnings"] = json!(verdict.warnings);
    }
    if !verdict.patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        // Serializes as base64, which is how the API carries bytes.
        response["patch"] = json!(ByteString(json!(verdict.patch).to_string().into_bytes()));
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
}
