//! KEDA's operator and metrics server with the rights of KEDA's own manifests. Services lead to loopback. The
//! certificate is generated here: KEDA's own rotation waits for a kubelet to mount a Secret.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::install::{API_SERVICE, get};
use wva_testbed::{Process, Testbed, eventually, free_port};

use crate::command::SOON;
use crate::consumers::programs::{apply, established, module, start, yaml_files};

/// Namespace, account and Service in KEDA's manifests.
const NAMESPACE: &str = "keda";
pub(super) const ACCOUNT: &str = "keda-operator";
const METRICS_SERVICE: &str = "keda-metrics-apiserver";

/// Number of log lines shown on failure.
const LINES: usize = 8;

/// Both programs. Drop to end them.
pub(super) struct Keda {
    operator: Process,
    adapter: Process,
}

impl Keda {
    /// Installs CRDs and roles, starts both programs, and waits until the API server reaches the metrics server.
    pub(super) async fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let config = module("keda", "github.com/kedacore/keda/v2").await?.join("config");
        testbed
            .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"))
            .await?;
        apply(testbed, &yaml_files(&config.join("crd/bases"))?).await?;
        let manifests = [
            "service_account/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml",
            "metrics-server/role.yaml", "metrics-server/role_binding.yaml",
        ];
        apply(testbed, &manifests.map(|file| config.join(file))).await?;
        established(testbed).await?;
        let hosts = [format!("{ACCOUNT}.{NAMESPACE}.svc"), format!("{METRICS_SERVICE}.{NAMESPACE}.svc")];
        let certificates =
            testbed.serving_certificate("keda-certificates", &hosts.each_ref().map(String::as_str))?;
        let kubeconfig = testbed.service_account_kubeconfig(NAMESPACE, ACCOUNT).await?;
        let grpc = free_port()?;
        let operator = operator(testbed, &kubeconfig, &certificates, grpc).await?;
        let served = free_port()?;
        let adapter = adapter(testbed, &kubeconfig, &certificates, grpc, served).await?;
        let keda = Self { operator, adapter };
        register(testbed, &config, &certificates, served).await.with_context(|| keda.evidence())?;
        Ok(keda)
    }

    /// Ends of both logs.
    pub(super) fn evidence(&self) -> String {
        [&self.operator, &self.adapter]
            .map(|process| format!("the end of the log of {}:\n{}", process.name(), process.log_tail(LINES)))
            .join("\n")
    }
}

async fn operator(
    testbed: &Testbed,
    kubeconfig: &Path,
    certificates: &Path,
    grpc: u16,
) -> anyhow::Result<Process> {
    let health = format!("127.0.0.1:{}", free_port()?);
    let args = [
        "--zap-log-level=info".to_owned(),
        "--zap-encoder=console".to_owned(),
        "--metrics-bind-address=127.0.0.1:0".to_owned(),
        format!("--health-probe-bind-address={health}"),
        format!("--metrics-service-bind-address=127.0.0.1:{grpc}"),
        format!("--cert-dir={}", certificates.display()),
    ];
    let process = start(testbed, "keda-operator", &args, &environment(kubeconfig)?).await?;
    eventually("KEDA's operator to be ready", SOON, async || {
        let (status, text) = get(&format!("http://{health}/readyz")).await?;
        ensure!(status == 200, "{status}: {text}");
        Ok(())
    })
    .await
    .with_context(|| process.log_tail(LINES))?;
    Ok(process)
}

async fn adapter(
    testbed: &Testbed,
    kubeconfig: &Path,
    certificates: &Path,
    grpc: u16,
    served: u16,
) -> anyhow::Result<Process> {
    let file = |name: &str| certificates.join(name).display().to_string();
    let kubeconfig_flag = |of: &str| format!("--{of}-kubeconfig={}", kubeconfig.display());
    let args = [
        format!("--secure-port={served}"),
        "--bind-address=127.0.0.1".to_owned(),
        // Its own metrics, on a free port.
        "--port=0".to_owned(),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--tls-cert-file={}", file("tls.crt")),
        format!("--tls-private-key-file={}", file("tls.key")),
        format!("--cert-dir={}", certificates.display()),
        format!("--metrics-service-address=localhost:{grpc}"),
        format!("--metrics-service-grpc-authority={ACCOUNT}.{NAMESPACE}.svc"),
        kubeconfig_flag("authentication"),
        kubeconfig_flag("authorization"),
        kubeconfig_flag("lister"),
    ];
    start(testbed, "keda-adapter", &args, &environment(kubeconfig)?).await
}

/// Variables of KEDA's manifests, and the namespace that it reads from a file in a pod.
fn environment(kubeconfig: &Path) -> anyhow::Result<[(&'static str, &str); 5]> {
    let kubeconfig = kubeconfig.to_str().context("the kubeconfig's path is not UTF-8")?;
    Ok([
        ("KUBECONFIG", kubeconfig),
        ("POD_NAMESPACE", NAMESPACE),
        ("KEDA_CLUSTER_OBJECT_NAMESPACE", NAMESPACE),
        ("WATCH_NAMESPACE", ""),
        ("KEDA_HTTP_DEFAULT_TIMEOUT", ""),
    ])
}

/// Registers the metrics server like KEDA's `APIService`, and waits until the API server reaches it.
async fn register(testbed: &Testbed, config: &Path, certificates: &Path, port: u16) -> anyhow::Result<()> {
    testbed.loopback_service(NAMESPACE, METRICS_SERVICE, port).await?;
    let manifest = std::fs::read_to_string(config.join("metrics-server/api_service.yaml"))?;
    let mut manifest: Value = serde_saphyr::from_str(&manifest)?;
    manifest["spec"]["service"]["port"] = json!(port);
    let ca = std::fs::read(certificates.join("ca.crt"))?;
    manifest["spec"]["caBundle"] = serde_json::to_value(k8s_openapi::ByteString(ca))?;
    testbed.apply(&manifest.to_string()).await?;
    let path = "jsonpath={.status.conditions[?(@.type==\"Available\")]}";
    eventually("KEDA's metrics server to answer", SOON, async || {
        let available = testbed.kubectl(&["get", "apiservice", API_SERVICE, "-o", path]).await?.success()?;
        ensure!(available.contains("\"status\":\"True\""), "{available}");
        Ok(())
    })
    .await
}
