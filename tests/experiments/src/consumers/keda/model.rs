//! Model of the samples in `config/samples`: an emulated fleet, its variant, and the ScaledObject with its
//! authentication. The ScaledObject has another Prometheus address and shorter times than the sample.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wva_testbed::fixtures::{VariantFixture, saturation_map, scale_to_zero_map};
use wva_testbed::picker::{FakePicker, pool};
use wva_testbed::{Fleet, Testbed, eventually};

use crate::command::SOON;
use crate::history::History;

/// Names in the samples.
pub(super) const NAMESPACE: &str = "llm-d-autoscaler";
pub(super) const NAME: &str = "llama-h100";
const WORKLOAD: &str = "llama-h100-decode";
pub(super) const MODEL: &str = "unsloth/Meta-Llama-3.1-8B";
/// Time limit of a change of replicas: signals are maxima over a minute.
const WAIT_LIMIT: Duration = Duration::from_secs(200);
/// KEDA's polling interval and cooldown period, seconds. The sample has 15 and 240.
const POLLING: u32 = 2;
const COOLDOWN: u32 = 10;
/// The sample has 10. With cycles of 2 s and one-minute maxima, that would overshoot.
const MOST: u32 = 3;
/// Uses the percentage analyzer: the emulated fleet has no step times for the throughput analyzer to learn.
const ANALYZER: &str = "analyzerName: percentage";
const RETENTION: Duration = Duration::from_secs(6);

/// KEDA's access to Prometheus.
pub(super) struct Access<'a> {
    pub(super) url: &'a str,
    pub(super) token: &'a str,
    /// File with the CA of Prometheus' certificate.
    pub(super) ca: &'a Path,
}

/// The model, with its replicas recorded.
pub(super) struct Model<'a> {
    testbed: &'a Testbed,
    pub(super) fleet: Fleet,
    history: History,
    _watching: JoinSet<()>,
}

impl<'a> Model<'a> {
    /// Creates everything, and waits until one replica serves and KEDA has created its HPA.
    pub(super) async fn start(testbed: &'a Testbed, access: &Access<'_>) -> anyhow::Result<Self> {
        testbed
            .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"))
            .await?;
        let fixture = fixture();
        let fleet = Fleet::start(testbed, fixture.fleet())?;
        let fixture = fixture.port(fleet.port());
        testbed.apply(&[fixture.deployment(), saturation_map(NAMESPACE, ANALYZER)].join("---\n")).await?;
        testbed.apply(&sample("variantautoscaling.yaml")?).await?;
        fleet.wait_ready(1, SOON).await?;
        let ca = std::fs::read_to_string(access.ca)?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "prometheus-access", "namespace": NAMESPACE},
            "stringData": {"token": access.token, "ca.crt": ca},
        });
        testbed.apply(&secret.to_string()).await?;
        for object in scaled_object(access.url)? {
            testbed.apply(&object.to_string()).await?;
        }
        let history = History::default();
        let watching = history.follow(Api::<Deployment>::namespaced(testbed.admin()?, NAMESPACE));
        let model = Self { testbed, fleet, history, _watching: watching };
        model.condition_is("Ready", "True", SOON).await?;
        model.becomes(1).await?;
        Ok(model)
    }

    /// Waits for this number of replicas; returns the time it took.
    pub(super) async fn becomes(&self, replicas: i32) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let what = format!("{replicas} replicas of {WORKLOAD}");
        eventually(&what, WAIT_LIMIT, async || {
            let now = self.history.now();
            ensure!(now == Some(replicas), "it has {now:?}");
            Ok(())
        })
        .await?;
        Ok(began.elapsed())
    }

    /// Numbers of replicas since a moment, in order.
    pub(super) fn path_since(&self, since: Instant) -> Vec<i32> {
        self.history.all().iter().filter(|(at, _)| *at > since).map(|(_, replicas)| *replicas).collect()
    }

    /// Time after a moment at which it first had fewer replicas than this.
    pub(super) fn fewer_since(&self, since: Instant, than: i32) -> Option<Instant> {
        self.history.first_since(since, |replicas| replicas < than)
    }

    /// Merges this into the ScaledObject's spec.
    pub(super) async fn patch(&self, spec: &Value) -> anyhow::Result<()> {
        let patch = json!({"spec": spec}).to_string();
        let args = ["patch", "scaledobject", NAME, "-n", NAMESPACE, "--type=merge", "-p", &patch];
        self.testbed.kubectl(&args).await?.success().map(drop)
    }

    /// Sets `ignoreNullValues`; by default KEDA treats a missing target as 0.
    pub(super) async fn ignores_null_values(&self, ignores: bool) -> anyhow::Result<()> {
        let patch = json!([{
            "op": "replace", "path": "/spec/triggers/0/metadata/ignoreNullValues", "value": ignores.to_string(),
        }])
        .to_string();
        let args = ["patch", "scaledobject", NAME, "-n", NAMESPACE, "--type=json", "-p", &patch];
        self.testbed.kubectl(&args).await?.success().map(drop)
    }

    /// Condition of an object as `status/reason: message`.
    pub(super) async fn condition(&self, kind: &str, condition: &str) -> anyhow::Result<String> {
        let select = format!("{{.status.conditions[?(@.type==\"{condition}\")]");
        let path = format!("jsonpath={select}.status}}/{select}.reason}}: {select}.message}}");
        self.testbed.kubectl(&["get", kind, NAME, "-n", NAMESPACE, "-o", &path]).await?.success()
    }

    /// Waits until a condition of the ScaledObject has this status; returns the time it took.
    pub(super) async fn condition_is(
        &self,
        condition: &str,
        status: &str,
        limit: Duration,
    ) -> anyhow::Result<Duration> {
        let began = Instant::now();
        eventually(&format!("{condition}={status} of the ScaledObject"), limit, async || {
            let actual = self.condition("scaledobject", condition).await?;
            ensure!(actual.starts_with(&format!("{status}/")), "{condition} is {actual}");
            Ok(())
        })
        .await?;
        Ok(began.elapsed())
    }

    /// Replaces the servers by ones without load: a load that ends in the fluid model never reaches 0.
    pub(super) fn becomes_idle(&mut self) -> anyhow::Result<()> {
        self.fleet = Fleet::start(self.testbed, fixture().fleet())?;
        Ok(())
    }

    /// Enables scale to zero, with a picker that shows the waiting requests.
    pub(super) async fn may_go_to_zero(&self) -> anyhow::Result<FakePicker> {
        let picker = FakePicker::start([127, 0, 3, 1]).await?;
        picker.queue(MODEL, 0.0);
        self.testbed
            .apply(&[scale_to_zero_map(NAMESPACE, RETENTION), pool(NAMESPACE, "epp")].join("---\n"))
            .await?;
        picker.pod(self.testbed, NAMESPACE, "epp", "epp-0").await?;
        self.patch(&json!({"minReplicaCount": 0})).await?;
        Ok(picker)
    }
}

fn fixture() -> VariantFixture {
    VariantFixture { model: MODEL.to_owned(), ..VariantFixture::new(NAMESPACE, WORKLOAD) }
}

fn sample(name: &str) -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/samples").join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Objects of the sample. By default an HPA waits five minutes before it scales down; here it has a shorter window.
fn scaled_object(url: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&sample("keda-scaledobject.yaml")?)?;
    let scaled_object = objects.iter_mut().find(|object| object["kind"] == "ScaledObject");
    let spec = &mut scaled_object.context("the sample has no ScaledObject")?["spec"];
    spec["pollingInterval"] = json!(POLLING);
    spec["cooldownPeriod"] = json!(COOLDOWN);
    spec["maxReplicaCount"] = json!(MOST);
    spec["triggers"][0]["metadata"]["serverAddress"] = json!(url);
    let at_once = json!({
        "stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 10, "periodSeconds": 15}],
    });
    spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] =
        json!({"scaleUp": at_once, "scaleDown": at_once});
    Ok(objects)
}
