//! A real endpoint picker, the EPP of the inference extension: its process, and the account and the pod by which its chart
//! deploys it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::picker::PICKER_LABEL;
use wva_testbed::{Process, Signal, Testbed, free_port};

use super::site::SiteOptions;
use super::{RouterTestbed, wait_until_serving};

/// Name of pool, Service, account and label of the picker.
pub(super) const PICKER: &str = "epp";
/// A picker that ends gives its requests 30 s.
const DRAIN: Duration = Duration::from_mins(1);
/// Limit of a request for a long page.
const PAGE: Duration = Duration::from_secs(30);
/// Log lines of a picker that takes requests.
const SERVING: [[&str; 2]; 2] =
    [["gRPC server listening", "ext-proc"], ["Reconciling InferencePool", PICKER]];

/// A running picker; drop it to end it.
pub(super) struct Epp {
    program: PathBuf,
    args: Vec<String>,
    kubeconfig: PathBuf,
    log: PathBuf,
    process: Process,
    ports: PickerPorts,
}

#[derive(Clone, Copy)]
struct PickerPorts {
    grpc: u16,
    health: u16,
    metrics: u16,
}

impl Epp {
    /// Starts the picker of the pool [`PICKER`] of a namespace, and then creates its pod.
    pub(super) async fn start(
        testbed: &RouterTestbed,
        namespace: &str,
        options: SiteOptions,
    ) -> anyhow::Result<Self> {
        let control_plane = &testbed.cluster.testbed;
        control_plane.apply(&account(namespace)).await?;
        if options.may_review {
            control_plane.apply(&review_right(namespace)).await?;
        }
        let kubeconfig = control_plane.service_account_kubeconfig(namespace, PICKER).await?;
        let config = control_plane.data().join(format!("{PICKER}-{namespace}.json"));
        std::fs::write(&config, configuration(options.has_flow_control).to_string())
            .with_context(|| format!("cannot write {}", config.display()))?;
        let ports = PickerPorts { grpc: free_port()?, health: free_port()?, metrics: free_port()? };
        // It makes a certificate of its own otherwise, which takes up to 37 s.
        let certificate = testbed.certificate.display();
        let args = vec![
            format!("--pool-name={PICKER}"),
            format!("--pool-namespace={namespace}"),
            format!("--grpc-port={}", ports.grpc),
            format!("--grpc-health-port={}", ports.health),
            format!("--metrics-port={}", ports.metrics),
            format!("--config-file={}", config.display()),
            format!("--cert-path={certificate}"),
            "--tracing=false".to_owned(),
        ];
        let log = control_plane.logs().join(format!("{PICKER}-{namespace}.log"));
        let program = testbed.epp.clone();
        let process = spawn(&program, &args, &kubeconfig, &log)?;
        let epp = Self { program, args, kubeconfig, log, process, ports };
        epp.wait_until_serving().await?;
        create_pod(control_plane, namespace, &epp.args, options.names_port.then_some(ports.metrics)).await?;
        Ok(epp)
    }

    /// Ends the picker like a kubelet, and starts it again on the same ports.
    pub(super) async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::Term)?;
        self.process.wait_exit(DRAIN).await?;
        self.process = spawn(&self.program, &self.args, &self.kubeconfig, &self.log)?;
        self.wait_until_serving().await
    }

    /// Port of Envoy's requests.
    pub(super) fn grpc(&self) -> u16 {
        self.ports.grpc
    }

    /// URL of the metrics.
    pub(super) fn metrics_url(&self) -> String {
        format!("http://127.0.0.1:{}/metrics", self.ports.metrics)
    }

    /// Port of the metrics.
    pub(super) fn metrics(&self) -> u16 {
        self.ports.metrics
    }

    /// The whole page, for this token.
    pub(super) async fn page(&self, token: &str) -> anyhow::Result<String> {
        let client = reqwest::Client::builder().no_proxy().timeout(PAGE).build()?;
        let answer = client.get(self.metrics_url()).bearer_auth(token).send().await?.error_for_status()?;
        Ok(answer.text().await?)
    }

    async fn wait_until_serving(&self) -> anyhow::Result<()> {
        wait_until_serving(&self.process, async || {
            let log = self.process.log();
            let is_logged =
                |parts: &[&str; 2]| log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
            ensure!(SERVING.iter().all(is_logged), "it has not logged {SERVING:?}");
            Ok(())
        })
        .await
    }
}

fn spawn(program: &Path, args: &[String], kubeconfig: &Path, log: &Path) -> anyhow::Result<Process> {
    let kubeconfig = kubeconfig.to_str().context("the kubeconfig's path is not UTF-8")?;
    Process::spawn(PICKER, program, args, &[("KUBECONFIG", kubeconfig)], log)
}

/// The account of the picker with the rights that its chart always gives it.
fn account(namespace: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {PICKER}, namespace: {namespace}}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {PICKER}, namespace: {namespace}}}
rules:
- {{apiGroups: [\"\"], resources: [pods], verbs: [get, list, watch]}}
- {{apiGroups: [inference.networking.k8s.io], resources: [inferencepools], verbs: [get, list, watch]}}
- apiGroups: [inference.networking.x-k8s.io]
  resources: [inferencemodelrewrites, inferenceobjectives]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {PICKER}, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {PICKER}}}
subjects: [{{kind: ServiceAccount, name: {PICKER}, namespace: {namespace}}}]
"
    )
}

/// The right to check tokens, which its chart gives it with `monitoring.prometheus.enabled=true`.
pub(super) fn review_right(namespace: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {PICKER}-{namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}}
subjects: [{{kind: ServiceAccount, name: {PICKER}, namespace: {namespace}}}]
"
    )
}

/// The plugins of the chart, with or without flow control.
fn configuration(has_flow_control: bool) -> Value {
    let gates: &[&str] = if has_flow_control { &["flowControl"] } else { &[] };
    let scorers = [("queue-scorer", 2), ("kv-cache-utilization-scorer", 2), ("prefix-cache-scorer", 3)];
    let scored: Vec<Value> =
        scorers.iter().map(|(name, weight)| json!({"pluginRef": name, "weight": weight})).collect();
    let plugins =
        scorers.map(|(name, _)| name).into_iter().chain(["metrics-data-source", "core-metrics-extractor"]);
    let plugins: Vec<Value> = plugins.map(|name| json!({"type": name})).collect();
    json!({
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
        "kind": "EndpointPickerConfig",
        "featureGates": gates,
        "plugins": plugins,
        "schedulingProfiles": [{"name": "default", "plugins": scored}],
    })
}

/// Creates the pod of a picker. No kubelet runs it: this function writes its status.
async fn create_pod(
    testbed: &Testbed,
    namespace: &str,
    args: &[String],
    metrics: Option<u16>,
) -> anyhow::Result<()> {
    let mut ports = vec![json!({"name": "grpc", "containerPort": 9002})];
    ports.extend(metrics.map(|port| json!({"name": "metrics", "containerPort": port})));
    let container = json!({"name": PICKER, "image": PICKER, "args": args, "ports": ports});
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "epp-0", "namespace": namespace, "labels": {PICKER_LABEL: PICKER}},
        "spec": {"schedulerName": "none", "serviceAccountName": PICKER, "containers": [container]},
    });
    testbed.apply(&pod.to_string()).await?;
    let ready = json!({"type": "Ready", "status": "True"});
    let address = json!({"ip": "127.0.0.1"});
    let status = json!({"status": {
        "phase": "Running", "podIP": "127.0.0.1", "podIPs": [address], "conditions": [ready],
    }});
    let status = status.to_string();
    let patch =
        ["patch", "pod", "epp-0", "-n", namespace, "--subresource=status", "--type=merge", "-p", &status];
    testbed.kubectl(&patch).await?.success().map(drop)
}
