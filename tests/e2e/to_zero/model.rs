//! One model with servers, endpoint picker and autoscaler, on its way to zero and back.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::{VariantFixture, scale_to_zero_map};
use wva_testbed::picker::{FakePicker, PickerBehavior, pool};
use wva_testbed::{Fleet, eventually};

use crate::support::{Cluster, DEADLINE, find_condition, fleet_config, get_object, has_condition, target};

/// Retention period.
pub(super) const RETENTION: Duration = Duration::from_secs(8);
/// Duration of a request, longer than the retention period.
const REQUEST: Duration = Duration::from_secs(12);

/// Autoscaler of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherScaler {
    Nothing,
    /// An HPA with `minReplicas: 1`.
    Hpa,
    /// An HPA with `minReplicas: 0`.
    HpaToZero,
    /// A ScaledObject that may go to 0, without KEDA.
    ScaledObject,
    /// No autoscaler, and the workload is a StatefulSet.
    StatefulSet,
}

impl OtherScaler {
    pub(super) const ALL: [Self; 5] =
        [Self::Nothing, Self::Hpa, Self::HpaToZero, Self::ScaledObject, Self::StatefulSet];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "zero-nothing",
            Self::Hpa => "zero-hpa",
            Self::HpaToZero => "zero-hpa-to-zero",
            Self::ScaledObject => "zero-keda",
            Self::StatefulSet => "zero-stateful",
        }
    }

    /// Manifests of a variant.
    pub(super) fn manifests(self, fixture: &VariantFixture) -> String {
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

/// A model of a test.
pub(super) struct Model<'a> {
    cluster: &'a Cluster,
    pub(super) scaler: OtherScaler,
    pub(super) namespace: String,
    pub(super) fleet: Fleet,
    /// No model goes to zero without a picker with flow control.
    _picker: Option<FakePicker>,
}

/// Starts the servers of the model of a namespace; it has no pods yet.
pub(super) fn servers(cluster: &Cluster, namespace: &str) -> anyhow::Result<Fleet> {
    Fleet::start(&cluster.testbed, fleet_config(namespace))
}

impl<'a> Model<'a> {
    /// Starts a model with a request that its first pod runs from its start.
    pub(super) async fn start(cluster: &'a Cluster, scaler: OtherScaler) -> anyhow::Result<Self> {
        let namespace = cluster.testbed.namespace(scaler.name()).await?;
        let fleet = servers(cluster, &namespace)?;
        fleet.send(REQUEST);
        let picker = picker(cluster, &namespace, PickerBehavior::Later).await?;
        let model = Self::deploy(cluster, scaler, namespace, fleet).await?;
        Ok(Self { _picker: Some(picker), ..model })
    }

    pub(super) async fn deploy(
        cluster: &'a Cluster,
        scaler: OtherScaler,
        namespace: String,
        fleet: Fleet,
    ) -> anyhow::Result<Self> {
        let fixture = VariantFixture::new(&namespace, "a");
        cluster.testbed.apply(&scaler.manifests(&fixture.port(fleet.port()))).await?;
        cluster.testbed.apply(&scale_to_zero_map(&namespace, RETENTION)).await?;
        fleet.wait_ready(1, DEADLINE).await?;
        Ok(Self { cluster, scaler, namespace, fleet, _picker: None })
    }

    /// Lines of the program's log with this message about the model.
    pub(super) fn log_lines(&self, message: &str) -> anyhow::Result<Vec<Value>> {
        let log = std::fs::read_to_string(self.cluster.install.process().log_path())?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ours = |line: &Value| line["msg"] == message && line["namespace"] == self.namespace.as_str();
        Ok(lines.filter(ours).collect())
    }

    pub(super) async fn replicas(&self) -> anyhow::Result<u64> {
        let workload =
            get_object(&self.cluster.testbed, &[&self.scaler.workload(), "-n", &self.namespace]).await?;
        workload["spec"]["replicas"].as_u64().context("no replicas")
    }

    pub(super) async fn variant(&self) -> anyhow::Result<Value> {
        self.cluster.variant(&self.namespace, "a").await
    }

    /// Waits for the model to be at rest at zero; only for the signal where another component scales it.
    pub(super) async fn wait_for_zero(&self) -> anyhow::Result<()> {
        let left = u64::from(self.scaler == OtherScaler::ScaledObject);
        eventually(&format!("{} to go to zero", self.scaler.name()), DEADLINE, async || {
            let va = self.variant().await?;
            ensure!(target(&va) == Some(0), "{}", va["status"]);
            ensure!(self.replicas().await? == left, "{} replicas", self.replicas().await?);
            let expected = [
                ("MetricsAvailable", "ScaleFromZero"),
                ("OptimizationReady", "ScaleFromZeroMode"),
                ("Ready", "Ready"),
            ];
            let is_at_rest = expected.iter().all(|(kind, reason)| has_condition(&va, kind, ("True", reason)));
            ensure!(left > 0 || is_at_rest, "{}", va["status"]);
            Ok(())
        })
        .await
    }

    /// Names of the pods that are ready.
    pub(super) fn pods(&self) -> Vec<String> {
        self.fleet.pods().into_iter().map(|load| load.pod).collect()
    }

    /// A request waits, and a person scales the workload up: it stays up while it loads and while it serves.
    pub(super) async fn wake(&self) -> anyhow::Result<()> {
        let scale = ["scale", &self.scaler.workload(), "-n", &self.namespace, "--replicas=1"];
        // A pod of a StatefulSet that is still terminating has the name of the next one, and would take the request.
        eventually(&format!("the pods of {} to be gone", self.scaler.name()), DEADLINE, async || {
            let pods = self.pods();
            ensure!(pods.is_empty(), "{pods:?}");
            Ok(())
        })
        .await?;
        self.fleet.send(REQUEST);
        self.cluster.testbed.kubectl(&scale).await?.success()?;
        let name = self.scaler.name();
        eventually(&format!("{name} to be measured again"), DEADLINE, async || {
            // An HPA that may go to 0 can be faster than the new target and remove the replica: the person tries again.
            if self.scaler == OtherScaler::HpaToZero && self.replicas().await? == 0 {
                self.cluster.testbed.kubectl(&scale).await?.success()?;
            }
            let va = self.variant().await?;
            let measured =
                has_condition(&va, "MetricsAvailable", ("True", "MetricsFound")) && target(&va) == Some(1);
            ensure!(measured && self.replicas().await? == 1, "{}", va["status"]);
            Ok(())
        })
        .await?;
        let what = format!("the request in {name}");
        eventually(&what, DEADLINE, async || assert_completed(&self.fleet, 1)).await
    }
}

/// A pool of a namespace with a fake endpoint picker.
pub(super) async fn picker(
    cluster: &Cluster,
    namespace: &str,
    behavior: PickerBehavior,
) -> anyhow::Result<FakePicker> {
    let picker = FakePicker::start([127, 0, 0, 10]).await?;
    picker.set_behavior(behavior);
    picker.pod(&cluster.testbed, namespace, "epp", "epp-0").await?;
    cluster.testbed.apply(&pool(namespace, "epp")).await?;
    Ok(picker)
}

/// Asserts that a request of a fleet ran to its end on the pod where it began.
pub(super) fn assert_completed(fleet: &Fleet, nth: usize) -> anyhow::Result<()> {
    let all = fleet.requests();
    let request = all.get(nth).context("no request was sent")?;
    ensure!(request.ended.is_some() && request.begins == 1, "{request:?}");
    Ok(())
}

/// Waits until the condition `ScalingActive` of an HPA has this status.
pub(super) async fn until_scaling_active(model: &Model<'_>, active: &str) -> anyhow::Result<()> {
    eventually(&format!("ScalingActive of the HPA to be {active}"), DEADLINE, async || {
        let hpa = get_object(&model.cluster.testbed, &["hpa/a", "-n", &model.namespace]).await?;
        let condition = find_condition(&hpa, "ScalingActive")?;
        ensure!(condition["status"] == active, "{condition}");
        ensure!(active == "True" || condition["reason"] == "ScalingDisabled", "{condition}");
        Ok(())
    })
    .await
}
