//! A cluster with one healthy variant, for tests to break.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_crds::picker_report::PickerReport;
use wva_crds::settings::map::MapText;
use wva_scaling::Snapshot;

use crate::cluster::id;
use crate::doctor::annotation_facts::AnnotationFacts;
use crate::doctor::config_map_facts::ConfigMapFacts;
use crate::doctor::controllers::{Controller, is_stopped};
use crate::doctor::facts::{
    Autoscaling, ExternalMetric, Facts, Install, LeaderFacts, Monitoring, Objects, PrometheusSeries,
    index_decisions, recompute,
};
use crate::doctor::unreadable::UnreadableKind;
use crate::doctor::wait_limits::WaitLimits;
use crate::gpus::ClaimTemplates;
use crate::leader::{LeaderSnapshot, Leaders};
use crate::prometheus::Series;
use crate::workloads::Workloads;

const NOW: &str = "2026-01-01T01:00:00Z";

pub(super) struct World {
    pub(super) variant: Value,
    pub(super) deployment: Value,
    pub(super) pods: Vec<Value>,
    pub(super) services: Vec<Value>,
    pub(super) monitors: Vec<Value>,
    pub(super) hpas: Vec<Value>,
    pub(super) scaled_objects: Vec<Value>,
    pub(super) annotations: AnnotationFacts,
    pub(super) namespaces: Vec<Value>,
    pub(super) controllers: Vec<Value>,
    pub(super) config_maps: ConfigMapFacts,
    /// Main ConfigMap of every controller.
    pub(super) map: Value,
    pub(super) unreadable: Vec<UnreadableKind>,
    pub(super) snapshot: Option<String>,
    /// Answer of the external metrics API to the HPA.
    pub(super) external_values: Result<Vec<Value>, String>,
    pub(super) models: Vec<Series>,
    pub(super) duplicates: Vec<Series>,
    pub(super) signals: Vec<Series>,
    pub(super) has_prometheus: bool,
    pub(super) claim_templates: Vec<Value>,
    pub(super) pickers: Vec<PickerReport>,
    pub(super) wait_limits: WaitLimits,
    pub(super) api_service: Option<Value>,
    pub(super) kubernetes: &'static str,
}

pub(super) fn series(labels: &[(&str, &str)], value: f64) -> Series {
    Series { labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(), value }
}

pub(super) fn signal(publisher: &str, value: f64) -> Series {
    let labels =
        [("__name__", "wva_desired_replicas"), ("variant_name", "a"), ("exported_namespace", "prod")];
    series(&[&labels[..], &[("namespace", "wva"), ("pod", publisher)]].concat(), value)
}

fn pod_series(metric: &str) -> Series {
    series(&[("__name__", metric), ("namespace", "prod"), ("pod", "a-0"), ("model_name", "m")], 1.0)
}

#[expect(clippy::needless_pass_by_value, reason = "lets tests pass json! directly")]
fn controller(name: &str, image: &str, env: Value) -> Value {
    json!({"metadata": {"namespace": "wva", "name": name}, "status": {"readyReplicas": 1},
        "spec": {"template": {"spec": {"containers": [{"image": image, "env": env}]}}}})
}

fn wva() -> Value {
    controller("wva", "registry/wva:v1", json!([{"name": "CONFIG_MAP_NAME", "value": "m"}]))
}

pub(super) fn llm_d_wva() -> Value {
    controller("llm-d-wva", "ghcr.io/llm-d/llm-d-workload-variant-autoscaler:v0.8.0", json!([]))
}

fn variant() -> Value {
    json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "a", "namespace": "prod", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"scaleTargetRef": {"name": "a"}, "modelID": "m"},
        "status": {
            "desiredOptimizedAlloc": {"numReplicas": 1, "accelerator": "H100", "lastRunTime": "2026-01-01T00:59:30Z"},
            "actuation": {"applied": true},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ready"},
                {"type": "MetricsAvailable", "status": "True", "reason": "MetricsFound", "message": "1 replica"},
                {"type": "OptimizationReady", "status": "True", "reason": "SaturationOnlyMode", "message": "1 -> 1"},
            ],
        },
    })
}

pub(super) fn unreadable_api_services() -> UnreadableKind {
    UnreadableKind { plural: "apiservices", reason: "forbidden".to_owned() }
}

fn hpa() -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "namespace": "prod"},
        "status": {"currentReplicas": 1, "desiredReplicas": 1,
            "conditions": [{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", "status": "True"}]},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "minReplicas": 1, "maxReplicas": 10,
            "behavior": {"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "0"}},
            "metrics": [{"type": "External", "external": {
                "metric": {"name": "wva_desired_replicas", "selector": {"matchLabels": {
                    "variant_name": "a", "exported_namespace": "prod"}}},
                "target": {"type": "AverageValue", "averageValue": "1"}}}],
        },
    })
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            variant: variant(),
            deployment: json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "prod"},
                "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}}, "status": {"replicas": 1, "readyReplicas": 1},
            }),
            pods: vec![json!({
                "metadata": {"name": "a-0", "namespace": "prod", "labels": {"app": "a"},
                    "creationTimestamp": "2026-01-01T00:59:00Z"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            })],
            services: Vec::new(),
            monitors: Vec::new(),
            hpas: vec![hpa()],
            scaled_objects: Vec::new(),
            annotations: AnnotationFacts::default(),
            namespaces: vec![json!({"metadata": {"name": "prod"}})],
            controllers: vec![wva()],
            config_maps: ConfigMapFacts::default(),
            map: json!({}),
            unreadable: Vec::new(),
            snapshot: Some(
                "models: [{modelID: m, namespace: prod, variants: [{name: a, current: 1, max: 10, replicas: [{pod: a-0, kv: \
                 0.5, queue: 0, age: 9s}]}]}]"
                    .to_owned(),
            ),
            external_values: Ok(vec![json!({"value": "1", "metricLabels": {"variant_name": "a"}})]),
            models: ["vllm:kv_cache_usage_perc", "vllm:num_requests_waiting"].map(pod_series).into(),
            duplicates: Vec::new(),
            signals: vec![signal("wva-0", 1.0)],
            has_prometheus: true,
            claim_templates: Vec::new(),
            pickers: Vec::new(),
            wait_limits: WaitLimits::default(),
            kubernetes: "1.37",
            api_service: None,
        }
    }

    /// The controller has reported a problem of the autoscaler.
    pub(super) fn report_not_followed(&mut self) {
        let condition =
            json!({"type": "SignalFollowed", "status": "False", "reason": "ValueDiffers", "message": "why"});
        self.variant["status"]["conditions"].as_array_mut().unwrap().push(condition);
    }

    pub(super) fn facts(self) -> Facts {
        let mut workloads = Workloads::default();
        workloads.add(self.deployment);
        let map = MapText::from_data(self.map.as_object().unwrap());
        let answer =
            ExternalMetric { metric: "wva_desired_replicas".to_owned(), values: self.external_values };
        let controllers = self.controllers.iter().filter_map(|d| Controller::from_deployment(d, &map));
        Facts {
            now: NOW.parse().unwrap(),
            objects: Objects {
                variants: vec![self.variant],
                namespaces: self.namespaces,
                workloads,
                pods: self.pods,
                claim_templates: ClaimTemplates::new(&self.claim_templates, []),
            },
            autoscaling: Autoscaling {
                hpas: self.hpas,
                scaled_objects: self.scaled_objects,
                annotations: self.annotations,
                external_metrics: BTreeMap::from([(id(&hpa()), vec![answer])]),
                api_service: self.api_service,
            },
            install: Install {
                kubernetes: self.kubernetes.parse().ok(),
                controllers: Some(controllers.collect()),
                stopped_controllers: self.controllers.iter().filter(|d| is_stopped(d)).cloned().collect(),
                config_maps: self.config_maps,
                missing_crd_fields: Ok(Vec::new()),
                crd_update: String::new(),
            },
            leader: leader_facts(self.snapshot, self.pickers, self.wait_limits),
            monitoring: Monitoring {
                services: self.services,
                service_monitors: self.monitors,
                pod_monitors: Vec::new(),
                series: self.has_prometheus.then_some(Ok(PrometheusSeries {
                    models: self.models,
                    duplicates: self.duplicates,
                    signals: self.signals,
                })),
            },
            unreadable: self.unreadable,
        }
    }
}

fn leader_facts(
    snapshot: Option<String>,
    pickers: Vec<PickerReport>,
    wait_limits: WaitLimits,
) -> LeaderFacts {
    let parse = |text: String| LeaderSnapshot {
        controller: "pod wva/wva-0".into(),
        answer: Snapshot::parse(&text).unwrap(),
    };
    let leaders = Leaders {
        received: snapshot.map(parse).into_iter().collect(),
        failures: vec!["pod wva/wva-1: not the leader".to_owned()],
    };
    let decisions = index_decisions(&recompute(&leaders));
    LeaderFacts { leaders, decisions, pickers, wait_limits }
}
