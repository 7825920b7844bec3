//! Everything that the checks look at, read once. What cannot be read is left empty and said in one line: the rest can
//! still be followed.

use std::collections::BTreeMap;

use clap::ArgMatches;
use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::Timestamp;
use kube::core::Selector;
use serde_json::Value;
use wva_crds::names::is_desired_replicas;
use wva_scaling::{Decision, Outcome, decide};

use super::controllers::{Controller, controllers};
use crate::cluster::{
    AUTOSCALERS, Cluster, NAMESPACES, ObjectId, POD_MONITORS, PODS, Refusal, Resource, SCALED_OBJECTS,
    SERVICE_MONITORS, SERVICES, VARIANTS, condition, id, items, text,
};
use crate::leader::Leaders;
use crate::prometheus::{Prometheus, Series};
use crate::workloads::Workloads;

/// Questions to the external metrics API at the same time.
const AT_ONCE: usize = 8;
/// Which models the series of each pod are of, each of the two main signals by itself.
const MODELS: &str = r#"count by (__name__, namespace, pod, pod_name, model_name) ({__name__=~"vllm:(kv_cache_usage_perc|num_requests_waiting)"})"#;
/// Queues of engines that are scraped more than once, with all labels.
const DUPLICATES: &str = "vllm:num_requests_waiting and on (namespace, pod, pod_name, model_name, engine) (count by (namespace, pod, pod_name, model_name, engine) (vllm:num_requests_waiting) > 1)";
/// What controllers publish.
pub(super) const SIGNALS: &str = r#"{__name__=~"(wva|inferno)_desired_replicas"}"#;
/// How a person looks at the APIService that HPAs read external metrics from.
pub(super) const DESCRIBE_API_SERVICE: &str = "kubectl describe apiservice v1beta1.external.metrics.k8s.io";
/// The same for this command.
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io";

/// What the external metrics API answered to one metric of an HPA.
pub(super) struct Answered {
    pub(super) metric: String,
    /// The values, or what it said instead.
    pub(super) values: Result<Vec<Value>, String>,
}

/// What Prometheus has.
pub(super) struct Scraped {
    /// By metric, pod and `model_name`.
    pub(super) models: Vec<Series>,
    /// Of engines that are scraped more than once.
    pub(super) duplicates: Vec<Series>,
    /// Of all controllers.
    pub(super) signals: Vec<Series>,
}

/// A kind, or a part of it, that could not be seen.
pub(super) struct HiddenKind {
    pub(super) plural: &'static str,
    pub(super) why: String,
}

/// All that was read.
pub(super) struct Facts {
    pub(super) now: Timestamp,
    pub(super) variants: Vec<Value>,
    pub(super) workloads: Workloads,
    pub(super) pods: Vec<Value>,
    pub(super) services: Vec<Value>,
    pub(super) service_monitors: Vec<Value>,
    pub(super) pod_monitors: Vec<Value>,
    pub(super) autoscalers: Vec<Value>,
    pub(super) scaled_objects: Vec<Value>,
    pub(super) namespaces: Vec<Value>,
    /// Those that run; `None` where nobody could look.
    pub(super) controllers: Option<Vec<Controller>>,
    pub(super) leaders: Leaders,
    /// What the leaders decided of their last cycle, by namespace and name.
    pub(super) decisions: BTreeMap<ObjectId, Decision>,
    /// By namespace and name of the HPA.
    pub(super) external: BTreeMap<ObjectId, Vec<Answered>>,
    /// `None`: there is none, or it cannot be seen.
    pub(super) api_service: Option<Value>,
    /// Fields that the CRD lacks, or why nobody knows.
    pub(super) crd_lacks: Result<Vec<String>, String>,
    /// `None` where nobody named a Prometheus.
    pub(super) scraped: Option<Result<Scraped, String>>,
    /// Kinds that could not be read.
    pub(super) hidden: Vec<HiddenKind>,
}

impl Facts {
    /// Reads them.
    ///
    /// # Errors
    /// Where not even the variants can be read.
    pub(super) async fn read(cluster: &Cluster, arguments: &ArgMatches) -> anyhow::Result<Self> {
        let prometheus = Prometheus::from_options(arguments)?;
        let variants = cluster.list(&VARIANTS).await?;
        let mut hidden = Vec::new();
        let autoscalers = seen(cluster, &AUTOSCALERS, &mut hidden).await;
        let leaders = Leaders::ask(arguments).await;
        let decided = decided(&leaders);
        // A monitor may stand in any namespace.
        let everywhere = Cluster { namespace: None, ..cluster.clone() };
        Ok(Self {
            now: Timestamp::now(),
            variants,
            workloads: Workloads::read(cluster).await,
            pods: seen(cluster, &PODS, &mut hidden).await,
            services: seen(cluster, &SERVICES, &mut hidden).await,
            service_monitors: seen(&everywhere, &SERVICE_MONITORS, &mut hidden).await,
            pod_monitors: seen(&everywhere, &POD_MONITORS, &mut hidden).await,
            external: external(cluster, &autoscalers).await,
            autoscalers,
            scaled_objects: seen(cluster, &SCALED_OBJECTS, &mut hidden).await,
            namespaces: seen(cluster, &NAMESPACES, &mut hidden).await,
            controllers: controllers(cluster, arguments, &mut hidden).await,
            decisions: decisions(&decided),
            leaders,
            api_service: api_service(cluster, &mut hidden).await,
            crd_lacks: wva_controller::missing_fields(&cluster.client).await.map_err(|e| e.to_string()),
            scraped: match prometheus {
                Some(prometheus) => Some(scraped(&prometheus).await),
                None => None,
            },
            hidden,
        })
    }

    /// Why a kind could not be read; `None` where it could.
    pub(super) fn hidden(&self, plural: &str) -> Option<&str> {
        self.hidden.iter().find(|hidden| hidden.plural == plural).map(|hidden| hidden.why.as_str())
    }
}

async fn seen(cluster: &Cluster, of: &Resource, hidden: &mut Vec<HiddenKind>) -> Vec<Value> {
    match cluster.list(of).await {
        Ok(found) => found,
        Err(error) if error.is_no_kind() => Vec::new(),
        Err(error) => {
            hidden.push(HiddenKind { plural: of.plural, why: error.to_string() });
            Vec::new()
        }
    }
}

async fn api_service(cluster: &Cluster, hidden: &mut Vec<HiddenKind>) -> Option<Value> {
    match cluster.get(API_SERVICE).await {
        Ok(service) => Some(service),
        Err(Refusal { code: 404, .. }) => None,
        Err(Refusal { said, .. }) => {
            hidden.push(HiddenKind { plural: "apiservices", why: said });
            None
        }
    }
}

/// The same that they decided: it follows from what they saw.
pub(super) fn decided(leaders: &Leaders) -> Vec<Outcome> {
    leaders.seen.iter().map(|leader| decide(&leader.snapshot)).collect()
}

pub(super) fn decisions(decided: &[Outcome]) -> BTreeMap<ObjectId, Decision> {
    let all = decided.iter().flat_map(|outcome| &outcome.decisions);
    let id = |d: &Decision| ObjectId { namespace: d.namespace.clone(), name: d.variant.clone() };
    all.map(|decision| (id(decision), decision.clone())).collect()
}

async fn scraped(prometheus: &Prometheus) -> Result<Scraped, String> {
    Ok(Scraped {
        models: prometheus.series(MODELS).await?,
        duplicates: prometheus.series(DUPLICATES).await?,
        signals: prometheus.series(SIGNALS).await?,
    })
}

/// What each HPA that follows the metric is told.
async fn external(cluster: &Cluster, autoscalers: &[Value]) -> BTreeMap<ObjectId, Vec<Answered>> {
    let asked = autoscalers.iter().flat_map(|hpa| metrics(hpa).map(move |metric| (id(hpa), metric)));
    let answers: Vec<_> = stream::iter(asked)
        .map(|(hpa, metric)| async move {
            let answered = ask(cluster, &hpa.namespace, metric).await;
            (hpa, answered)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut all: BTreeMap<ObjectId, Vec<Answered>> = BTreeMap::new();
    for (hpa, answered) in answers {
        all.entry(hpa).or_default().push(answered);
    }
    all
}

/// What serves external metrics.
pub(super) struct MetricsServer {
    /// Its Service, for people.
    pub(super) text: String,
    pub(super) is_available: bool,
}

/// What serves external metrics by its APIService.
pub(super) fn served_by(service: &Value) -> MetricsServer {
    let (namespace, name) = (text(service, "/spec/service/namespace"), text(service, "/spec/service/name"));
    let whose = format!("served by {namespace}/{name}");
    match condition(service, "Available").filter(|available| text(available, "/status") != "True") {
        Some(failing) => MetricsServer {
            text: format!("{whose}, which is not available: {}", text(failing, "/message")),
            is_available: false,
        },
        None => MetricsServer { text: whose, is_available: true },
    }
}

/// The external metrics of this program that an HPA follows.
pub(super) fn metrics(hpa: &Value) -> impl Iterator<Item = &Value> {
    let ours = |metric: &&Value| {
        text(metric, "/type") == "External" && is_desired_replicas(text(metric, "/external/metric/name"))
    };
    items(hpa, "/spec/metrics").filter(ours)
}

/// Asks as the HPA controller does.
async fn ask(cluster: &Cluster, namespace: &str, metric: &Value) -> Answered {
    let name = text(metric, "/external/metric/name").to_owned();
    let selector = metric.pointer("/external/metric/selector").cloned().unwrap_or_default();
    let selector: LabelSelector = serde_json::from_value(selector).unwrap_or_default();
    let labels = Selector::try_from(selector).map(|selector| selector.to_string()).unwrap_or_default();
    let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}");
    let values = match cluster.get_selected(&path, &labels).await {
        Ok(mut list) => Ok(list.get_mut("items").map(Value::take).and_then(array).unwrap_or_default()),
        Err(Refusal { code: 0, said }) => Err(said),
        Err(Refusal { code, said }) => Err(format!("{code} {said}")),
    };
    Answered { metric: name, values }
}

fn array(value: Value) -> Option<Vec<Value>> {
    if let Value::Array(values) = value { Some(values) } else { None }
}
