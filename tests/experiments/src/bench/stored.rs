//! Cluster of the benches: namespaces full of variants, each with Deployment and HPA, and optionally pods with
//! metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::Install;
use wva_testbed::{NodeGroup, Options, Testbed, eventually, within};

use super::exporter::{Exporter, ServingPod};

/// Number of namespaces, unless a bench has its own.
pub(crate) const NAMESPACES: usize = 20;
/// Total number of variants.
pub(crate) const VARIANTS: usize = 1000;

/// Time limit for storing one object, on a busy machine.
const CALL: Duration = Duration::from_secs(30);
/// Time limit until the pods of a namespace are ready, on a busy machine.
const PODS_WITHIN: Duration = Duration::from_mins(20);
/// Nodes, at least.
const NODES: u32 = 20;
/// Pods for each node, which has room and GPUs for 256.
const PODS_OF_NODE: usize = 200;

/// Creates this number of namespaces with these manifests in each; returns their names.
pub(super) async fn store(
    testbed: &Testbed,
    namespaces: usize,
    manifests: impl Fn(&str) -> Vec<String>,
) -> anyhow::Result<Vec<String>> {
    let client = testbed.admin()?;
    let number = namespaces;
    let mut namespaces = Vec::new();
    for _ in 0..number {
        namespaces.push(testbed.namespace("bench").await?);
    }
    try_join_all(namespaces.iter().map(async |namespace| {
        for yaml in manifests(namespace) {
            create(&client, namespace, &yaml).await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(namespaces)
}

pub(crate) async fn create(client: &kube::Client, namespace: &str, yaml: &str) -> anyhow::Result<()> {
    let object: DynamicObject =
        serde_saphyr::from_str(yaml).map_err(|e| anyhow::anyhow!("a fixture is not YAML: {e}"))?;
    let types = object.types.clone().context("a fixture without a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    within("storing an object", CALL, api.create(&PostParams::default(), &object)).await.map(|_| ())
}

/// Models of a bench, one variant each.
#[derive(Clone, Copy)]
pub(crate) struct Fleet {
    pub(crate) namespaces: usize,
    pub(crate) variants: usize,
    /// Pods of each variant.
    pub(crate) replicas: usize,
}

impl Fleet {
    pub(crate) fn pods(self) -> usize {
        self.variants * self.replicas
    }
}

/// Control plane with a model for each variant; all pods are ready and scraped by Prometheus.
pub(crate) struct ServingCluster {
    pub(crate) testbed: Testbed,
    _exporter: Exporter,
}

impl ServingCluster {
    pub(crate) async fn start(options: Options, fleet: Fleet) -> anyhow::Result<Self> {
        let Fleet { namespaces, variants, replicas } = fleet;
        ensure!(
            namespaces > 0 && variants > 0 && variants.is_multiple_of(namespaces),
            "{namespaces} namespaces do not divide {variants} variants: choose a number that does"
        );
        let each = variants / namespaces;
        let nodes = u32::try_from(fleet.pods().div_ceil(PODS_OF_NODE))?.max(NODES);
        let testbed = Testbed::start(Options {
            nodes: vec![NodeGroup { gpus: 256, ..NodeGroup::new("h100", nodes, "NVIDIA-H100-80GB-HBM3") }],
            pod_start: Duration::from_secs(1),
            scrape_interval: Duration::from_secs(15),
            many_pods: true,
            ..options
        })
        .await?;
        Install::crd(&testbed).await?;
        let of_variant = u32::try_from(replicas)?;
        let manifests = |namespace: &str| -> Vec<String> {
            let fixture = |i| VariantFixture {
                model: model(i),
                ..VariantFixture::new(namespace, &format!("variant-{i}")).replicas(of_variant)
            };
            (0..each).map(fixture).flat_map(|f| [f.deployment(), f.autoscaler(), f.variant()]).collect()
        };
        let mut served = BTreeMap::new();
        let of_each = each * replicas;
        for namespace in store(&testbed, namespaces, manifests).await? {
            let client = testbed.admin()?;
            let ready = eventually("all pods of a namespace to be ready", PODS_WITHIN, async || {
                let pods = ready_pods(&client, &namespace).await?;
                ensure!(pods.len() == of_each, "{} are", pods.len());
                Ok(pods)
            });
            served.insert(namespace.clone(), ready.await?);
        }
        let exporter = Exporter::start(served).await?;
        testbed.scrape_pages(&exporter.address, &exporter.paths)?;
        eventually("Prometheus to know every pod", Duration::from_mins(2), async || {
            let found = testbed.prometheus_query("count(vllm:kv_cache_usage_perc)").await?;
            ensure!(found.first().is_some_and(|s| s.value >= count(namespaces * of_each)), "{found:?}");
            Ok(())
        })
        .await?;
        Ok(Self { testbed, _exporter: exporter })
    }
}

fn model(i: usize) -> String {
    format!("meta-llama/Llama-{i}")
}

pub(super) async fn ready_pods(client: &kube::Client, namespace: &str) -> anyhow::Result<Vec<ServingPod>> {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let all = within("listing pods", CALL, api.list(&ListParams::default())).await?;
    let ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
    };
    let served = |pod: Pod| {
        let variant = pod.metadata.labels?.remove("app")?;
        let i = variant.strip_prefix("variant-")?.parse().ok()?;
        Some(ServingPod { pod: pod.metadata.name?, model: model(i) })
    };
    Ok(all.items.into_iter().filter(ready).filter_map(served).collect())
}

#[expect(clippy::cast_precision_loss, reason = "thousands")]
pub(crate) fn count(n: usize) -> f64 {
    n as f64
}
