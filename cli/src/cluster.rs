//! Read-only access to a cluster. Errors separate objects that do not exist from objects that cannot be listed.

use std::time::Duration;

use clap::ArgMatches;
use hyper::Request;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::ListParams;
use serde_json::{Value, json};
use wva_crds::manifest;
use wva_crds::names::{EXCLUDE_ANNOTATION, GROUP, KIND, PLURAL, VERSION};
use wva_crds::settings::without_password;
use wva_rules::{KubernetesVersion, Owner};
use wva_runtime::crd::{CrdSchemaError, missing_fields};

use crate::arguments::{kube_options, value, values};

const TIMEOUT: Duration = Duration::from_secs(15);
/// Path of the CRD.
pub(super) const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/variantautoscalings.llmd.ai";
const PAGE_SIZE: u32 = 500;
const MAX_PAGES: usize = 200;

#[derive(Debug)]
pub(super) struct Resource {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    is_namespaced: bool,
}

const fn namespaced(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> Resource {
    Resource { group, version, plural, kind, is_namespaced: true }
}

const fn cluster_scoped(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> Resource {
    Resource { group, version, plural, kind, is_namespaced: false }
}

pub(super) const VARIANTS: Resource = namespaced(GROUP, VERSION, PLURAL, KIND);
pub(super) const DEPLOYMENTS: Resource = namespaced("apps", "v1", "deployments", "Deployment");
pub(super) const STATEFUL_SETS: Resource = namespaced("apps", "v1", "statefulsets", "StatefulSet");
pub(super) const LEADER_WORKER_SETS: Resource =
    namespaced("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet");
pub(super) const PODS: Resource = namespaced("", "v1", "pods", "Pod");
pub(super) const CONFIG_MAPS: Resource = namespaced("", "v1", "configmaps", "ConfigMap");
pub(super) const SERVICES: Resource = namespaced("", "v1", "services", "Service");
pub(super) const SERVICE_MONITORS: Resource =
    namespaced("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor");
pub(super) const POD_MONITORS: Resource =
    namespaced("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor");
pub(super) const PROMETHEUS_RULES: Resource =
    namespaced("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule");
pub(super) const AUTOSCALERS: Resource =
    namespaced("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler");
pub(super) const SCALED_OBJECTS: Resource =
    namespaced("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject");
pub(super) const INFERENCE_POOLS: Resource =
    namespaced("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool");
pub(super) const OLDER_INFERENCE_POOLS: Resource =
    namespaced("inference.networking.x-k8s.io", "v1alpha2", "inferencepools", "InferencePool");
pub(super) const HTTP_ROUTES: Resource =
    namespaced("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute");
pub(super) const RESOURCE_CLAIM_TEMPLATES: Resource =
    namespaced("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate");
pub(super) const NETWORK_POLICIES: Resource =
    namespaced("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy");
pub(super) const DEVICE_CLASSES: Resource =
    cluster_scoped("resource.k8s.io", "v1", "deviceclasses", "DeviceClass");
pub(super) const NAMESPACES: Resource = cluster_scoped("", "v1", "namespaces", "Namespace");
pub(super) const NODES: Resource = cluster_scoped("", "v1", "nodes", "Node");
pub(super) const VALIDATING_WEBHOOKS: Resource = cluster_scoped(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration",
);

/// Kinds that a variant can scale.
pub(super) const WORKLOADS: [&Resource; 3] = [&DEPLOYMENTS, &STATEFUL_SETS, &LEADER_WORKER_SETS];

#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("the cluster has no {0}")]
    KindMissing(&'static str),
    #[error("no permission to list {what}: ask for the `list` right, or choose a namespace with -n")]
    Forbidden { what: String },
    #[error("cannot list {plural}: {problem}")]
    Failed { plural: &'static str, problem: String },
    #[error("--selector {selector:?}: {problem}; write labels such as app=llama,tier!=test")]
    Selector { selector: String, problem: String },
    #[error("more than {max} {what}: choose a namespace with -n", max = MAX_PAGES * PAGE_SIZE as usize)]
    TooMany { what: String },
}

impl ListError {
    /// Whether the kind is not installed.
    pub(super) fn is_kind_missing(&self) -> bool {
        matches!(self, Self::KindMissing(_))
    }
}

pub(super) struct ApiError {
    /// The HTTP status; 0 without an answer.
    pub(super) code: u16,
    pub(super) message: String,
}

/// Cluster, or one namespace of it.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) server: String,
    pub(super) namespace: Option<String>,
}

impl Cluster {
    /// Connects to the cluster and the namespace that the options choose.
    pub(super) async fn connect(arguments: &ArgMatches) -> anyhow::Result<Self> {
        let mut cluster = Self::connect_everywhere(arguments).await?;
        if !arguments.get_flag("all-namespaces") {
            let namespace = value(arguments, "namespace").unwrap_or(cluster.client.default_namespace());
            cluster.namespace = Some(namespace.to_owned());
        }
        Ok(cluster)
    }

    /// Connects to all namespaces of the cluster that the options choose.
    pub(super) async fn connect_everywhere(arguments: &ArgMatches) -> anyhow::Result<Self> {
        let (client, server) =
            wva_runtime::client::client_with_url(&kube_options(arguments), TIMEOUT).await?;
        Ok(Self { client, server: without_password(&server), namespace: None })
    }

    /// The VariantAutoscalings that `-l` and the names choose.
    pub(super) async fn list_variants(&self, arguments: &ArgMatches) -> anyhow::Result<Vec<Value>> {
        let selector = value(arguments, "selector").unwrap_or_default();
        let mut variants = self.list_labelled(&VARIANTS, selector).await.map_err(|error| match error {
            ListError::Failed { problem, .. } if problem.starts_with("unable to parse requirement") => {
                ListError::Selector { selector: selector.to_owned(), problem }
            }
            other => other,
        })?;
        let names = values(arguments, "name");
        if let Some(missing) = names.iter().find(|name| !variants.iter().any(|v| id(v).name == **name)) {
            anyhow::bail!(
                "no such VariantAutoscaling {}: {missing}; list them with `kubectl get va -A`",
                self.scope()
            );
        }
        variants.retain(|variant| names.is_empty() || names.contains(&id(variant).name.as_str()));
        variants.sort_by_key(id);
        Ok(variants)
    }

    /// `in namespace prod`.
    pub(super) fn scope(&self) -> String {
        self.namespace.as_ref().map_or_else(
            || "in any namespace".to_owned(),
            |namespace| format!("in namespace {namespace} (-A shows all)"),
        )
    }

    pub(super) async fn list(&self, resource: &Resource) -> Result<Vec<Value>, ListError> {
        self.list_labelled(resource, "").await
    }

    pub(super) async fn list_labelled(
        &self,
        resource: &Resource,
        selector: &str,
    ) -> Result<Vec<Value>, ListError> {
        self.list_pages(resource, &ListParams::default().labels(selector)).await
    }

    pub(super) async fn list_named(&self, resource: &Resource, name: &str) -> Result<Vec<Value>, ListError> {
        self.list_pages(resource, &ListParams::default().fields(&format!("metadata.name={name}"))).await
    }

    async fn list_pages(&self, resource: &Resource, filter: &ListParams) -> Result<Vec<Value>, ListError> {
        let plural = resource.plural;
        let namespace = self.namespace.as_deref().filter(|_| resource.is_namespaced);
        let path = list_path(resource, namespace);
        let failed = |problem: String| ListError::Failed { plural, problem };
        let (mut all, mut next) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let mut params = filter.clone().limit(PAGE_SIZE);
            if !next.is_empty() {
                params = params.continue_token(&next);
            }
            let request = kube::core::Request::new(&path).list(&params).map_err(|e| failed(e.to_string()))?;
            let mut page: Value = match self.request(request).await {
                Ok(page) => page,
                Err(ApiError { code: 404, .. }) => return Err(ListError::KindMissing(plural)),
                Err(ApiError { code: 403, .. }) => {
                    return Err(ListError::Forbidden { what: list_name(resource, namespace) });
                }
                Err(ApiError { message, .. }) => return Err(failed(message)),
            };
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                all.extend(items.into_iter().map(|item| with_kind(item, resource)));
            }
            text(&page, "/metadata/continue").clone_into(&mut next);
            if next.is_empty() {
                return Ok(all);
            }
        }
        Err(ListError::TooMany { what: list_name(resource, namespace) })
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|e| ApiError { code: 0, message: e.to_string() })?;
        self.request(request).await
    }

    /// `None` if the API server names none.
    pub(super) async fn kubernetes_version(&self) -> Option<KubernetesVersion> {
        let answer = self.get("/version").await.ok()?;
        text(&answer, "/gitVersion").parse().ok()
    }

    /// Fields of this release that the installed CRD lacks.
    pub(super) async fn missing_crd_fields(&self) -> Result<Vec<String>, CrdSchemaError> {
        missing_fields(&self.client, &manifest::crd()).await
    }

    /// How to update the CRD: a command, or the owner that would undo or refuse it later. Helm installs the CRD of a chart's
    /// `crds` once and never upgrades it, so a release owns the CRD only if it is one of its objects.
    pub(super) async fn crd_update(&self) -> String {
        let crd = self.get(CRD).await.unwrap_or_default();
        match Owner::of(&crd) {
            None | Some(Owner::Helm(None)) => {
                "wva crd | kubectl apply --server-side --force-conflicts -f -".to_owned()
            }
            Some(owner @ Owner::Helm(_)) => {
                format!("it is an object of {owner}: upgrade that release to a chart of this release")
            }
            Some(owner) => owner.advice(),
        }
    }

    pub(super) async fn get_labelled(&self, path: &str, selector: &str) -> Result<Value, ApiError> {
        let request = kube::core::Request::new(path).list(&ListParams::default().labels(selector));
        let request = request.map_err(|e| ApiError { code: 0, message: e.to_string() })?;
        self.request(request).await
    }

    async fn request(&self, request: Request<Vec<u8>>) -> Result<Value, ApiError> {
        match tokio::time::timeout(TIMEOUT, self.client.request::<Value>(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(kube::Error::Api(status))) => Err(ApiError { code: status.code, message: status.message }),
            Ok(Err(other)) => Err(ApiError { code: 0, message: connection_error(&self.server, &other) }),
            Err(_) => {
                let message = format!("the API server did not answer within {} s", TIMEOUT.as_secs());
                Err(ApiError { code: 0, message })
            }
        }
    }
}

/// Mostly the kubeconfig has the wrong context.
pub(super) fn connection_error(server: &str, error: &kube::Error) -> String {
    let causes = wva_runtime::text::causes(error);
    format!(
        "no valid answer from the API server {server}: check KUBECONFIG and its current context: {causes}"
    )
}

fn list_path(resource: &Resource, namespace: Option<&str>) -> String {
    let Resource { group, version, plural, .. } = resource;
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    match namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

/// `pods in namespace prod`.
fn list_name(resource: &Resource, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{} in namespace {namespace}", resource.plural),
        None if resource.is_namespaced => format!("{} in all namespaces", resource.plural),
        None => resource.plural.to_owned(),
    }
}

/// Adds `apiVersion` and `kind`, which list items lack.
fn with_kind(mut item: Value, resource: &Resource) -> Value {
    let Resource { group, version, kind, .. } = resource;
    let api_version = if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
    if let Some(item) = item.as_object_mut() {
        item.insert("apiVersion".to_owned(), json!(api_version));
        item.insert("kind".to_owned(), json!(kind));
    }
    item
}

/// String in an object; empty if missing.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn number(object: &Value, pointer: &str) -> Option<u64> {
    object.pointer(pointer).and_then(Value::as_u64)
}

/// Entry of a string map in an object. The key may contain slashes.
pub(super) fn entry<'a>(object: &'a Value, map: &str, key: &str) -> Option<&'a str> {
    object.pointer(map)?.get(key)?.as_str()
}

pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectId {
    /// Empty for cluster-scoped objects.
    pub(super) namespace: String,
    pub(super) name: String,
}

pub(super) fn id(object: &Value) -> ObjectId {
    let text = |pointer| text(object, pointer).to_owned();
    ObjectId { namespace: text("/metadata/namespace"), name: text("/metadata/name") }
}

pub(super) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").find(|condition| text(condition, "/type") == type_)
}

pub(super) fn elapsed_since(timestamp: &str, now: Timestamp) -> Option<SignedDuration> {
    Some(now.duration_since(timestamp.parse().ok()?))
}

/// Time since a controller last confirmed the target.
pub(super) fn target_age(variant: &Value, now: Timestamp) -> Option<SignedDuration> {
    elapsed_since(text(variant, "/status/desiredOptimizedAlloc/lastRunTime"), now).map(SignedDuration::abs)
}

pub(super) fn is_excluded(namespaces: &[Value], name: &str) -> bool {
    let namespace = namespaces.iter().find(|namespace| text(namespace, "/metadata/name") == name);
    namespace.and_then(|it| entry(it, "/metadata/annotations", EXCLUDE_ANNOTATION)) == Some("true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_api_paths() {
        assert_eq!(list_path(&PODS, Some("a")), "/api/v1/namespaces/a/pods");
        assert_eq!(list_path(&DEPLOYMENTS, None), "/apis/apps/v1/deployments");
        assert_eq!(with_kind(json!({}), &PODS), json!({"apiVersion": "v1", "kind": "Pod"}));
    }

    #[test]
    fn reads_missing_fields_as_empty() {
        let object = json!({"metadata": {"name": "a", "labels": {"x/y": "z"}}, "n": 3, "list": [1]});
        assert_eq!(id(&object), ObjectId { name: "a".to_owned(), ..ObjectId::default() });
        assert_eq!(entry(&object, "/metadata/labels", "x/y"), Some("z"));
        assert_eq!(entry(&object, "/metadata/annotations", "x/y"), None);
        assert_eq!((number(&object, "/n"), number(&object, "/list")), (Some(3), None));
        assert_eq!(items(&object, "/list").count() + items(&object, "/none").count(), 1);
    }
}
