//! Objects of an install: CRD, RBAC, Service, webhook configurations and APIService from the repository's manifests.
//! Unlike in a cluster, the Service leads to ports on localhost.

use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{API_SERVICE, InstallOptions, RELEASE, SERVICE, SYSTEM, WEBHOOKS};
use crate::Testbed;
use crate::fixtures::invalid_variant;

/// Name of the invalid variant that shows whether webhooks are called. It is never stored.
pub const PROBE: &str = "testbed-probe";

/// Target ports of the Service.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Port of the webhooks.
    pub admission: u16,
    /// Port of the external metrics API, if the release serves it.
    pub external_metrics: Option<u16>,
}

/// Applies only the CRD.
pub async fn crd(testbed: &Testbed) -> anyhow::Result<()> {
    apply_crd(testbed, &read("crds/llmd.ai_variantautoscalings.yaml")?).await
}

/// Applies this CRD.
pub async fn apply_crd(testbed: &Testbed, crd: &str) -> anyhow::Result<()> {
    match testbed.apply(crd).await {
        // Two releases may install at the same time: kubectl finds no CRD, and its create comes second.
        Err(error) if error.to_string().contains("AlreadyExists") => testbed.apply(crd).await?,
        applied => applied?,
    }
    let established =
        ["wait", "--for=condition=Established", "crd/variantautoscalings.llmd.ai", "--timeout=150s"];
    testbed.kubectl(&established).await?.success()?;
    testbed.wait_discovered("variantautoscalings.llmd.ai").await
}

/// Applies namespace, service account and RBAC; returns the name of the service account.
pub async fn account(testbed: &Testbed, options: &InstallOptions) -> anyhow::Result<String> {
    let system = options.named(SYSTEM);
    testbed.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {system}\n")).await?;
    testbed.apply(&options.named(&read("config/base/rbac.yaml")?)).await?;
    Ok(options.named(&format!("{RELEASE}-controller-manager")))
}

/// Applies Service, webhook configurations and APIService with these ports.
pub async fn apply_webhooks(testbed: &Testbed, options: &InstallOptions, ports: Ports) -> anyhow::Result<()> {
    let [system, service] = [SYSTEM, SERVICE].map(|name| options.named(name));
    let admission = ports.admission;
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {service}\n  namespace: {system}\nspec:\n  type: ExternalName\n  externalName: localhost\n  ports:\n  - name: admission\n    port: {admission}\n"
    );
    testbed.apply(&service).await?;
    let webhooks = match &options.webhooks {
        Some(own) => own.clone(),
        None => options.named(&read("config/base/webhook.yaml")?),
    };
    for mut document in documents(&webhooks)? {
        let webhooks = document["webhooks"].as_array_mut();
        for webhook in webhooks.context("a webhook configuration without webhooks")? {
            webhook["clientConfig"]["service"]["port"] = admission.into();
            if let (Some(namespace), Some(selectors)) =
                (&options.judges, webhook["namespaceSelector"]["matchExpressions"].as_array_mut())
            {
                let key = "kubernetes.io/metadata.name";
                selectors.push(json!({"key": key, "operator": "In", "values": [namespace]}));
            }
        }
        testbed.apply(&document.to_string()).await?;
    }
    let Some(port) = ports.external_metrics else { return Ok(()) };
    for mut document in documents(&read("config/external-metrics/apiservice.yaml")?)? {
        document["spec"]["service"]["port"] = port.into();
        testbed.apply(&document.to_string()).await?;
    }
    Ok(())
}

/// Whether both webhook configurations have rules.
pub async fn check_webhooks_registered(testbed: &Testbed, options: &InstallOptions) -> anyhow::Result<()> {
    let webhooks = options.named(WEBHOOKS);
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        let path = "jsonpath={.webhooks[*].rules[*].resources[*]}";
        let open = testbed.kubectl(&["get", kind, &webhooks, "-o", path]).await?.success()?;
        ensure!(open.contains("variantautoscalings"), "{kind} has no rules: {open:?}");
    }
    Ok(())
}

/// Whether kube-apiserver calls the webhooks. It learns of a configuration by a watch, after it is stored.
pub async fn check_webhooks_called(testbed: &Testbed, options: &InstallOptions) -> anyhow::Result<()> {
    let instance = options.env.iter().rfind(|(key, _)| key == "CONTROLLER_INSTANCE").map(|(_, value)| value);
    // The configurations of `config/base` select no instance.
    if instance.is_some() && options.webhooks.is_none() {
        return Ok(());
    }
    let namespace = options.judges.as_deref().unwrap_or("default");
    let labels = instance.map(|instance| json!({"wva.llmd.ai/controller-instance": instance}));
    let mut object = invalid_variant(PROBE);
    object["metadata"]["labels"] = json!(labels);
    // The CRD of llm-d WVA has no default.
    object["spec"]["scaleTargetRef"]["kind"] = json!("Deployment");
    let create = ["create", "--dry-run=server", "-n", namespace, "-f", "-"];
    let ran = testbed.kubectl_with(&create, &object.to_string()).await?;
    ensure!(ran.stderr.contains("[WVA-VA-017]"), "an invalid variant was not denied: {ran:?}");
    Ok(())
}

/// `Available` status of the APIService: `True`, `False`, or `None` if not set yet.
pub async fn metrics_api_available(testbed: &Testbed) -> anyhow::Result<String> {
    let available = "jsonpath={.status.conditions[?(@.type==\"Available\")].status}";
    testbed.kubectl(&["get", "apiservice", API_SERVICE, "-o", available]).await?.success()
}

/// Text of a repository file.
fn read(path: &str) -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Documents of a YAML text.
fn documents(yaml: &str) -> anyhow::Result<Vec<Value>> {
    serde_saphyr::from_multiple(yaml).map_err(|e| anyhow::anyhow!("a manifest is not YAML: {e}"))
}
