//! A control plane for installs: it has the namespace and workload of a model server, and nothing of this program. Also
//! the checks of a working install and of its leftovers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_crds::names::{GROUP, VERSION};

use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{RELEASE, SYSTEM, WEBHOOKS};
use wva_testbed::replicas::LEASE_NAME;
use wva_testbed::{CommandOutput, Helm, Kubelet, NodeGroup, Options, Pods, Testbed, eventually};

use crate::support::{dry_run_create, external_metric, get_object, invalid_variant};

/// Namespace of the model server, a default of the chart of llm-d WVA.
pub(super) const MODELS: &str = "llm-d-autoscaler";
/// Workload of the model server.
const WORKLOAD: &str = "ms-inference-scheduling-llm-d-modelservice-decode";
/// Values with this model.
pub(super) const MODEL: &str = "llmd.namespace=llm-d-autoscaler,llmd.modelName=ms-inference-scheduling-llm-d-modelservice,llmd.modelID=unsloth/Meta-Llama-3.1-8B";
/// Values without a model.
pub(super) const NO_MODEL: &str = "llmd.namespace=,llmd.modelName=,llmd.modelID=";
/// Variant of the chart.
pub(super) const VARIANT: &str = "workload-variant-autoscaler-va";
/// Main config map.
pub(super) const MAIN_MAP: &str = "workload-variant-autoscaler-variantautoscaling-config";
/// Deployment of the controller.
pub(super) const MANAGER: &str = "workload-variant-autoscaler-controller-manager";
/// Secret with the CA of the program.
const CA_SECRET: &str = "workload-variant-autoscaler-webhook-service-ca";
/// CRD.
pub(super) const CRD: &str = "variantautoscalings.llmd.ai";
/// Pod of `helm test`, which stays until the next test.
const TEST_POD: &str = "workload-variant-autoscaler-test";
/// A Prometheus address without a server: the program logs it, and continues.
pub(super) const NO_PROMETHEUS: &str = "wva.prometheus.baseURL=http://127.0.0.1:9";
/// Longest wait for a working install.
const UP: Duration = Duration::from_mins(3);

/// Path of the chart.
pub(super) fn chart() -> String {
    Helm::chart().to_string_lossy().into_owned()
}

/// The control plane with its kubelet.
pub(crate) struct Site {
    /// Control plane.
    pub(crate) testbed: Testbed,
    kubelet: Kubelet,
    wva: PathBuf,
    before: BTreeSet<String>,
}

impl Site {
    /// Starts it, with this program in the image.
    pub(crate) async fn start(name: &str, wva: &Path) -> anyhow::Result<Self> {
        let testbed = Testbed::start(Options {
            name: name.to_owned(),
            nodes: vec![NodeGroup::new("h100", 2, "NVIDIA-H100-80GB-HBM3")],
            with_prometheus: false,
            kubelet: Some(Pods::Controllers),
            ..Options::default()
        })
        .await?;
        let kubelet = Kubelet::start(&testbed, wva).await?;
        let mut site = Self { testbed, kubelet, wva: wva.to_owned(), before: BTreeSet::new() };
        site.namespaces().await?;
        site.testbed.apply(&VariantFixture::new(MODELS, WORKLOAD).deployment()).await?;
        site.before = site.objects().await?;
        Ok(site)
    }

    /// Creates the namespaces where they are missing. The controller's namespace enforces the restricted Pod Security
    /// Standard.
    pub(super) async fn namespaces(&self) -> anyhow::Result<()> {
        for (namespace, level) in [(MODELS, "privileged"), (SYSTEM, "restricted")] {
            let labels = json!({"pod-security.kubernetes.io/enforce": level});
            let metadata = json!({"name": namespace, "labels": labels});
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            self.testbed.apply(&object.to_string()).await?;
        }
        eventually("what belongs to the namespaces", UP, async || {
            for namespace in [MODELS, SYSTEM] {
                let own = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
                self.kubectl(&[&["-n", namespace, "get"][..], &own].concat()).await?;
            }
            Ok(())
        })
        .await
    }

    /// Path of the installed program.
    pub(super) fn wva(&self) -> &Path {
        &self.wva
    }

    /// Logs of the pods and the kubelet.
    pub(crate) fn evidence(&self) -> String {
        self.kubelet.evidence()
    }

    /// Log of a pod.
    pub(super) fn log(&self, pod: &str) -> String {
        self.kubelet.log(pod)
    }

    /// Runs kubectl, which must succeed.
    pub(super) async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.testbed.kubectl(args).await?.success()
    }

    /// Installs or upgrades the release, with the model.
    pub(super) async fn helm(&self, helm: &Helm, args: &[&str]) -> anyhow::Result<CommandOutput> {
        let install = ["upgrade", "--install", RELEASE, &chart(), "-n", SYSTEM, helm.wait(), "--timeout=4m"];
        helm.run(&[&install[..], &["--set", MODEL], args].concat()).await
    }

    /// Uninstalls the release, and deletes what an uninstall keeps.
    pub(super) async fn remove(&self, helm: &Helm) -> anyhow::Result<String> {
        self.uninstall(helm).await?;
        self.leftovers().await?;
        self.forget().await?;
        Ok("nothing left but CRD, Lease and CA".to_owned())
    }

    /// Waits until the external metrics API answers.
    pub(super) async fn external_metrics_are_served(&self) -> anyhow::Result<()> {
        eventually("the external metrics API to answer", UP, async || {
            external_metric(&self.testbed, MODELS, VARIANT).await.map(drop)
        })
        .await
    }

    /// Uninstalls the release.
    pub(super) async fn uninstall(&self, helm: &Helm) -> anyhow::Result<()> {
        let ran = helm.run(&["uninstall", RELEASE, "-n", SYSTEM, "--wait", "--timeout=4m"]).await?;
        ran.success().map(drop)
    }

    /// Runs `helm test`. Returns its result and the log of its pod.
    pub(super) async fn test(&self, helm: &Helm) -> anyhow::Result<(CommandOutput, String)> {
        let before = self.log(TEST_POD).len();
        let ran = helm.run(&["test", RELEASE, "-n", SYSTEM, "--timeout=4m"]).await?;
        let log = self.log(TEST_POD).split_off(before);
        Ok((ran, log))
    }

    /// Waits until the install works: all replicas run, both webhook configurations are open, a valid object is
    /// admitted, an invalid one is denied by its rule, and the variant and its HPA are stored.
    pub(super) async fn healthy(&self) -> anyhow::Result<()> {
        self.controller_works().await?;
        self.objects_are_stored().await
    }

    /// Checks that the variant and its HPA are stored.
    pub(super) async fn objects_are_stored(&self) -> anyhow::Result<()> {
        self.kubectl(&["-n", MODELS, "get", "va", VARIANT]).await?;
        self.kubectl(&["-n", MODELS, "get", "hpa", &format!("{RELEASE}-hpa")]).await.map(drop)
    }

    /// Waits until the controller works, without variant and HPA.
    pub(super) async fn controller_works(&self) -> anyhow::Result<()> {
        self.replicas_work(2).await
    }

    /// Waits until the controller works with this number of replicas.
    pub(super) async fn replicas_work(&self, count: usize) -> anyhow::Result<()> {
        let wanted = [count; 3].map(|count| count.to_string()).join("/");
        eventually("the install to work", UP, async || {
            let path = "jsonpath={.status.replicas}/{.status.updatedReplicas}/{.status.availableReplicas}";
            let replicas = self.kubectl(&["-n", SYSTEM, "get", "deployment", MANAGER, "-o", path]).await?;
            ensure!(replicas == wanted, "replicas, updated and available ones are {replicas}");
            self.webhooks_are_open().await?;
            self.judges(MODELS, &json!({})).await
        })
        .await
        .with_context(|| self.evidence())
    }

    /// Checks that both webhook configurations have rules.
    async fn webhooks_are_open(&self) -> anyhow::Result<()> {
        for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
            let path = "jsonpath={.webhooks[*].rules[*].resources[*]}";
            let open = self.kubectl(&["get", kind, WEBHOOKS, "-o", path]).await?;
            ensure!(open.contains("variantautoscalings"), "{kind} has no rules: {open:?}");
        }
        Ok(())
    }

    /// Checks that reviews of variants with these labels are answered: a violation that the CRD does not detect is
    /// denied by its rule.
    pub(super) async fn judges(&self, namespace: &str, labels: &Value) -> anyhow::Result<()> {
        let client = self.testbed.admin()?;
        let mut object = invalid_variant("probe");
        object["metadata"]["labels"] = labels.clone();
        // The CRD of llm-d WVA requires it.
        object["spec"]["scaleTargetRef"]["kind"] = json!("Deployment");
        let refused = dry_run_create(&client, namespace, &object).await?.err();
        let refused = refused.context("a bad variant is not refused")?;
        ensure!(refused.message.contains("[WVA-VA-017]"), "{}", refused.message);
        object["metadata"]["annotations"] = Value::Null;
        let admitted = dry_run_create(&client, namespace, &object).await?;
        ensure!(admitted.is_ok(), "{admitted:?}");
        Ok(())
    }

    /// Pods of the controller that are not terminating. They change only by a rollout.
    pub(super) async fn pods(&self) -> anyhow::Result<BTreeSet<String>> {
        let args = ["-n", SYSTEM, "pods", "-l", "control-plane=controller-manager"];
        let pods = get_object(&self.testbed, &args).await?;
        let metadata = pods["items"].as_array().into_iter().flatten().map(|pod| &pod["metadata"]);
        let stay = metadata.filter(|metadata| metadata["deletionTimestamp"].is_null());
        Ok(stay.filter_map(|metadata| metadata["name"].as_str()).map(str::to_owned).collect())
    }

    /// Restarts of the containers of all pods.
    pub(super) async fn restarts(&self) -> anyhow::Result<u32> {
        let path = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
        let counts = self.kubectl(&["-n", SYSTEM, "get", "pods", "-o", path]).await?;
        counts.split_whitespace().map(|count| Ok(count.parse::<u32>()?)).sum()
    }

    /// Checks that the cluster has no new objects since before the first install, apart from those that an uninstall
    /// keeps: CRD, Lease, the Secret with the CA, and the pod of a test.
    pub(super) async fn leftovers(&self) -> anyhow::Result<()> {
        let stays = [
            format!("customresourcedefinition.apiextensions.k8s.io//{CRD}"),
            // The API server creates it for the CRD.
            format!("apiservice.apiregistration.k8s.io//{VERSION}.{GROUP}"),
            format!("lease.coordination.k8s.io/{SYSTEM}/{LEASE_NAME}"),
            format!("secret/{SYSTEM}/{CA_SECRET}"),
            format!("pod/{SYSTEM}/{TEST_POD}"),
        ];
        eventually("the rest of the release to be gone", UP, async || {
            let now = self.objects().await?;
            let left: Vec<_> =
                now.difference(&self.before).filter(|object| !stays.contains(object)).collect();
            ensure!(left.is_empty(), "still there: {left:?}");
            Ok(())
        })
        .await
    }

    /// All lasting objects of the cluster.
    async fn objects(&self) -> anyhow::Result<BTreeSet<String>> {
        let kinds = self.kubectl(&["api-resources", "--verbs=list", "-o", "name"]).await?;
        let passing = ["events", "events.events.k8s.io", "componentstatuses", "endpoints"];
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !passing.contains(kind)).collect();
        let columns = "jsonpath={range .items[*]}{.kind}|{.apiVersion}|{.metadata.namespace}|{.metadata.name}{\"\\n\"}{end}";
        let list = self.kubectl(&["get", &kinds.join(","), "-A", "-o", columns]).await?;
        let name = |line: &str| -> Option<String> {
            let fields: Vec<&str> = line.split('|').collect();
            let [kind, version, namespace, name] = fields[..] else { return None };
            let group = version.split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
            // Objects of the model server, and the heartbeat of the node.
            let own =
                name.starts_with(WORKLOAD) || namespace == "kube-node-lease" || group == ".metrics.k8s.io";
            (!own).then(|| format!("{}{group}/{namespace}/{name}", kind.to_lowercase()))
        };
        Ok(list.lines().filter_map(name).collect())
    }

    /// Deletes everything that an experiment left: the next one must not depend on it.
    pub(super) async fn clean(&self) -> anyhow::Result<()> {
        let helm = Helm::new(&self.testbed, "helm").await?;
        let release = helm.run(&["status", RELEASE, "-n", SYSTEM]).await?;
        if release.ok {
            self.uninstall(&helm).await?;
        }
        self.forget().await?;
        self.kubectl(&["delete", "crd", CRD, "--ignore-not-found"]).await.map(drop)
    }

    /// Deletes the Leases of instances, which contain the name of the release.
    pub(super) async fn leases_gone(&self) -> anyhow::Result<()> {
        let lease = format!("lease/{LEASE_NAME}-{RELEASE}");
        self.kubectl(&["-n", SYSTEM, "delete", &lease, "--ignore-not-found"]).await.map(drop)
    }

    /// Deletes what an uninstall keeps in the namespace, as its documentation describes.
    pub(super) async fn forget(&self) -> anyhow::Result<()> {
        let all = [format!("lease/{LEASE_NAME}"), format!("secret/{CA_SECRET}"), format!("pod/{TEST_POD}")];
        let [lease, secret, pod] = &all;
        self.kubectl(&["-n", SYSTEM, "delete", lease, secret, pod, "--ignore-not-found"]).await.map(drop)
    }
}
