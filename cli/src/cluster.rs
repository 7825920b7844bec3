//! Objects of a cluster as they are stored, for the commands that look at one from outside. Nothing is written here.
//! Lists are read in pages, and how long and how many is bounded; what cannot be seen is told apart from what is not
//! there.

use std::time::Duration;

use hyper::Request;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::ListParams;
use serde_json::{Value, json};
use wva_crds::names::{EXCLUDE_ANNOTATION, GROUP, KIND, PLURAL, VERSION};
use wva_crds::settings::without_password;

/// For one answer of the API server.
const PATIENCE: Duration = Duration::from_secs(15);
/// Objects of one page.
const PAGE: u32 = 500;
/// Pages of one kind.
const PAGES: usize = 200;

/// A kind, and where its objects are found.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    /// Its objects have a namespace.
    namespaced: bool,
}

const fn namespaced(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> Resource {
    Resource { group, version, plural, kind, namespaced: true }
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
pub(super) const AUTOSCALERS: Resource =
    namespaced("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler");
pub(super) const SCALED_OBJECTS: Resource =
    namespaced("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject");
pub(super) const NAMESPACES: Resource =
    Resource { group: "", version: "v1", plural: "namespaces", kind: "Namespace", namespaced: false };

/// The kinds that are scaled.
pub(super) const WORKLOADS: [&Resource; 3] = [&DEPLOYMENTS, &STATEFUL_SETS, &LEADER_WORKER_SETS];

/// Why objects of a kind were not seen.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unseen {
    #[error("the cluster has no {0}")]
    NoKind(&'static str),
    #[error(
        "you may not list {plural} {place}: ask for the right to `list` them, or name a namespace in which you may with \
         -n"
    )]
    Forbidden { plural: &'static str, place: String },
    #[error("cannot read {what}: {problem}")]
    Failed { what: String, problem: String },
    #[error("more than {most} {plural} {place}: name a namespace with -n", most = PAGES * PAGE as usize)]
    TooMany { plural: &'static str, place: String },
}

impl Unseen {
    /// The cluster does not know the kind, so that there are none.
    pub(super) fn is_no_kind(&self) -> bool {
        matches!(self, Self::NoKind(_))
    }
}

/// A cluster, or one namespace of it.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    /// The URL of the API server.
    pub(super) server: String,
    pub(super) namespace: Option<String>,
}

impl Cluster {
    /// The cluster of the kubeconfig or the service account.
    pub(super) async fn connect(namespace: Option<String>) -> anyhow::Result<Self> {
        let (client, server) = wva_runtime::client::client_with_url(PATIENCE).await?;
        Ok(Self { client, server: without_password(&server), namespace })
    }

    /// All objects of a kind, each with its kind.
    pub(super) async fn list(&self, of: &Resource) -> Result<Vec<Value>, Unseen> {
        self.select(of, "").await
    }

    /// Those with some labels alone.
    pub(super) async fn select(&self, of: &Resource, labels: &str) -> Result<Vec<Value>, Unseen> {
        self.pages(of, &ListParams::default().labels(labels)).await
    }

    /// Those with one name, in every namespace that is read.
    pub(super) async fn with_name(&self, of: &Resource, name: &str) -> Result<Vec<Value>, Unseen> {
        self.pages(of, &ListParams::default().fields(&format!("metadata.name={name}"))).await
    }

    async fn pages(&self, of: &Resource, wanted: &ListParams) -> Result<Vec<Value>, Unseen> {
        let namespace = self.namespace.as_deref().filter(|_| of.namespaced);
        let path = path(of, namespace);
        let (mut all, mut next) = (Vec::new(), String::new());
        for _ in 0..PAGES {
            let mut params = wanted.clone().limit(PAGE);
            if !next.is_empty() {
                params = params.continue_token(&next);
            }
            let failed = |problem: String| Unseen::Failed { what: of.plural.to_owned(), problem };
            let request = kube::core::Request::new(&path).list(&params).map_err(|e| failed(e.to_string()))?;
            let mut page: Value = match self.ask(request).await {
                Ok(page) => page,
                Err(Refusal { code: 404, .. }) => return Err(Unseen::NoKind(of.plural)),
                Err(Refusal { code: 403, .. }) => {
                    return Err(Unseen::Forbidden { plural: of.plural, place: place(namespace) });
                }
                Err(Refusal { said, .. }) => return Err(failed(said)),
            };
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                all.extend(items.into_iter().map(|item| with_kind(item, of)));
            }
            text(&page, "/metadata/continue").clone_into(&mut next);
            if next.is_empty() {
                return Ok(all);
            }
        }
        Err(Unseen::TooMany { plural: of.plural, place: place(namespace) })
    }

    /// What the API server answers to a path.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Refusal> {
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|e| Refusal { code: 0, said: e.to_string() })?;
        self.ask(request).await
    }

    /// What it answers to a path with a selector.
    pub(super) async fn get_selected(&self, path: &str, labels: &str) -> Result<Value, Refusal> {
        let request = kube::core::Request::new(path).list(&ListParams::default().labels(labels));
        let request = request.map_err(|e| Refusal { code: 0, said: e.to_string() })?;
        self.ask(request).await
    }

    async fn ask(&self, request: Request<Vec<u8>>) -> Result<Value, Refusal> {
        match tokio::time::timeout(PATIENCE, self.client.request::<Value>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(Refusal { code: status.code, said: status.message }),
            Ok(Err(other)) => Err(Refusal { code: 0, said: unanswered(&self.server, &other) }),
            Err(_) => {
                let said = format!("the API server did not answer within {} s", PATIENCE.as_secs());
                Err(Refusal { code: 0, said })
            }
        }
    }
}

/// Why an API server gave no usable answer: most often it is that of another context.
pub(super) fn unanswered(server: &str, error: &kube::Error) -> String {
    let causes = wva_crds::text::causes(error);
    format!("{server} gives no answer of an API server: check KUBECONFIG and its current context: {causes}")
}

/// Why the API server gave no answer to a path.
pub(super) struct Refusal {
    /// The HTTP status; 0 where there was none.
    pub(super) code: u16,
    pub(super) said: String,
}

fn path(of: &Resource, namespace: Option<&str>) -> String {
    let Resource { group, version, plural, .. } = of;
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    match namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

fn place(namespace: Option<&str>) -> String {
    namespace.map_or_else(|| "in all namespaces".to_owned(), |name| format!("in namespace {name}"))
}

/// Items of a list do not say what they are.
fn with_kind(mut item: Value, of: &Resource) -> Value {
    let version =
        if of.group.is_empty() { of.version.to_owned() } else { format!("{}/{}", of.group, of.version) };
    if let Some(item) = item.as_object_mut() {
        item.insert("apiVersion".to_owned(), json!(version));
        item.insert("kind".to_owned(), json!(of.kind));
    }
    item
}

/// A text in an object, empty where there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A whole number in an object.
pub(super) fn number(object: &Value, pointer: &str) -> Option<u64> {
    object.pointer(pointer).and_then(Value::as_u64)
}

/// An entry of a map of texts in an object, such as a label, whose key may hold slashes.
pub(super) fn entry<'a>(object: &'a Value, map: &str, key: &str) -> Option<&'a str> {
    object.pointer(map)?.get(key)?.as_str()
}

/// A list in an object.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Names an object of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectId {
    /// Empty where the object has none.
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Namespace and name.
pub(super) fn id(object: &Value) -> ObjectId {
    let text = |pointer| text(object, pointer).to_owned();
    ObjectId { namespace: text("/metadata/namespace"), name: text("/metadata/name") }
}

/// A condition of an object's status.
pub(super) fn condition<'a>(object: &'a Value, of: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").find(|condition| text(condition, "/type") == of)
}

/// Time since a time of the API server.
pub(super) fn since(at: &str, now: Timestamp) -> Option<SignedDuration> {
    Some(now.duration_since(at.parse().ok()?))
}

/// Time since a controller last confirmed the target of a variant.
pub(super) fn confirmed(variant: &Value, now: Timestamp) -> Option<SignedDuration> {
    since(text(variant, "/status/desiredOptimizedAlloc/lastRunTime"), now).map(SignedDuration::abs)
}

/// Whether a namespace is excluded by its annotation.
pub(super) fn is_excluded(namespaces: &[Value], name: &str) -> bool {
    let namespace = namespaces.iter().find(|namespace| text(namespace, "/metadata/name") == name);
    namespace.and_then(|it| entry(it, "/metadata/annotations", EXCLUDE_ANNOTATION)) == Some("true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api_server() {
        assert_eq!(path(&PODS, Some("a")), "/api/v1/namespaces/a/pods");
        assert_eq!(path(&DEPLOYMENTS, None), "/apis/apps/v1/deployments");
        assert_eq!(with_kind(json!({}), &PODS), json!({"apiVersion": "v1", "kind": "Pod"}));
    }

    #[test]
    fn what_is_not_there_is_empty() {
        let object = json!({"metadata": {"name": "a", "labels": {"x/y": "z"}}, "n": 3, "list": [1]});
        assert_eq!(id(&object), ObjectId { name: "a".to_owned(), ..ObjectId::default() });
        assert_eq!(entry(&object, "/metadata/labels", "x/y"), Some("z"));
        assert_eq!(entry(&object, "/metadata/annotations", "x/y"), None);
        assert_eq!((number(&object, "/n"), number(&object, "/list")), (Some(3), None));
        assert_eq!(items(&object, "/list").count() + items(&object, "/none").count(), 1);
    }
}
