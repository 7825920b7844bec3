//! Installs without Helm commands: the Kustomize base with its components, and `deploy/install.sh`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::elsewhere;
use super::site::{CRD, MANAGER, MODELS, Site};
use super::table::Table;
use crate::support::{apply_crds, get_object};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{PICKER_READER, RELEASE, SYSTEM};
use wva_testbed::picker::{CRDS, FakePicker, pool};
use wva_testbed::{CommandOutput, Helm, eventually};

/// Longest wait for the external metrics API and for deleted namespaces.
const SOON: Duration = Duration::from_mins(3);
/// Longest run of the script, which waits for the release.
const SCRIPT: Duration = Duration::from_mins(8);

/// CRD of ServiceMonitors.
pub(super) const SERVICE_MONITORS: &str = include_str!("../../fixtures/stand-ins/servicemonitors.yaml");
/// Components of the overlay.
const COMPONENTS: [&str; 2] = ["external-metrics", "prometheus"];

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    table.step("install.sh", Box::pin(script(site, &helm))).await;
    table.step("install.sh again, with an instance", Box::pin(script_again(site, &helm))).await;
    table.step("install.sh with an invalid value", Box::pin(script_refuses(site, &helm))).await;
    table.step("install.sh --uninstall", Box::pin(script_uninstalls(site, &helm))).await;
    table.step("kubectl apply -k of an overlay, with external metrics", Box::pin(base(site))).await;
    table
        .step(
            "endpoint pickers get tokens of the picker reader alone, where the namespace says so",
            Box::pin(picker_tokens(site)),
        )
        .await;
    table.step("other names without their permissions", Box::pin(other_names_forbidden(site))).await;
    table.step("other names by the component of config/samples/renamed", Box::pin(other_names(site))).await;
    table.step("kubectl delete -k", Box::pin(base_deleted(site))).await;
    elsewhere::run(site, table).await?;
    Ok(())
}

/// Absolute path of a folder of the repository.
fn repository(path: &str) -> anyhow::Result<PathBuf> {
    let path = crate::support::repository_path(path);
    path.canonicalize().with_context(|| format!("there is no {}", path.display()))
}

async fn install_sh(
    site: &Site,
    helm: &Helm,
    env: &[(&str, &str)],
    args: &[&str],
) -> anyhow::Result<CommandOutput> {
    let mut command = tokio::process::Command::new(repository("deploy/install.sh")?);
    command.env("HELM", helm.program()).env("KUBECTL", site.testbed.tools().path("kubectl")?);
    command.env("KUBECONFIG", site.testbed.admin_kubeconfig()).envs(env.iter().copied()).args(args);
    wva_testbed::run("install.sh", command, "", SCRIPT).await
}

/// Stabilization windows of the HPA, up and down, and its instance selector.
async fn window(site: &Site) -> anyhow::Result<String> {
    let path = "jsonpath={.spec.behavior.scaleUp.stabilizationWindowSeconds}/{.spec.behavior.scaleDown.stabilizationWindowSeconds}/{.spec.metrics[0].external.metric.selector.matchLabels.controller_instance}";
    site.kubectl(&["-n", MODELS, "get", "hpa", &format!("{RELEASE}-hpa"), "-o", path]).await
}

async fn script(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    install_sh(site, helm, &[("PROMETHEUS_URL", "http://127.0.0.1:9")], &[]).await?.success()?;
    site.healthy().await?;
    let window = window(site).await?;
    ensure!(window == "240/240/", "windows and instance are {window}");
    let label = site.kubectl(&["get", "namespace", SYSTEM, "-o", "jsonpath={.metadata.labels}"]).await?;
    ensure!(label.contains("openshift.io/user-monitoring"), "the namespace's labels are {label}");
    Ok("everything works; the HPA's windows are 240 s".to_owned())
}

async fn script_again(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let env = [
        ("PROMETHEUS_URL", "http://127.0.0.1:9"),
        ("HPA_STABILIZATION_SECONDS", "120"),
        ("CONTROLLER_INSTANCE", "llm-d-autoscaler-pr-123"),
    ];
    install_sh(site, helm, &env, &["--set", "hpa.maxReplicas=20"]).await?.success()?;
    let window = window(site).await?;
    ensure!(window == "120/120/llm-d-autoscaler-pr-123", "windows and instance are {window}");
    eventually("the new pods to lead", SOON, async || {
        let pods = site.pods().await?;
        ensure!(
            pods.iter().any(|pod| site.log(pod).contains("llm-d-autoscaler-pr-123")),
            "no log names the instance"
        );
        Ok(())
    })
    .await?;
    Ok("the HPA's windows are 120 s, and it selects by the instance".to_owned())
}

async fn script_refuses(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let ran = install_sh(site, helm, &[("HPA_STABILIZATION_SECONDS", "soon")], &[]).await?;
    ensure!(!ran.ok && ran.stderr.contains("HPA_STABILIZATION_SECONDS is 'soon'"), "{ran:?}");
    Ok(ran.stderr.trim().to_owned())
}

async fn script_uninstalls(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    install_sh(site, helm, &[], &["--uninstall"]).await?.success()?;
    site.leases_gone().await?;
    site.leftovers().await?;
    site.forget().await?;
    Ok("nothing left but CRD, Lease and CA".to_owned())
}

/// Writes an overlay as in `docs/getting-started/install.md`, with components of `config` and further lines.
pub(super) fn overlay(site: &Site, components: &[&str], more: &str) -> anyhow::Result<PathBuf> {
    let folder = site.testbed.data().join("overlay");
    std::fs::create_dir_all(&folder)?;
    // Kustomize needs paths relative to the file.
    let up = "../".repeat(folder.canonicalize()?.components().count() - 1);
    let relative = |path: PathBuf| format!("{up}{}", path.to_string_lossy().trim_start_matches('/'));
    let base = relative(repository("config/base")?);
    let components = components.iter().map(|name| Ok(relative(repository(&format!("config/{name}"))?)));
    let components = components.collect::<anyhow::Result<Vec<_>>>()?.join(", ");
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{base}]
components: [{components}]
{more}patches:
- patch: |
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: wva-variantautoscaling-config, namespace: {SYSTEM}}}
    data: {{PROMETHEUS_BASE_URL: 'http://127.0.0.1:9', GLOBAL_OPT_INTERVAL: 2s, WVA_SCALE_TO_ZERO: 'true'}}
"
    );
    std::fs::write(folder.join("kustomization.yaml"), text)?;
    Ok(folder)
}

async fn base(site: &Site) -> anyhow::Result<String> {
    site.testbed.apply(SERVICE_MONITORS).await?;
    pools(site).await?;
    apply(site, &overlay(site, &COMPONENTS, "")?).await?;
    site.controller_works().await?;
    scraped(site).await?;
    site.external_metrics_are_served().await?;
    Ok("everything works, and the external metrics API answers".to_owned())
}

/// Installs the CRDs of InferencePools.
pub(super) async fn pools(site: &Site) -> anyhow::Result<()> {
    apply_crds(&site.testbed, CRDS).await
}

/// Deletes these CRDs.
pub(super) async fn no_pools(site: &Site) -> anyhow::Result<()> {
    site.testbed.kubectl_with(&["delete", "-f", "-"], CRDS).await?.success().map(drop)
}

pub(super) async fn apply(site: &Site, folder: &Path) -> anyhow::Result<()> {
    site.kubectl(&["apply", "--server-side", "-k", &folder.to_string_lossy()]).await.map(drop)
}

/// Checks that the ServiceMonitor selects the metrics Service, and names an existing port, token and CA.
async fn scraped(site: &Site) -> anyhow::Result<()> {
    let get = async |kind: &str, name: &str| -> anyhow::Result<Value> {
        get_object(&site.testbed, &[kind, name, "-n", SYSTEM]).await
    };
    let monitor = get("servicemonitor", &format!("{MANAGER}-metrics-monitor")).await?;
    let service = get("service", &format!("{RELEASE}-metrics-service")).await?;
    let labels = monitor["spec"]["selector"]["matchLabels"].as_object().context("it selects nothing")?;
    let selected = labels.iter().all(|(key, value)| &service["metadata"]["labels"][key] == value);
    ensure!(selected, "the ServiceMonitor selects {labels:?}, and the Service is {service}");
    let endpoint = &monitor["spec"]["endpoints"][0];
    ensure!(endpoint["port"] == service["spec"]["ports"][0]["name"], "the port is {}", endpoint["port"]);
    for key in [&endpoint["authorization"]["credentials"], &endpoint["tlsConfig"]["ca"]["secret"]] {
        let secret = get("secret", key["name"].as_str().context("a Secret without a name")?).await?;
        let field = key["key"].as_str().context("a Secret without a key")?;
        ensure!(!secret["data"][field].is_null(), "the Secret of {key} does not have it");
    }
    Ok(())
}

/// Every container has the token of the controller at the usual path, as in a cluster.
pub(super) async fn picker_tokens(site: &Site) -> anyhow::Result<String> {
    let picker = FakePicker::start([127, 0, 0, 9]).await?;
    let ns = site.testbed.namespace("pickers").await?;
    site.testbed.apply(&pool(&ns, "epp")).await?;
    picker.pod(&site.testbed, &ns, "epp", "epp-0").await?;
    site.testbed.apply(&VariantFixture::new(&ns, "model").replicas(0).all()).await?;
    let queries = async |wanted: u64| {
        eventually("queries of the picker", SOON, async || {
            ensure!(picker.scrapes().count > wanted, "it was queried {} times", picker.scrapes().count);
            Ok(())
        })
        .await
    };
    queries(3).await?;
    let given = picker.scrapes().authorizations;
    ensure!(given.iter().all(String::is_empty), "a namespace without the label got {given:?}");
    site.kubectl(&["label", "namespace", &ns, "wva.llmd.ai/picker-token=true"]).await?;
    queries(picker.scrapes().count + 5).await?;
    let tokens: Vec<String> =
        picker.scrapes().authorizations.into_iter().filter(|token| !token.is_empty()).collect();
    ensure!(!tokens.is_empty(), "the label changed nothing");
    let reader = format!("system:serviceaccount:{SYSTEM}:{PICKER_READER}");
    for token in tokens {
        let user = site.testbed.user_of(token.trim_start_matches("Bearer ")).await?;
        ensure!(user == reader, "the picker got a token of {user:?}");
    }
    site.kubectl(&["delete", "namespace", &ns, "--timeout=150s"]).await?;
    Ok("none without the label, and no other token".to_owned())
}

/// Checks the log where only the Deployment has another name.
async fn other_names_forbidden(site: &Site) -> anyhow::Result<String> {
    let rows = [
        ("LEADER_ELECTION_ID=my-election-id", "Cannot compete for the Lease"),
        ("CONFIG_MAP_NAME=my-config", "needs get, list and watch on this ConfigMap"),
    ];
    for (variable, line) in rows {
        site.kubectl(&["-n", SYSTEM, "set", "env", &format!("deployment/{MANAGER}"), variable]).await?;
        eventually("a log to name the remedy", SOON, async || {
            let logs: Vec<String> = site.pods().await?.iter().map(|pod| site.log(pod)).collect();
            let mut lines = logs.iter().flat_map(|log| log.lines());
            let page = "docs/getting-started/install.md, Other names";
            let named = lines.any(|l| l.contains(line) && l.contains(page));
            ensure!(named, "no log has {line:?} with the page");
            Ok(())
        })
        .await?;
    }
    Ok("both logs name the page".to_owned())
}

async fn other_names(site: &Site) -> anyhow::Result<String> {
    let components = [&COMPONENTS[..], &["samples/renamed"]].concat();
    apply(site, &overlay(site, &components, "")?).await?;
    site.controller_works().await?;
    eventually("the other Lease to be held", SOON, async || {
        let path = "jsonpath={.spec.holderIdentity}";
        let holder = site.kubectl(&["-n", SYSTEM, "get", "lease", "my-election-id", "-o", path]).await?;
        ensure!(site.pods().await?.contains(&holder), "it is held by {holder:?}");
        Ok(())
    })
    .await?;
    let value = r#"{"data":{"PROMETHEUS_BASE_URL":"http://127.0.0.1:10"}}"#;
    let patch =
        ["-n", SYSTEM, "patch", "configmap", "my-config", "--dry-run=server", "--type=merge", "-p", value];
    // A terminating replica answers for some seconds, and judges only the map of the old name.
    eventually("the other map to be judged", SOON, async || {
        let refused = site.testbed.kubectl(&patch).await?;
        ensure!(!refused.ok && refused.stderr.contains("WVA-CM-001"), "it is not: {refused:?}");
        Ok(())
    })
    .await?;
    site.kubectl(&["-n", SYSTEM, "delete", "lease", "my-election-id"]).await?;
    Ok("a replica leads by the other Lease, and the other map is judged".to_owned())
}

async fn base_deleted(site: &Site) -> anyhow::Result<String> {
    let folder = overlay(site, &[&COMPONENTS[..], &["samples/renamed"]].concat(), "")?;
    // The Secret with a token goes with its service account.
    let delete = ["delete", "--ignore-not-found", "--timeout=150s", "-k", &folder.to_string_lossy()];
    site.kubectl(&delete).await?;
    site.testbed.kubectl_with(&["delete", "-f", "-"], SERVICE_MONITORS).await?.success()?;
    no_pools(site).await?;
    let crd = site.testbed.kubectl(&["get", "crd", CRD]).await?;
    ensure!(!crd.ok, "the CRD is still there");
    site.namespaces().await?;
    site.leftovers().await?;
    Ok("nothing left".to_owned())
}
