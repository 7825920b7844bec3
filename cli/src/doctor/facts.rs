//! Input of all checks, read once. A kind that cannot be read is listed in `unreadable`; the checks continue.

use std::collections::BTreeMap;

use clap::ArgMatches;
use futures::future::OptionFuture;
use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::jiff::Timestamp;
use kube::core::Selector;
use serde_json::Value;
use wva_crds::picker_report::PickerReport;
use wva_objects::SignalSource;
use wva_objects::autoscaler::AutoscalerKind;
use wva_objects::servers::{ServerSignal, server_metrics};
use wva_rules::KubernetesVersion;
use wva_runtime::text::without_code;
use wva_scaling::{Decision, Outcome, decide};

use super::annotation_facts::AnnotationFacts;
use super::config_map_facts::ConfigMapFacts;
use super::controllers::{Controller, list_controllers};
use super::unreadable::{UnreadableKind, list_or_note};
use super::wait_limits::WaitLimits;
use crate::cluster::{
    AUTOSCALERS, ApiError, Cluster, DEVICE_CLASSES, NAMESPACES, ObjectId, POD_MONITORS, PODS,
    RESOURCE_CLAIM_TEMPLATES, SCALED_OBJECTS, SERVICE_MONITORS, SERVICES, condition, id, items, text,
};
use crate::gpus::ClaimTemplates;
use crate::leader::Leaders;
use crate::prometheus::{Prometheus, Series};
use crate::workloads::Workloads;

const CONCURRENCY: usize = 8;
/// Labels that tell the queues of one pod apart, of any model server.
pub(super) const ENGINE_LABELS: [&str; 10] = [
    "engine", "dp_rank", "tp_rank", "pp_rank", "moe_ep_rank", "priority", "request_type", "reason", "model",
    "version",
];
/// Labels that other collectors than Prometheus' own discovery give the pod of a series.
pub(super) const OTHER_POD_LABELS: [&str; 3] = ["k8s_pod_name", "kubernetes_pod_name", "exported_pod"];
/// The same of its namespace.
pub(super) const OTHER_NAMESPACE_LABELS: [&str; 3] =
    ["k8s_namespace_name", "kubernetes_namespace", "exported_namespace"];
pub(super) const SIGNALS: &str = r#"{__name__=~"(wva|inferno)_desired_replicas"}"#;
pub(super) const DESCRIBE_API_SERVICE: &str = "kubectl describe apiservice v1beta1.external.metrics.k8s.io";
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io";

pub(super) struct ExternalMetric {
    pub(super) metric: String,
    pub(super) values: Result<Vec<Value>, String>,
}

pub(super) struct PrometheusSeries {
    /// Main signals of model servers, by metric, pod (under any of its names) and `model_name`.
    pub(super) models: Vec<Series>,
    /// Series of engines that are scraped more than once.
    pub(super) duplicates: Vec<Series>,
    pub(super) signals: Vec<Series>,
}

/// What the checks read, by what they check.
pub(super) struct Facts {
    pub(super) now: Timestamp,
    pub(super) objects: Objects,
    pub(super) autoscaling: Autoscaling,
    pub(super) install: Install,
    pub(super) leader: LeaderFacts,
    pub(super) monitoring: Monitoring,
    pub(super) unreadable: Vec<UnreadableKind>,
}

/// Variants and what they scale.
pub(super) struct Objects {
    pub(super) variants: Vec<Value>,
    pub(super) namespaces: Vec<Value>,
    pub(super) workloads: Workloads,
    pub(super) pods: Vec<Value>,
    pub(super) claim_templates: ClaimTemplates,
}

/// Autoscalers and their way to the signal.
pub(super) struct Autoscaling {
    pub(super) hpas: Vec<Value>,
    pub(super) scaled_objects: Vec<Value>,
    pub(super) annotations: AnnotationFacts,
    /// Keys: HPAs.
    pub(super) external_metrics: BTreeMap<ObjectId, Vec<ExternalMetric>>,
    /// `None` if it does not exist or cannot be read.
    pub(super) api_service: Option<Value>,
}

/// What is installed in the cluster.
pub(super) struct Install {
    /// `None` if the API server names none.
    pub(super) kubernetes: Option<KubernetesVersion>,
    pub(super) controllers: Option<Vec<Controller>>,
    /// Deployments of wva that are scaled to 0 replicas.
    pub(super) stopped_controllers: Vec<Value>,
    pub(super) config_maps: ConfigMapFacts,
    /// Fields of this release that the installed CRD lacks.
    pub(super) missing_crd_fields: Result<Vec<String>, String>,
    /// How to update the CRD.
    pub(super) crd_update: String,
}

/// What the leaders know and decide.
pub(super) struct LeaderFacts {
    pub(super) leaders: Leaders,
    /// Decisions of their last cycle.
    pub(super) decisions: BTreeMap<ObjectId, Decision>,
    /// What they last read of endpoint pickers.
    pub(super) pickers: Vec<PickerReport>,
    pub(super) wait_limits: WaitLimits,
}

/// How Prometheus scrapes the pods, and what it has.
pub(super) struct Monitoring {
    pub(super) services: Vec<Value>,
    pub(super) service_monitors: Vec<Value>,
    pub(super) pod_monitors: Vec<Value>,
    /// `None` without `--prometheus`.
    pub(super) series: Option<Result<PrometheusSeries, String>>,
}

impl Facts {
    /// Reads cluster, leaders and Prometheus.
    ///
    /// # Errors
    /// The Prometheus options are wrong, or variants cannot be listed.
    pub(super) async fn read(cluster: &Cluster, arguments: &ArgMatches) -> anyhow::Result<Self> {
        let prometheus = Prometheus::from_options(arguments)?;
        let variants = cluster.list_variants(arguments).await?;
        let mut unreadable = Vec::new();
        let autoscaling = Autoscaling::read(cluster, &mut unreadable).await;
        let (leaders, pickers) = Leaders::fetch_with_pickers(arguments).await;
        let objects = Objects::read(cluster, variants, &mut unreadable).await;
        let wait_limits = WaitLimits::read(cluster, &pickers, &objects.pods, &mut unreadable).await;
        let decisions = index_decisions(&recompute(&leaders));
        Ok(Self {
            now: Timestamp::now(),
            install: Install::read(cluster, arguments, &objects.variants, &mut unreadable).await,
            leader: LeaderFacts { leaders, decisions, pickers, wait_limits },
            monitoring: Monitoring::read(cluster, prometheus.as_ref(), &mut unreadable).await,
            objects,
            autoscaling,
            unreadable,
        })
    }

    /// `None` if the kind was read.
    pub(super) fn unreadable_reason(&self, plural: &str) -> Option<&str> {
        self.unreadable.iter().find(|kind| kind.plural == plural).map(|kind| kind.reason.as_str())
    }
}

impl Objects {
    async fn read(cluster: &Cluster, variants: Vec<Value>, unreadable: &mut Vec<UnreadableKind>) -> Self {
        Self {
            variants,
            namespaces: list_or_note(cluster, &NAMESPACES, unreadable).await,
            workloads: Workloads::read(cluster).await,
            pods: list_or_note(cluster, &PODS, unreadable).await,
            claim_templates: read_claim_templates(cluster, unreadable).await,
        }
    }
}

impl Autoscaling {
    async fn read(cluster: &Cluster, unreadable: &mut Vec<UnreadableKind>) -> Self {
        let hpas = list_or_note(cluster, &AUTOSCALERS, unreadable).await;
        let scaled_objects = list_or_note(cluster, &SCALED_OBJECTS, unreadable).await;
        Self {
            annotations: AnnotationFacts::read(cluster, hpas.iter().chain(&scaled_objects), unreadable).await,
            external_metrics: query_external_metrics(cluster, &hpas).await,
            api_service: api_service_or_note(cluster, unreadable).await,
            hpas,
            scaled_objects,
        }
    }
}

impl Install {
    async fn read(
        cluster: &Cluster,
        arguments: &ArgMatches,
        variants: &[Value],
        unreadable: &mut Vec<UnreadableKind>,
    ) -> Self {
        let installed = list_controllers(cluster, arguments, unreadable).await;
        let (controllers, stopped_controllers) =
            installed.map_or((None, Vec::new()), |installed| (Some(installed.running), installed.stopped));
        let config_maps = ConfigMapFacts::read(cluster, controllers.as_deref(), variants, unreadable).await;
        Self {
            kubernetes: cluster.kubernetes_version().await,
            controllers,
            stopped_controllers,
            config_maps,
            missing_crd_fields: cluster.missing_crd_fields().await.map_err(|e| e.to_string()),
            crd_update: cluster.crd_update().await,
        }
    }
}

impl Monitoring {
    async fn read(
        cluster: &Cluster,
        prometheus: Option<&Prometheus>,
        unreadable: &mut Vec<UnreadableKind>,
    ) -> Self {
        // Monitors may be in any namespace.
        let everywhere = Cluster { namespace: None, ..cluster.clone() };
        Self {
            services: list_or_note(cluster, &SERVICES, unreadable).await,
            service_monitors: list_or_note(&everywhere, &SERVICE_MONITORS, unreadable).await,
            pod_monitors: list_or_note(&everywhere, &POD_MONITORS, unreadable).await,
            series: OptionFuture::from(prometheus.map(query_series)).await,
        }
    }
}

async fn read_claim_templates(cluster: &Cluster, unreadable: &mut Vec<UnreadableKind>) -> ClaimTemplates {
    let templates = list_or_note(cluster, &RESOURCE_CLAIM_TEMPLATES, unreadable).await;
    ClaimTemplates::new(&templates, &list_or_note(cluster, &DEVICE_CLASSES, unreadable).await)
}

/// The server of external metrics. `Ok(None)`: none is registered.
///
/// # Errors
/// The answer of the API server, as text.
pub(super) async fn get_api_service(cluster: &Cluster) -> Result<Option<Value>, String> {
    match cluster.get(API_SERVICE).await {
        Ok(service) => Ok(Some(service)),
        Err(ApiError { code: 404, .. }) => Ok(None),
        Err(ApiError { message, .. }) => Err(message),
    }
}

async fn api_service_or_note(cluster: &Cluster, unreadable: &mut Vec<UnreadableKind>) -> Option<Value> {
    get_api_service(cluster).await.unwrap_or_else(|reason| {
        unreadable.push(UnreadableKind { plural: "apiservices", reason });
        None
    })
}

/// Decides the leaders' snapshots again. The decisions are the leaders' own: deciding is deterministic.
pub(super) fn recompute(leaders: &Leaders) -> Vec<Outcome> {
    leaders.received.iter().map(|leader| decide(&leader.answer)).collect()
}

pub(super) fn index_decisions(outcomes: &[Outcome]) -> BTreeMap<ObjectId, Decision> {
    let all = outcomes.iter().flat_map(|outcome| &outcome.decisions);
    let id = |d: &Decision| ObjectId { namespace: d.key.namespace.clone(), name: d.key.name.clone() };
    all.map(|decision| (id(decision), decision.clone())).collect()
}

/// Main signals of all pods, by model name; also under names that a pipeline has changed. A pod without a request yet has
/// the counter that shows it.
fn main_signals() -> String {
    let names = metric_names(&[ServerSignal::KvUsage, ServerSignal::Waiting]).replace(':', "[:_.]");
    let unused = metric_names(&[ServerSignal::NoRequestYet]);
    let others = [OTHER_POD_LABELS, OTHER_NAMESPACE_LABELS].concat().join(", ");
    let by = format!("__name__, namespace, pod, pod_name, model_name, {others}");
    // It compares series without their names, so pods with main signals have no such counter.
    format!("count by ({by}) ({names}) or count by ({by}) ({unused} == 0)")
}

/// Pods of model servers that report, by namespace.
pub(super) fn server_pods() -> String {
    let names = metric_names(&[ServerSignal::Waiting]);
    format!("count by (namespace) (count by (namespace, pod) ({names}))")
}

/// Queues of engines that are scraped more than once.
fn duplicate_queues() -> String {
    let names = metric_names(&[ServerSignal::Waiting]);
    let by = format!("namespace, pod, pod_name, model_name, {}", ENGINE_LABELS.join(", "));
    format!("{names} and on (__name__, {by}) (count by (__name__, {by}) ({names}) > 1)")
}

/// Selector of these signals over all model servers.
fn metric_names(signals: &[ServerSignal]) -> String {
    let metrics = signals.iter().flat_map(|signal| server_metrics(*signal));
    let names: Vec<&str> = metrics.map(|(_, metric)| metric.name).collect();
    format!("{{__name__=~\"{}\"}}", names.join("|"))
}

async fn query_series(prometheus: &Prometheus) -> Result<PrometheusSeries, String> {
    Ok(PrometheusSeries {
        models: prometheus.series(&main_signals()).await?,
        duplicates: prometheus.series(&duplicate_queues()).await?,
        signals: prometheus.series(SIGNALS).await?,
    })
}

async fn query_external_metrics(
    cluster: &Cluster,
    autoscalers: &[Value],
) -> BTreeMap<ObjectId, Vec<ExternalMetric>> {
    let queries = autoscalers.iter().flat_map(|hpa| signal_metrics(hpa).map(move |metric| (id(hpa), metric)));
    let answers: Vec<_> = stream::iter(queries)
        .map(|(hpa, metric)| async move {
            let answer = query_external_metric(cluster, &hpa.namespace, metric).await;
            (hpa, answer)
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let mut all: BTreeMap<ObjectId, Vec<ExternalMetric>> = BTreeMap::new();
    for (hpa, answer) in answers {
        all.entry(hpa).or_default().push(answer);
    }
    all
}

pub(super) struct MetricsServer {
    /// Service of the server and, if it is not available, the cause.
    pub(super) text: String,
    pub(super) is_available: bool,
}

pub(super) fn metrics_server(service: &Value) -> MetricsServer {
    let (namespace, name) = (text(service, "/spec/service/namespace"), text(service, "/spec/service/name"));
    let server = format!("served by {namespace}/{name}");
    match condition(service, "Available").filter(|available| text(available, "/status") != "True") {
        Some(failing) => MetricsServer {
            text: format!("{server}, which is not available: {}", text(failing, "/message")),
            is_available: false,
        },
        None => MetricsServer { text: server, is_available: true },
    }
}

/// Whether wva itself serves external metrics.
pub(super) fn is_served_by_wva(service: &Value) -> bool {
    text(service, "/spec/service/name").ends_with("-webhook-service")
}

/// Metrics of an HPA that read the signal, under its present or old name.
pub(super) fn signal_metrics(hpa: &Value) -> impl Iterator<Item = &Value> {
    SignalSource::all(hpa, AutoscalerKind::Hpa).map(|signal| signal.source)
}

async fn query_external_metric(cluster: &Cluster, namespace: &str, metric: &Value) -> ExternalMetric {
    let name = text(metric, "/external/metric/name").to_owned();
    let selector = metric.pointer("/external/metric/selector").cloned().unwrap_or_default();
    let selector: LabelSelector = serde_json::from_value(selector).unwrap_or_default();
    let labels = Selector::try_from(selector).map(|selector| selector.to_string()).unwrap_or_default();
    let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{name}");
    let values = match cluster.get_labelled(&path, &labels).await {
        Ok(list) => Ok(items(&list, "/items").cloned().collect()),
        Err(ApiError { code: 0, message }) => Err(message),
        Err(ApiError { code, message }) => Err(format!("{code} {}", without_code(code, &message))),
    };
    ExternalMetric { metric: name, values }
}
