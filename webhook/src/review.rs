//! From the bytes of an `AdmissionReview` to the JSON of its answer. An invalid body gets an error message instead of a
//! verdict.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::http::StatusCode;
use k8s_openapi::ByteString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use wva_crds::names::{GROUP, KIND};
use wva_objects::Target;
use wva_rules::{
    Facts, InstancePolicy, InstanceScope, MapNames, Operation, Running, Verdict, mutate, validate,
};
use wva_runtime::spans;

use crate::client_ca::ClientCa;
use crate::cluster::{ClusterFacts, TargetState};
use crate::config_maps::{Refusal, validate_config_map};
use crate::decode::{self, decode};
use crate::metrics::Metrics;

/// Path of the mutating reviews of `VariantAutoscaling`.
pub const MUTATE_PATH: &str = "/mutate-llmd-ai-v1alpha1-variantautoscaling";
/// Path of the validating reviews of `VariantAutoscaling`.
pub const VALIDATE_PATH: &str = "/validate-llmd-ai-v1alpha1-variantautoscaling";
/// Path of the reviews of ConfigMaps.
pub const CONFIG_MAP_PATH: &str = "/validate-v1-configmap";

/// Age of a variant up to which its autoscaler may follow in the same apply.
const APPLY_TIME: SignedDuration = SignedDuration::from_mins(2);

/// Settings that verdicts depend on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `CONTROLLER_INSTANCE`.
    pub instance: Option<String>,
    /// `WVA_INSTANCE_POLICY`.
    pub policy: InstancePolicy,
    /// Names of the ConfigMaps that the controller reads.
    pub maps: MapNames,
    /// Settings of the running process.
    pub running: Running,
    /// `None`: callers are not verified.
    pub client_ca: Option<Arc<ClientCa>>,
}

impl Settings {
    /// Settings with default ConfigMap names and no known values of the process.
    #[must_use]
    pub fn new(instance: Option<String>, policy: InstancePolicy) -> Self {
        Self { instance, policy, maps: MapNames::default(), running: Running::default(), client_ca: None }
    }
}

/// Shared by all reviews.
pub struct State {
    pub(crate) settings: Settings,
    pub(crate) cluster: Arc<dyn ClusterFacts>,
    pub(crate) refusals: Option<mpsc::Sender<Refusal>>,
    pub(crate) metrics: Metrics,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl State {
    /// Registers the metrics. Refused changes of immutable keys go to `refusals`.
    ///
    /// # Errors
    /// The registry already has metrics of these names.
    pub fn new(
        settings: Settings,
        cluster: Arc<dyn ClusterFacts>,
        refusals: Option<mpsc::Sender<Refusal>>,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        Ok(Self { settings, cluster, refusals, metrics: Metrics::register(registry)? })
    }
}

const INSTANCE_LABEL_POINTER: &str = "/metadata/labels/wva.llmd.ai~1controller-instance";

/// Bytes. An update of a 1 MiB ConfigMap stays far below. Row "a hundred times its size" of `make test-bad-input`.
const MAX_DECODED_BYTES: usize = 16 << 20;

/// One for each path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Mutate,
    Validate,
    ConfigMap,
}

impl Phase {
    const fn object_kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Mutate | Self::Validate => (GROUP, KIND),
            Self::ConfigMap => ("", "ConfigMap"),
        }
    }

    /// Name in URLs and metrics.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::Mutate | Self::Validate => wva_crds::names::PLURAL,
            Self::ConfigMap => "configmaps",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Result<Value, String>,
    pub(crate) operation: &'static str,
    pub(crate) allowed: bool,
    pub(crate) code: u16,
}

impl Answer {
    /// Answer to an invalid or interrupted review.
    pub(crate) fn without_verdict(status: StatusCode, message: impl Into<String>) -> Self {
        let body = Err(message.into());
        Self { status, body, operation: "other", allowed: false, code: status.as_u16() }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The caller proved to be the API server, so the user it names can be trusted.
    pub(crate) is_verified: bool,
    /// The caller no longer waits.
    pub(crate) cancelled: &'a AtomicBool,
}

pub(crate) fn answer_review(state: &State, phase: Phase, body: &[u8], call: Call<'_>) -> Answer {
    let review = match decode(body, MAX_DECODED_BYTES) {
        Ok(review) => review,
        Err(error @ decode::Error::Syntax(_)) => {
            return Answer::without_verdict(StatusCode::BAD_REQUEST, error.to_string());
        }
        Err(error @ decode::Error::MemoryLimit(_)) => {
            return Answer::without_verdict(StatusCode::PAYLOAD_TOO_LARGE, error.to_string());
        }
    };
    match Request::parse(&review, phase, call) {
        Ok(request) => {
            let span = spans::review(&sanitize(request.uid), phase.resource(), request.operation_label);
            span.in_scope(|| judge(state, phase, &request))
        }
        Err(message) => Answer::without_verdict(StatusCode::BAD_REQUEST, message),
    }
}

pub(crate) struct Request<'a> {
    pub(crate) call: Call<'a>,
    uid: &'a str,
    pub(crate) namespace: &'a str,
    user: &'a str,
    operation: Option<Operation>,
    operation_label: &'static str,
    is_subresource: bool,
    pub(crate) is_dry_run: bool,
    pub(crate) object: &'a Value,
    pub(crate) old: Option<&'a Value>,
}

impl<'a> Request<'a> {
    fn parse(review: &'a Value, phase: Phase, call: Call<'a>) -> Result<Self, String> {
        let (group, kind) = phase.object_kind();
        let text = |pointer: &str| review.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if (text("/apiVersion"), text("/kind")) != ("admission.k8s.io/v1", "AdmissionReview") {
            return Err("the body is not an AdmissionReview of admission.k8s.io/v1".to_owned());
        }
        let uid = text("/request/uid");
        if uid.is_empty() {
            return Err("the AdmissionReview has no request with a uid".to_owned());
        }
        if (text("/request/kind/group"), text("/request/kind/kind")) != (group, kind) {
            let group = if group.is_empty() { "the core group" } else { group };
            return Err(format!(
                "this path reviews only {kind} of {group}: check rules and path of the webhook configuration"
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
            is_subresource: !text("/request/subResource").is_empty(),
            is_dry_run: review.pointer("/request/dryRun").and_then(Value::as_bool).unwrap_or_default(),
            object: object("/request/object").unwrap_or(&Value::Null),
            old: object("/request/oldObject"),
        })
    }

    /// User of a verified call.
    pub(crate) fn user(&self) -> Option<String> {
        self.call.is_verified.then(|| sanitize(self.user))
    }

    /// User of an unverified call.
    pub(crate) fn unverified_user(&self) -> Option<String> {
        (!self.call.is_verified).then(|| sanitize(self.user))
    }
}

fn judge(state: &State, phase: Phase, request: &Request<'_>) -> Answer {
    let verdict = match request.operation {
        // Status and scale subresources are always admitted, even if an edited webhook configuration sends them.
        Some(operation) if !request.is_subresource && operation != Operation::Delete => match phase {
            Phase::ConfigMap => validate_config_map(state, operation, request),
            Phase::Mutate | Phase::Validate => judge_variant(state, phase, operation, request),
        },
        _ => Verdict::default(),
    };
    let is_denied = verdict.is_denied();
    if is_denied {
        let codes: Vec<&str> = verdict.denials().map(|v| v.code).collect();
        tracing::info!(
            codes = codes.join(","),
            user = request.user(),
            unverified_user = request.unverified_user(),
            namespace = sanitize(request.namespace),
            name = sanitize(&verdict.name),
            operation = request.operation_label,
            kind = verdict.kind,
            "Admission denied"
        );
    }
    Answer {
        status: StatusCode::OK,
        body: Ok(admission_review(request.uid, &verdict)),
        operation: request.operation_label,
        allowed: !is_denied,
        code: if is_denied { 422 } else { 200 },
    }
}

/// Text for log lines: at most 256 characters, without control characters.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(256).collect()
}

fn judge_variant(state: &State, phase: Phase, operation: Operation, request: &Request<'_>) -> Verdict {
    let (cluster, namespace) = (&state.cluster, request.namespace);
    // First: caches that are complete now are complete in the lookups below.
    let is_synced = cluster.is_synced();
    let text = |pointer| request.object.pointer(pointer).and_then(Value::as_str);
    let target = Target::from_object(request.object);
    let lookups = target.as_ref().map(|t| {
        (
            cluster.variants_with_target(namespace, t),
            cluster.metric_readers(namespace, t),
            cluster.target(namespace, t),
        )
    });
    let (other_variants, readers, target_state) = lookups.unwrap_or_default();
    let variant_with_own_cost = text("/spec/modelID").and_then(|model| {
        cluster.variant_with_own_cost(namespace, model, text("/metadata/name").unwrap_or_default())
    });
    // New unlabelled objects reach an instance only through the entry of its own namespaces. The API server may know
    // the namespace's label before our watch does.
    let is_unlabelled = request.object.pointer(INSTANCE_LABEL_POINTER).is_none();
    let is_selected_by_entry =
        operation == Operation::Create && state.settings.instance.is_some() && is_unlabelled;
    let facts = Facts {
        operation,
        old: request.old,
        instance: state.settings.instance.as_deref(),
        policy: state.settings.policy,
        instance_scope: InstanceScope::Own,
        is_namespace_owned: is_selected_by_entry || cluster.is_namespace_owned(namespace),
        namespace: cluster.namespace_state(namespace),
        controller_namespace: cluster.controller_namespace(),
        is_synced,
        other_variants: &other_variants,
        variant_with_own_cost: variant_with_own_cost.as_deref(),
        readers: &readers.readers,
        has_all_readers: readers.is_complete && !is_being_applied(operation, request.object),
        target_exists: target_state.map(|state| state != TargetState::Absent),
        is_accelerator_known: target_state.and_then(|state| match state {
            TargetState::Present { is_accelerator_known } => Some(is_accelerator_known),
            TargetState::Absent => None,
        }),
        ..Facts::new(request.object)
    };
    match phase {
        Phase::Mutate => mutate(&facts),
        _ => validate(&facts),
    }
}

/// Whether autoscalers of the same apply may follow.
fn is_being_applied(operation: Operation, object: &Value) -> bool {
    let created = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    let created = created.and_then(|text| text.parse::<Timestamp>().ok());
    operation == Operation::Create
        || created.is_some_and(|created| Timestamp::now().duration_since(created) < APPLY_TIME)
}

fn admission_review(uid: &str, verdict: &Verdict) -> Value {
    let mut response = json!({ "uid": uid, "allowed": !verdict.is_denied() });
    if let Some(status) = verdict.to_status() {
        response["status"] = json!(status);
    }
    if !verdict.warnings.is_empty() {
        response["warnings"] = json!(verdict.warnings);
    }
    if !verdict.patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        // As base64.
        response["patch"] = json!(ByteString(json!(verdict.patch).to_string().into_bytes()));
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
}
