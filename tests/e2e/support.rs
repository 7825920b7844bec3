//! What the groups share: a control plane with the program installed and queries for tests; and `VariantAutoscaling`s as
//! raw JSON with the API server's answer to them, for typed clients cannot express most faults.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::api::PostParams;
use kube::core::{Request, Status};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Options, Testbed, within};

/// Longest wait for what has to happen: seconds usually, with room for a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// A control plane and the program on it.
pub(crate) struct Cluster {
    pub(crate) testbed: Testbed,
    pub(crate) install: Install,
}

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// The control plane of the group `shared`.
pub(crate) async fn cluster() -> anyhow::Result<&'static Cluster> {
    CLUSTER
        .get_or_try_init(async || {
            let testbed = Testbed::start(Options { name: "shared".to_owned(), ..Options::default() }).await?;
            let install = Install::start(&testbed, &options()).await?;
            anyhow::Ok(Cluster { testbed, install })
        })
        .await
}

/// The program under test, deciding every two seconds.
pub(crate) fn options() -> InstallOptions {
    InstallOptions::quick(env!("CARGO_BIN_EXE_wva"))
}

impl Cluster {
    /// A `VariantAutoscaling` as the API server has it.
    pub(crate) async fn variant(&self, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let json =
            self.testbed.kubectl(&["get", "va", name, "-n", namespace, "-o", "json"]).await?.success()?;
        Ok(serde_json::from_str(&json)?)
    }

    /// `spec.replicas` of a Deployment.
    pub(crate) async fn replicas(&self, namespace: &str, name: &str) -> anyhow::Result<u64> {
        let path = "jsonpath={.spec.replicas}";
        let text = self
            .testbed
            .kubectl(&["get", "deployment", name, "-n", namespace, "-o", path])
            .await?
            .success()?;
        text.parse().with_context(|| format!("{text:?} is no number"))
    }

    /// The values of `wva_desired_replicas` for a variant, through the API server's aggregator.
    pub(crate) async fn external_metric(
        &self,
        namespace: &str,
        variant: &str,
    ) -> anyhow::Result<Vec<String>> {
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/wva_desired_replicas?labelSelector=variant_name%3D{variant}"
        );
        let json = self.testbed.kubectl(&["get", "--raw", &path]).await?.success()?;
        let list: Value = serde_json::from_str(&json)?;
        let items = list["items"].as_array().context("no items")?;
        Ok(items.iter().filter_map(|i| i["value"].as_str().map(str::to_owned)).collect())
    }
}

/// The decided replicas in a status.
pub(crate) fn target(va: &Value) -> Option<u64> {
    va.pointer("/status/desiredOptimizedAlloc/numReplicas").and_then(Value::as_u64)
}

/// Status and reason of a condition.
pub(crate) fn condition<'a>(va: &'a Value, kind: &str) -> anyhow::Result<(&'a str, &'a str)> {
    let all = va.pointer("/status/conditions").and_then(Value::as_array).context("no conditions")?;
    let found = all.iter().find(|c| c["type"] == kind).with_context(|| format!("no condition {kind}"))?;
    ensure!(
        found["observedGeneration"] == va["metadata"]["generation"],
        "condition {kind} is about another generation"
    );
    Ok((found["status"].as_str().unwrap_or_default(), found["reason"].as_str().unwrap_or_default()))
}

/// Longest wait for one answer: twice what a webhook may take in each of the two phases.
const CALL: Duration = Duration::from_secs(20);

/// What the API server says to an object: what it would store, or the refusal.
pub(crate) type Answer = Result<Value, Box<Status>>;

/// A variant with this spec.
pub(crate) fn variant(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": {"name": name}, "spec": spec})
}

/// A spec without a fault. Its target's name is made from the variant's.
pub(crate) fn good(target: &str) -> Value {
    json!({"scaleTargetRef": {"name": target}, "modelID": "meta-llama/Llama-3.1-8B"})
}

/// Asks to create the object, without storing it.
///
/// # Errors
/// When there is no answer. A refusal is one.
pub(crate) async fn try_create(
    client: &kube::Client,
    namespace: &str,
    object: &Value,
) -> anyhow::Result<Answer> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let request = requests(namespace).create(&dry_run, object.to_string().into_bytes())?;
    answer(client.request(request)).await
}

/// The path of the variants of a namespace.
pub(crate) fn requests(namespace: &str) -> Request {
    Request::new(format!("/apis/llmd.ai/v1alpha1/namespaces/{namespace}/variantautoscalings"))
}

/// Waits for the answer to a request, bounded: the client repeats some by itself.
///
/// # Errors
/// When there is none. A refusal is one.
pub(crate) async fn answer(call: impl Future<Output = kube::Result<Value>>) -> anyhow::Result<Answer> {
    match within("a request", CALL, async { anyhow::Ok(call.await) }).await? {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::Api(status)) => Ok(Err(status)),
        Err(other) => Err(other.into()),
    }
}

/// What an experiment showed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The measured figures, for people.
    pub(crate) figures: String,
    /// What did not hold; empty where the contract was kept.
    pub(crate) faults: Vec<String>,
}

impl Outcome {
    /// Success where nothing was at fault.
    ///
    /// # Errors
    /// With the figures and all faults.
    pub(crate) fn kept(self) -> anyhow::Result<String> {
        ensure!(self.faults.is_empty(), "{}; {}", self.faults.join("; "), self.figures);
        Ok(self.figures)
    }
}

/// Whether experiments run in full: `FULL=1`, which the `make test-*` targets set.
pub(crate) fn is_full() -> bool {
    std::env::var_os("FULL").is_some_and(|full| full == "1")
}

/// A bound on time. It is judged in full runs, which have the machine for themselves; other runs are patient, so that a
/// busy machine fails no test.
pub(crate) fn bound(contract: Duration) -> Duration {
    if is_full() { contract } else { contract.max(Duration::from_mins(1)) }
}

/// The program under test: `WVA_PROGRAM`, such as a release build, or the debug build of these tests.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("WVA_PROGRAM").map_or_else(|| env!("CARGO_BIN_EXE_wva").into(), PathBuf::from)
}
