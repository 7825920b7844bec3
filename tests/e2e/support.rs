//! Helpers for all groups: a control plane with the program installed, and queries.

mod objects;
mod program;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
pub(crate) use wva_testbed::fixtures::{invalid_variant, saturation_map, valid_spec, variant};
use wva_testbed::install::{Install, InstallOptions, SERVICE, SYSTEM, get};
use wva_testbed::{CommandOutput, FleetConfig, NodeGroup, Options, Testbed, eventually, within};

pub(crate) use self::objects::{
    ApiAnswer, await_answer, controller_pod, dry_run_create, next_random, variants_request,
};
pub(crate) use self::program::{Outcome, ProgramOutput, is_full_run, program_path, run_wva};

/// Longest wait in a test: most take seconds; the rest is for a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_mins(3);

/// A control plane with the program installed.
pub(crate) struct Cluster {
    pub(crate) testbed: Testbed,
    pub(crate) install: Install,
}

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// Control plane of the group `shared`. The percentage analyzer decides unless a namespace configures another one: the
/// emulated fleet exports all signals of it.
pub(crate) async fn cluster() -> anyhow::Result<&'static Cluster> {
    let start = async || {
        // Enough GPUs for all tests: the variants of a finished test keep their replicas.
        let nodes = vec![
            NodeGroup::new("h100", 16, "NVIDIA-H100-80GB-HBM3"),
            NodeGroup::new("a100", 4, "NVIDIA-A100-SXM4-80GB"),
        ];
        let options = Options { name: "shared".to_owned(), nodes, ..Options::default() };
        let cluster = Cluster::start(options, &self::install_options()).await?;
        cluster.testbed.apply(&saturation_map(SYSTEM, "analyzerName: percentage")).await?;
        anyhow::Ok(cluster)
    };
    CLUSTER.get_or_try_init(start).await
}

/// Short thresholds for the age of signals, so that a test outlasts them.
pub(crate) const SHORT_AGES: [(&str, &str); 3] = [
    ("PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", "4s"),
    ("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "6s"),
    ("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", "8s"),
];

/// Options of an install that runs a cycle every two seconds.
pub(crate) fn install_options() -> InstallOptions {
    InstallOptions::quick(env!("CARGO_BIN_EXE_wva"))
}

impl Cluster {
    /// Starts a control plane and installs the program.
    pub(crate) async fn start(testbed: Options, install: &InstallOptions) -> anyhow::Result<Self> {
        let testbed = Testbed::start(testbed).await?;
        let install = Install::start(&testbed, install).await?;
        Ok(Self { testbed, install })
    }

    /// Reads a `VariantAutoscaling`.
    pub(crate) async fn variant(&self, namespace: &str, name: &str) -> anyhow::Result<Value> {
        get_object(&self.testbed, &["va", name, "-n", namespace]).await
    }

    /// Waits until `holds` is true of a `VariantAutoscaling`, and returns it.
    pub(crate) async fn wait_for(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        eventually(&format!("{namespace}/{name} to {what}"), DEADLINE, async || {
            let va = self.variant(namespace, name).await?;
            ensure!(holds(&va), "{}", va["status"]);
            Ok(va)
        })
        .await
    }

    /// Reads `spec.replicas` of a Deployment.
    pub(crate) async fn replicas(&self, namespace: &str, name: &str) -> anyhow::Result<u64> {
        let deployment = get_object(&self.testbed, &["deployment", name, "-n", namespace]).await?;
        deployment["spec"]["replicas"].as_u64().context("no replicas")
    }

    /// Waits until a Deployment has this many replicas.
    pub(crate) async fn wait_for_replicas(
        &self,
        namespace: &str,
        name: &str,
        wanted: u64,
    ) -> anyhow::Result<()> {
        eventually(&format!("{namespace}/{name} to have {wanted} replicas"), DEADLINE, async || {
            let replicas = self.replicas(namespace, name).await?;
            ensure!(
                replicas == wanted,
                "it has {replicas}: {}",
                self.variant(namespace, name).await?["status"]
            );
            Ok(())
        })
        .await
    }

    /// Reads the values of `wva_desired_replicas` for a variant through the aggregated API.
    pub(crate) async fn external_metric(
        &self,
        namespace: &str,
        variant: &str,
    ) -> anyhow::Result<Vec<String>> {
        external_metric(&self.testbed, namespace, variant).await
    }

    /// Lists the events of a namespace with this reason.
    pub(crate) async fn events(&self, namespace: &str, reason: &str) -> anyhow::Result<Vec<Value>> {
        events(&self.testbed, namespace, reason).await
    }

    /// Reads the snapshot of the newest cycle.
    pub(crate) async fn snapshot(&self) -> anyhow::Result<Value> {
        let (status, text) = get(&format!("http://{}/snapshot", self.install.address("debug")?)).await?;
        ensure!(status == 200, "/snapshot answered {status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// Finds the only model of a namespace in the newest snapshot.
    pub(crate) async fn model(&self, namespace: &str) -> anyhow::Result<Value> {
        let snapshot = self.snapshot().await?;
        let models = snapshot["models"].as_array().context("no models")?;
        models.iter().find(|m| m["namespace"] == namespace).cloned().context("the model is not in it")
    }

    /// Counts the cycles so far, successful or degraded.
    async fn cycles(&self) -> anyhow::Result<f64> {
        let mut all = 0.0;
        for result in ["ok", "degraded"] {
            let count = self.install.series("wva_engine_cycles_total", &[("result", result)]).await?;
            all += count.unwrap_or_default();
        }
        Ok(all)
    }

    /// Waits for this many more cycles. They have published their decisions; statuses and events may follow.
    pub(crate) async fn wait_for_cycles(&self, more: u32) -> anyhow::Result<()> {
        let end = self.cycles().await? + f64::from(more);
        eventually(&format!("{more} more cycles"), DEADLINE, async || {
            let now = self.cycles().await?;
            ensure!(now >= end, "{now} of {end}");
            Ok(())
        })
        .await
    }
}

/// Reads an object or a list. One object of a namespace is read by an HTTP request, because polls are frequent and a
/// kubectl process is slow.
pub(crate) async fn get_object(testbed: &Testbed, what: &[&str]) -> anyhow::Result<Value> {
    if let Some(path) = path_of(what) {
        return get_path(testbed, &path).await;
    }
    let json = testbed.kubectl(&[&["get"], what, &["-o", "json"]].concat()).await?.success()?;
    Ok(serde_json::from_str(&json)?)
}

/// API path of `KIND NAME -n NAMESPACE` or `KIND/NAME -n NAMESPACE`, for the kinds that tests read most.
fn path_of(what: &[&str]) -> Option<String> {
    let (kind, name, namespace) = match *what {
        [kind, name, "-n", namespace] => (kind, name, namespace),
        [object, "-n", namespace] => {
            let (kind, name) = object.split_once('/')?;
            (kind, name, namespace)
        }
        _ => return None,
    };
    let (api, plural) = match kind {
        "va" => ("apis/llmd.ai/v1alpha1", "variantautoscalings"),
        "deployment" => ("apis/apps/v1", "deployments"),
        "hpa" => ("apis/autoscaling/v2", "horizontalpodautoscalers"),
        "configmap" => ("api/v1", "configmaps"),
        _ => return None,
    };
    Some(format!("/{api}/namespaces/{namespace}/{plural}/{name}"))
}

/// Sends a GET request to the API server.
async fn get_path(testbed: &Testbed, path: &str) -> anyhow::Result<Value> {
    let request = http::Request::get(path).body(Vec::new())?;
    within(path, Duration::from_mins(1), testbed.admin()?.request(request)).await
}

/// Lists the objects of a namespace, such as `deployments` of `apis/apps/v1`.
pub(crate) async fn list_objects(
    testbed: &Testbed,
    api: &str,
    namespace: &str,
    plural: &str,
) -> anyhow::Result<Vec<Value>> {
    let list = get_path(testbed, &format!("/{api}/namespaces/{namespace}/{plural}")).await?;
    list["items"].as_array().cloned().context("a list without items")
}

/// Lists the events of a namespace with this reason.
pub(crate) async fn events(testbed: &Testbed, namespace: &str, reason: &str) -> anyhow::Result<Vec<Value>> {
    list_objects(testbed, "api/v1", namespace, &format!("events?fieldSelector=reason%3D{reason}")).await
}

/// Applies CRDs and waits until kubectl finds their kinds.
pub(crate) async fn apply_crds(testbed: &Testbed, crds: &str) -> anyhow::Result<()> {
    testbed.apply(crds).await?;
    let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=150s"];
    testbed.kubectl(&wait).await?.success()?;
    let crds: Vec<Value> =
        serde_saphyr::from_multiple(crds).map_err(|e| anyhow::anyhow!("the CRDs are not YAML: {e}"))?;
    for kind in crds.iter().filter_map(|crd| crd["metadata"]["name"].as_str()) {
        testbed.wait_discovered(kind).await?;
    }
    Ok(())
}

/// Applies a CRD of `tests/fixtures/stand-ins`.
pub(crate) async fn apply_stand_in(testbed: &Testbed, name: &str) -> anyhow::Result<()> {
    let file = repository_path(&format!("tests/fixtures/stand-ins/{name}.yaml"));
    apply_crds(testbed, &std::fs::read_to_string(file)?).await
}

/// Reads the CA that a release made for its webhooks, as PEM.
pub(crate) async fn read_ca(testbed: &Testbed, release: &InstallOptions) -> anyhow::Result<Vec<u8>> {
    let [secret, namespace] = [format!("{SERVICE}-ca"), SYSTEM.to_owned()].map(|name| release.named(&name));
    let secret = get_object(testbed, &["secret", &secret, "-n", &namespace]).await?;
    let ByteString(pem) = serde_json::from_value(secret["data"]["ca.crt"].clone())?;
    Ok(pem)
}

/// Sends a merge patch for an object, such as `va/llama`.
pub(crate) async fn merge_patch(
    testbed: &Testbed,
    namespace: &str,
    object: &str,
    change: &Value,
) -> anyhow::Result<CommandOutput> {
    let change = change.to_string();
    testbed.kubectl(&["patch", object, "-n", namespace, "--type=merge", "-p", &change]).await
}

/// Sends a merge patch for the status of a variant.
pub(crate) async fn patch_status(
    testbed: &Testbed,
    namespace: &str,
    name: &str,
    status: &Value,
) -> anyhow::Result<()> {
    let change = json!({"status": status}).to_string();
    let patch = ["patch", "va", name, "-n", namespace, "--subresource=status", "--type=merge", "-p", &change];
    testbed.kubectl(&patch).await?.success().map(drop)
}

/// Reads the values of `wva_desired_replicas` for a variant through the aggregated API.
pub(crate) async fn external_metric(
    testbed: &Testbed,
    namespace: &str,
    variant: &str,
) -> anyhow::Result<Vec<String>> {
    let path = format!(
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/wva_desired_replicas?labelSelector=variant_name%3D{variant}"
    );
    let list = get_path(testbed, &path).await?;
    let items = list["items"].as_array().context("no items")?;
    Ok(items.iter().filter_map(|i| i["value"].as_str().map(str::to_owned)).collect())
}

/// Configuration of a fleet that serves the model of the fixtures in a namespace.
pub(crate) fn fleet_config(namespace: &str) -> FleetConfig {
    let model = VariantFixture::new(namespace, "any").model;
    FleetConfig::new(namespace, &format!("{MODEL_LABEL}=served"), &model)
}

/// Path of a file in this repository.
pub(crate) fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Target in a status, in replicas.
pub(crate) fn target(va: &Value) -> Option<u64> {
    va.pointer("/status/desiredOptimizedAlloc/numReplicas").and_then(Value::as_u64)
}

/// Finds a condition of an object.
pub(crate) fn find_condition<'a>(object: &'a Value, kind: &str) -> anyhow::Result<&'a Value> {
    let all = object["status"]["conditions"].as_array().context("no conditions")?;
    all.iter().find(|c| c["type"] == kind).with_context(|| format!("no condition {kind}"))
}

/// Status and reason of a condition of the current generation.
pub(crate) fn condition<'a>(va: &'a Value, kind: &str) -> anyhow::Result<(&'a str, &'a str)> {
    let found = find_condition(va, kind)?;
    ensure!(
        found["observedGeneration"] == va["metadata"]["generation"],
        "condition {kind} is about another generation"
    );
    Ok((found["status"].as_str().unwrap_or_default(), found["reason"].as_str().unwrap_or_default()))
}

/// Whether a condition has this status and reason.
pub(crate) fn has_condition(va: &Value, kind: &str, wanted: (&str, &str)) -> bool {
    condition(va, kind).is_ok_and(|found| found == wanted)
}
