//! Idle models go to zero on a real control plane, whatever scales their workloads otherwise, and not while a request
//! runs. Every step is carried out through the API server, with the rights of the program's service account.
//! A control plane of its own: HPAs may go to zero by a gate of its API server.

use std::time::Duration;

use crate::support::{Cluster, DEADLINE, apply_crds, apply_stand_in, found, is, read, served, target};
use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::Install;
use wva_testbed::picker::{CRDS, FakePicker, Manner, pool, pool_of_ranks};
use wva_testbed::{Fleet, Options, Testbed, eventually};

/// How long nothing may have been asked of a model.
const RETENTION: Duration = Duration::from_secs(8);
/// A request outlives the retention period.
const REQUEST: Duration = Duration::from_secs(12);
/// One that is ended by hand.
const FOR_EVER: Duration = Duration::from_hours(1);

/// What scales a workload beside this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// An HPA that cannot say 0.
    Hpa,
    /// One that can.
    HpaToZero,
    /// A ScaledObject that may go to 0 (there is no KEDA that would).
    ScaledObject,
    /// Nothing, and the workload is a StatefulSet.
    StatefulSet,
}

impl Beside {
    const ALL: [Self; 5] = [Self::Nothing, Self::Hpa, Self::HpaToZero, Self::ScaledObject, Self::StatefulSet];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "zero-nothing",
            Self::Hpa => "zero-hpa",
            Self::HpaToZero => "zero-hpa-to-zero",
            Self::ScaledObject => "zero-keda",
            Self::StatefulSet => "zero-stateful",
        }
    }

    /// The manifests of a variant.
    fn manifests(self, fixture: &VariantFixture) -> String {
        let (name, ns) = (&fixture.name, &fixture.namespace);
        let scaled_object = format!(
            "apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: {name}, namespace: {ns}}}
spec: {{scaleTargetRef: {{name: {name}}}, minReplicaCount: 0, maxReplicaCount: 5}}
"
        );
        let (workload, variant) = (fixture.deployment(), fixture.variant());
        let all = match self {
            Self::Nothing => vec![workload, variant],
            Self::Hpa => vec![workload, variant, fixture.autoscaler()],
            Self::HpaToZero => {
                vec![workload, variant, fixture.autoscaler().replace("minReplicas: 1", "minReplicas: 0")]
            }
            Self::ScaledObject => vec![workload, variant, scaled_object],
            Self::StatefulSet => vec![
                workload
                    .replace("kind: Deployment", "kind: StatefulSet")
                    .replace("  selector:", "  serviceName: none\n  selector:"),
                variant.replace("kind: Deployment", "kind: StatefulSet"),
            ],
        };
        all.join("---\n")
    }

    fn workload(self) -> String {
        let kind = if self == Self::StatefulSet { "statefulset" } else { "deployment" };
        format!("{kind}/a")
    }
}

/// Scale to zero for all models of a namespace.
fn map(namespace: &str) -> String {
    let retention = RETENTION.as_secs();
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: wva-model-scale-to-zero-config, namespace: {namespace}}}
data:
  default: |
    enable_scale_to_zero: true
    retention_period: {retention}s
"
    )
}

/// One model under way.
struct Model<'a> {
    cluster: &'a Cluster,
    beside: Beside,
    namespace: String,
    fleet: Fleet,
    /// Without one that has flow control no model goes to zero.
    _picker: Option<FakePicker>,
}

/// The servers of the model of a namespace, of which there are none yet.
fn servers(cluster: &Cluster, namespace: &str) -> anyhow::Result<Fleet> {
    Fleet::start(&cluster.testbed, served(namespace))
}

impl<'a> Model<'a> {
    /// With a request that its first pod runs from its first moment on, however late that is seen here.
    async fn start(cluster: &'a Cluster, beside: Beside) -> anyhow::Result<Self> {
        let namespace = cluster.testbed.namespace(beside.name()).await?;
        let fleet = servers(cluster, &namespace)?;
        fleet.send(REQUEST);
        let picker = picker(cluster, &namespace, Manner::Later).await?;
        let model = Self::serve(cluster, beside, namespace, fleet).await?;
        Ok(Self { _picker: Some(picker), ..model })
    }

    async fn serve(
        cluster: &'a Cluster,
        beside: Beside,
        namespace: String,
        fleet: Fleet,
    ) -> anyhow::Result<Self> {
        let fixture = VariantFixture::new(&namespace, "a");
        cluster.testbed.apply(&beside.manifests(&fixture.port(fleet.port()))).await?;
        cluster.testbed.apply(&map(&namespace)).await?;
        fleet.wait_ready(1, DEADLINE).await?;
        Ok(Self { cluster, beside, namespace, fleet, _picker: None })
    }

    /// Lines of the program's log with this message about the model's workload.
    fn log_lines(&self, message: &str) -> anyhow::Result<Vec<Value>> {
        let log = std::fs::read_to_string(self.cluster.install.process().log_path())?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ours = |line: &Value| line["msg"] == message && line["namespace"] == self.namespace.as_str();
        Ok(lines.filter(ours).collect())
    }

    async fn replicas(&self) -> anyhow::Result<u64> {
        let workload = read(&self.cluster.testbed, &[&self.beside.workload(), "-n", &self.namespace]).await?;
        workload["spec"]["replicas"].as_u64().context("no replicas")
    }

    async fn variant(&self) -> anyhow::Result<Value> {
        self.cluster.variant(&self.namespace, "a").await
    }

    /// Waits for the model to be at rest at zero; the signal alone where somebody else acts on it.
    async fn goes_to_zero(&self) -> anyhow::Result<()> {
        let left = u64::from(self.beside == Beside::ScaledObject);
        eventually(&format!("{} to go to zero", self.beside.name()), DEADLINE, async || {
            let va = self.variant().await?;
            ensure!(target(&va) == Some(0), "{}", va["status"]);
            ensure!(self.replicas().await? == left, "{} replicas", self.replicas().await?);
            let rests = [
                ("MetricsAvailable", "ScaleFromZero"),
                ("OptimizationReady", "ScaleFromZeroMode"),
                ("Ready", "Ready"),
            ];
            let rests = rests.iter().all(|(kind, reason)| is(&va, kind, ("True", reason)));
            ensure!(left > 0 || rests, "{}", va["status"]);
            Ok(())
        })
        .await
    }

    /// Names of the pods that are ready.
    fn pods(&self) -> Vec<String> {
        self.fleet.pods().into_iter().map(|load| load.pod).collect()
    }

    /// A request finds no replica, and a person scales the workload up: it stays up while it loads and while it serves.
    async fn is_woken(&self) -> anyhow::Result<()> {
        let scale = ["scale", &self.beside.workload(), "-n", &self.namespace, "--replicas=1"];
        self.fleet.send(REQUEST);
        self.cluster.testbed.kubectl(&scale).await?.success()?;
        let name = self.beside.name();
        eventually(&format!("{name} to be measured again"), DEADLINE, async || {
            // An HPA that may say 0 can be sooner than the new target, and takes the replica back: the person tries again.
            if self.beside == Beside::HpaToZero && self.replicas().await? == 0 {
                self.cluster.testbed.kubectl(&scale).await?.success()?;
            }
            let va = self.variant().await?;
            let measured = is(&va, "MetricsAvailable", ("True", "MetricsFound")) && target(&va) == Some(1);
            ensure!(measured && self.replicas().await? == 1, "{}", va["status"]);
            Ok(())
        })
        .await?;
        let what = format!("the request in {name}");
        eventually(&what, DEADLINE, async || was_spared(&self.fleet, 1)).await
    }
}

/// A pool of a namespace with a fake endpoint picker.
async fn picker(cluster: &Cluster, namespace: &str, manner: Manner) -> anyhow::Result<FakePicker> {
    let picker = FakePicker::start([127, 0, 0, 10]).await?;
    picker.behaves(manner);
    picker.pod(&cluster.testbed, namespace, "epp", "epp-0").await?;
    cluster.testbed.apply(&pool(namespace, "epp")).await?;
    Ok(picker)
}

/// A model whose picker has no flow control stays up, and everything that speaks of it says why. Once the picker has flow
/// control the model goes to zero.
async fn a_model_without_flow_control_stays_up(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = cluster.testbed.namespace("zero-no-flow").await?;
    let fleet = servers(cluster, &namespace)?;
    let picker = picker(cluster, &namespace, Manner::NoFlowControl).await?;
    let model = Model::serve(cluster, Beside::Nothing, namespace, fleet).await?;
    let idle = tokio::time::Instant::now();
    let missing = "its endpoint picker has no flow control";
    let ns = model.namespace.as_str();
    eventually("the condition and an event to name the obstacle", DEADLINE, async || {
        let va = model.variant().await?;
        let condition = found(&va, "OptimizationReady")?;
        ensure!(condition["message"].to_string().contains(missing), "{condition}");
        let events = cluster.events(ns, "NotWakeable").await?;
        ensure!(events.len() == 1 && events[0]["message"].to_string().contains(missing), "{events:?}");
        Ok(())
    })
    .await?;
    eventually("three retention periods to pass", DEADLINE, async || {
        ensure!(idle.elapsed() > 3 * RETENTION, "{:?}", idle.elapsed());
        Ok(())
    })
    .await?;
    let decisions = cluster.events(ns, "ScalingDecision").await?;
    ensure!(decisions.iter().all(|event| !event["message"].to_string().contains("-> 0")), "{decisions:?}");
    ensure!(model.replicas().await? == 1, "its replica is gone");
    picker.behaves(Manner::Later);
    model.goes_to_zero().await
}

/// A request of a fleet ran to its end on the pod that it began on.
fn was_spared(fleet: &Fleet, nth: usize) -> anyhow::Result<()> {
    let all = fleet.requests();
    let request = all.get(nth).context("no request was sent")?;
    ensure!(request.ended.is_some() && request.begins == 1, "{request:?}");
    Ok(())
}

/// A request that no scrape shows, as if it came right after the last one, at the second of two ranks in the pod: the
/// ranks themselves are asked, and the step is not taken while the request runs.
async fn a_request_that_no_scrape_has_seen_is_spared(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = cluster.testbed.namespace("zero-unseen").await?;
    let (first, second) = (servers(cluster, &namespace)?, servers(cluster, &namespace)?);
    let picker = FakePicker::start([127, 0, 0, 8]).await?;
    picker.pod(&cluster.testbed, &namespace, "epp", "epp-0").await?;
    let ranks = [first.port(), second.port()];
    cluster.testbed.apply(&pool_of_ranks(&namespace, "epp", &ranks)).await?;
    second.hide_requests();
    second.send(FOR_EVER);
    let model = Model::serve(cluster, Beside::Nothing, namespace, first).await?;
    let held = "A request came just before the step to zero: it is not taken";
    let at_second = format!(":{}", second.port());
    eventually("the step to be held back", DEADLINE, async || {
        ensure!(target(&model.variant().await?) == Some(0), "there is no signal");
        let lines = model.log_lines(held)?;
        let seen = |line: &Value| line["server"].as_str().is_some_and(|s| s.ends_with(&at_second));
        ensure!(lines.iter().any(seen), "the second rank was not asked: {lines:?}");
        Ok(())
    })
    .await?;
    second.end_requests();
    model.goes_to_zero().await?;
    was_spared(&second, 0)
}

/// An endpoint picker that Prometheus does not scrape hangs, and then has a request: nobody else could know of it.
async fn a_picker_that_nobody_scrapes_is_asked(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = cluster.testbed.namespace("zero-picker").await?;
    let picker = picker(cluster, &namespace, Manner::Later).await?;
    let fleet = servers(cluster, &namespace)?;
    // Keeps the model up until its picker was seen.
    fleet.send(FOR_EVER);
    let model = Model::serve(cluster, Beside::Nothing, namespace, fleet).await?;
    eventually("flow control to be seen", DEADLINE, async || {
        ensure!(picker.asked().times > 0, "it was not asked");
        Ok(())
    })
    .await?;
    picker.behaves(Manner::Hangs);
    model.fleet.end_requests();
    let pods = model.pods();
    let missed = "A model does not go to zero: its endpoint picker gives no answer, and Prometheus does not show its queue; it begins its retention period anew";
    eventually("the picker to be missed", DEADLINE, async || {
        ensure!(!model.log_lines(missed)?.is_empty(), "it is not");
        Ok(())
    })
    .await?;
    picker.queue(&VariantFixture::new(&model.namespace, "a").model, 1.0);
    picker.behaves(Manner::Later);
    let asked = picker.asked().times;
    eventually("its request to keep the model up", DEADLINE, async || {
        ensure!(picker.asked().times > asked, "it was not asked");
        ensure!(target(&model.variant().await?) == Some(1), "the target was not taken back");
        Ok(())
    })
    .await?;
    ensure!(model.replicas().await? == 1 && model.pods() == pods, "its replica went meanwhile");
    picker.queue(&VariantFixture::new(&model.namespace, "a").model, 0.0);
    model.goes_to_zero().await
}

/// Waits until the condition `ScalingActive` of an HPA has this status.
async fn until_scaling_active(model: &Model<'_>, active: &str) -> anyhow::Result<()> {
    eventually(&format!("ScalingActive of the HPA to be {active}"), DEADLINE, async || {
        let hpa = read(&model.cluster.testbed, &["hpa/a", "-n", &model.namespace]).await?;
        let condition = found(&hpa, "ScalingActive")?;
        ensure!(condition["status"] == active, "{condition}");
        ensure!(active == "True" || condition["reason"] == "ScalingDisabled", "{condition}");
        Ok(())
    })
    .await
}

/// A control plane with HPAs that may go to zero, and the kinds that are not of Kubernetes itself.
async fn cluster() -> anyhow::Result<Cluster> {
    let options = Options { name: "to-zero".to_owned(), hpa_to_zero: true, ..Options::default() };
    let testbed = Testbed::start(options).await?;
    apply_crds(&testbed, CRDS).await?;
    for kind in ["scaledobjects", "leaderworkersets"] {
        apply_stand_in(&testbed, kind).await?;
    }
    let install = Install::start(&testbed, &crate::support::options()).await?;
    Ok(Cluster { testbed, install })
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_models_go_to_zero_and_steps_are_carried_out_where_nobody_else_does() -> anyhow::Result<()> {
    let mut cluster = cluster().await?;
    let picker = Box::pin(a_picker_that_nobody_scrapes_is_asked(&cluster));
    let no_flow_control = Box::pin(a_model_without_flow_control_stays_up(&cluster));
    tokio::try_join!(Box::pin(whatever_else_scales_it(&cluster)), picker, no_flow_control)?;
    let Cluster { testbed, install } = cluster;
    install.stop().await?;
    let mut options = crate::support::options();
    options.env.push(("WVA_ACTUATION".to_owned(), "scale".to_owned()));
    let install = Install::start(&testbed, &options).await?;
    cluster = Cluster { testbed, install };
    every_step(&cluster).await
}

/// An idle model goes to zero, its request spared, and comes back when a person scales it.
async fn whatever_else_scales_it(cluster: &Cluster) -> anyhow::Result<()> {
    let models = try_join_all(Beside::ALL.map(|beside| Model::start(cluster, beside))).await?;
    let all = try_join_all(models.iter().map(Model::goes_to_zero));
    tokio::try_join!(all, a_request_that_no_scrape_has_seen_is_spared(cluster))?;
    for model in &models {
        was_spared(&model.fleet, 0).with_context(|| model.beside.name())?;
        let looks = model.log_lines("The last look before the step to zero: no server has a request")?;
        let blind = model.log_lines("The last look before the step to zero does not show every server: for those, what Prometheus knows decides")?;
        let name = model.beside.name();
        // One that somebody's change has overtaken is looked at again.
        ensure!(looks.iter().all(|l| l["idle"] == 1), "{name}: {looks:?}");
        ensure!(blind.is_empty(), "{name}: {blind:?}");
        match model.beside {
            Beside::ScaledObject => ensure!(looks.is_empty(), "{name}: that step is KEDA's"),
            // An HPA that may say 0 can be sooner.
            Beside::HpaToZero => {}
            _ => ensure!(!looks.is_empty(), "{name}: nobody looked"),
        }
    }
    let hpa = models.iter().find(|m| m.beside == Beside::Hpa).context("there is none")?;
    until_scaling_active(hpa, "False").await?;

    let scaled: Vec<&Model> = models.iter().filter(|m| m.beside != Beside::ScaledObject).collect();
    let woken = try_join_all(scaled.iter().map(|model| model.is_woken()));
    // While the others wake: it is idle again soon, and then at zero.
    tokio::try_join!(woken, until_scaling_active(hpa, "True"))?;
    try_join_all(scaled.iter().map(|model| model.goes_to_zero())).await.map(|_| ())
}

/// With `WVA_ACTUATION=scale`: a person fixes a number of replicas, and the program carries it out.
async fn every_step(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("steps").await?;
    let mut all = Vec::new();
    for (name, mode, beside) in [
        ("free", "fixed=3", Beside::Nothing),
        ("stateful", "fixed=2", Beside::StatefulSet),
        ("left", "fixed=2", Beside::Hpa),
        ("paused", "paused", Beside::Nothing),
        ("advised", "recommend", Beside::Nothing),
    ] {
        let fixture = VariantFixture { model: name.to_owned(), ..VariantFixture::new(&ns, name) };
        all.push(with_mode(&beside.manifests(&fixture), mode));
    }
    let group = VariantFixture { model: "group".to_owned(), ..VariantFixture::new(&ns, "group") };
    let target =
        "scaleTargetRef: {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: group}";
    let variant = group.variant().replace("scaleTargetRef: {kind: Deployment, name: group}", target);
    all.push(with_mode(&variant, "fixed=4"));
    all.push(format!(
        "apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: group, namespace: {ns}}}
spec: {{replicas: 1, leaderWorkerTemplate: {{size: 1, workerTemplate: {{spec: {{containers: []}}}}}}}}
"
    ));
    // HPAs first: a cycle between a variant and its HPA would scale that variant here.
    let all = all.join("---\n");
    let (hpas, others): (Vec<_>, Vec<_>) =
        all.split("---\n").partition(|manifest| manifest.contains("kind: HorizontalPodAutoscaler"));
    cluster.testbed.apply(&[hpas, others].concat().join("---\n")).await?;
    for (workload, replicas, ours) in [
        ("deployment/free", 3, true),
        ("statefulset/stateful", 2, true),
        ("leaderworkerset/group", 4, true),
        ("deployment/left", 2, false),
        ("deployment/paused", 1, false),
        ("deployment/advised", 1, false),
    ] {
        eventually(&format!("{replicas} replicas of {workload}"), DEADLINE, async || {
            let object = read(&cluster.testbed, &[workload, "-n", &ns, "--show-managed-fields"]).await?;
            ensure!(object["spec"]["replicas"] == replicas, "{}", object["spec"]["replicas"]);
            let managers = object["metadata"]["managedFields"].as_array().context("nobody manages it")?;
            ensure!(managers.iter().any(|m| m["manager"] == "wva") == ours, "{managers:?}");
            Ok(())
        })
        .await?;
    }
    // To zero as well, and at once: a person has looked.
    let annotate = ["annotate", "va/free", "-n", &ns, "--overwrite", "wva.llmd.ai/mode=fixed=0"];
    cluster.testbed.kubectl(&annotate).await?.success()?;
    cluster.until_replicas(&ns, "free", 0).await
}

/// A variant's manifests with its mode.
fn with_mode(manifests: &str, mode: &str) -> String {
    let labels = "  labels: {inference.optimization/acceleratorName";
    manifests.replace(labels, &format!("  annotations: {{wva.llmd.ai/mode: \"{mode}\"}}\n{labels}"))
}
