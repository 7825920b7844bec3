//! The Kustomize base in another namespace and with a prefix, the switch of an emergency, and the removal of an install
//! whose namespace is gone. The commands are those of the documents.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::manifests::{SERVICE_MONITORS, apply, overlay};
use super::site::{CRD, MODELS, Site};
use super::table::Table;
use crate::support::{get_object, repository_path};
use wva_testbed::eventually;
use wva_testbed::install::{RELEASE, SYSTEM};

const SOON: Duration = Duration::from_mins(3);
const ELSEWHERE: &str = "elsewhere";
const COMPONENTS: [&str; 3] = ["external-metrics", "pod-deletion-cost", "prometheus"];
/// Those that need no CRD of others.
const OWN_COMPONENTS: &[&str] = &["external-metrics", "pod-deletion-cost"];

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    table.step("an overlay with namespace and namePrefix", Box::pin(moved(site))).await;
    table.step("kubectl delete -k of that overlay", Box::pin(moved_deleted(site))).await;
    table.step("the switch for an emergency opens every entry", Box::pin(emergency(site))).await;
    table.step("the namespace is deleted first, then the clean-up", Box::pin(cleaned_up(site))).await;
    Ok(())
}

async fn moved(site: &Site) -> anyhow::Result<String> {
    site.testbed.apply(SERVICE_MONITORS).await?;
    let folder = overlay(site, &COMPONENTS, &format!("namespace: {ELSEWHERE}\nnamePrefix: a-\n"))?;
    apply(site, &folder).await?;
    let name = |name: &str| format!("a-{name}");
    let get = async |args: &[&str]| get_object(&site.testbed, args).await;
    eventually("the moved install to work", SOON, async || {
        let manager = name(&format!("{RELEASE}-controller-manager"));
        let deployment = get(&["deployment", &manager, "-n", ELSEWHERE]).await?;
        ensure!(deployment["status"]["availableReplicas"] == 2, "{}", deployment["status"]);
        site.judges(MODELS, &json!({})).await?;
        let api = get(&["apiservice", "v1beta1.external.metrics.k8s.io"]).await?;
        ensure!(api["spec"]["service"]["namespace"] == ELSEWHERE, "{}", api["spec"]);
        let available = api["status"]["conditions"].as_array().into_iter().flatten();
        let is_available = available.clone().any(|c| c["type"] == "Available" && c["status"] == "True");
        ensure!(is_available, "{}", api["status"]);
        Ok(())
    })
    .await
    .with_context(|| site.evidence())?;
    main_map_is_guarded(site, &name("wva-variantautoscaling-config")).await?;
    let monitor = get(&[
        "servicemonitor",
        &name(&format!("{RELEASE}-controller-manager-metrics-monitor")),
        "-n",
        ELSEWHERE,
    ])
    .await?;
    let tls = &monitor["spec"]["endpoints"][0]["tlsConfig"];
    ensure!(tls["serverName"] == name(&format!("{RELEASE}-webhook-service")), "{tls}");
    ensure!(tls["ca"]["secret"]["name"] == name(&format!("{RELEASE}-webhook-service-ca")), "{tls}");
    let account =
        format!("system:serviceaccount:{ELSEWHERE}:{}", name(&format!("{RELEASE}-controller-manager")));
    let own = ["auth", "can-i", "patch", "pods", "-A", "--as", &account];
    site.kubectl(&own).await.context("the binding of the component does not follow")?;
    Ok("reviews, policy, external metrics and monitor follow namespace and prefix".to_owned())
}

async fn main_map_is_guarded(site: &Site, map: &str) -> anyhow::Result<()> {
    let get = async |args: &[&str]| get_object(&site.testbed, args).await;
    let value = r#"{"data":{"PROMETHEUS_BASE_URL":"http://127.0.0.1:10"}}"#;
    let patch = ["-n", ELSEWHERE, "patch", "configmap", map, "--dry-run=server", "--type=merge", "-p", value];
    let refused = site.testbed.kubectl(&patch).await?;
    ensure!(!refused.ok && refused.stderr.contains("WVA-CM-001"), "the main map is not guarded: {refused:?}");
    // The policy guards it while no replica answers.
    let policy = format!("a-{SYSTEM}-{RELEASE}-webhook-main-map");
    let binding = get(&["validatingadmissionpolicybinding", &policy]).await?;
    let labels = &binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"];
    ensure!(labels["kubernetes.io/metadata.name"] == ELSEWHERE, "{labels}");
    ensure!(binding["spec"]["policyName"] == policy.as_str(), "{}", binding["spec"]["policyName"]);
    let names = get(&["validatingadmissionpolicy", &policy]).await?;
    let names = &names["spec"]["matchConstraints"]["resourceRules"][0]["resourceNames"];
    ensure!(names[0] == map, "the policy guards {names}");
    let value = r#"{"data":{"GLOBAL_OPT_INTERVAL":"banana"}}"#;
    let patch = ["-n", ELSEWHERE, "patch", "configmap", map, "--dry-run=server", "--type=merge", "-p", value];
    // Its failure policy admits a change while no connection to a replica is open.
    eventually("the webhook to see the main map", SOON, async || {
        let refused = site.testbed.kubectl(&patch).await?;
        ensure!(!refused.ok && refused.stderr.contains("GLOBAL_OPT_INTERVAL"), "{refused:?}");
        Ok(())
    })
    .await
}

async fn moved_deleted(site: &Site) -> anyhow::Result<String> {
    let folder = overlay(site, &COMPONENTS, &format!("namespace: {ELSEWHERE}\nnamePrefix: a-\n"))?;
    let path = folder.to_string_lossy();
    site.kubectl(&["delete", "--ignore-not-found", "--timeout=150s", "-k", &path]).await?;
    ensure!(
        !site.testbed.kubectl(&["get", "namespace", ELSEWHERE]).await?.ok,
        "the namespace is still there"
    );
    site.testbed.kubectl_with(&["delete", "-f", "-"], SERVICE_MONITORS).await?.success()?;
    site.leftovers().await?;
    Ok("nothing left".to_owned())
}

/// The command of a document with this part.
pub(super) fn block(page: &str, part: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(repository_path(page))?;
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.into_iter().find(|block| block.contains(part));
    block.map(str::to_owned).with_context(|| format!("{page} has no command with {part:?}"))
}

/// The same, with the names of an install in place of its placeholders.
fn command(page: &str, part: &str) -> anyhow::Result<String> {
    Ok(block(page, part)?.replace("NAMESPACE", SYSTEM).replace("FULLNAME", RELEASE))
}

async fn bash(site: &Site, script: &str) -> anyhow::Result<()> {
    let kubectl = site.testbed.tools().path("kubectl")?;
    let folder = kubectl.parent().context("kubectl has no folder")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = tokio::process::Command::new("bash");
    command.args(["-c", script]).env("PATH", path).env("KUBECONFIG", site.testbed.admin_kubeconfig());
    wva_testbed::run("the command of a document", command, "", SOON).await?.success().map(drop)
}

async fn emergency(site: &Site) -> anyhow::Result<String> {
    apply(site, &overlay(site, OWN_COMPONENTS, "")?).await?;
    site.controller_works().await?;
    let manager = format!("deployment/{RELEASE}-controller-manager");
    site.kubectl(&["-n", SYSTEM, "scale", &manager, "--replicas=0"]).await?;
    // A pod answers for some seconds after its end began.
    eventually("reviews to end with the pods", SOON, async || {
        ensure!(site.judges(MODELS, &json!({})).await.is_err(), "a review is answered");
        Ok(())
    })
    .await?;
    bash(site, &command("docs/concepts/admission.md", "for kind in")?).await?;
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        let name = format!("{SYSTEM}-{RELEASE}-webhook");
        let path = "jsonpath={.webhooks[*].rules[*].resources[*]}";
        let closed = site.kubectl(&["get", kind, &name, "-o", path]).await?;
        ensure!(closed.trim().is_empty(), "{kind} still has rules: {closed}");
    }
    let change = r#"{"data":{"PROMETHEUS_BASE_URL":"http://127.0.0.1:10"}}"#;
    let map =
        ["-n", SYSTEM, "patch", "configmap", "wva-variantautoscaling-config", "--type=merge", "-p", change];
    // The API server forgets a policy after a moment.
    eventually("the main map to be open", SOON, async || site.kubectl(&map).await.map(drop)).await?;
    Ok("no entry has rules, and the main map can be changed".to_owned())
}

/// Starts from the install without replicas that the step before left.
async fn cleaned_up(site: &Site) -> anyhow::Result<String> {
    eventually("the APIService to have no server", SOON, async || {
        let api = get_object(&site.testbed, &["apiservice", "v1beta1.external.metrics.k8s.io"]).await?;
        let conditions = api["status"]["conditions"].to_string();
        ensure!(conditions.contains(r#""status":"False""#), "{conditions}");
        Ok(())
    })
    .await?;
    site.kubectl(&["delete", "namespace", SYSTEM, "--wait=false"]).await?;
    let phase = async |reason: &str| -> anyhow::Result<bool> {
        let bystander = get_object(&site.testbed, &["namespace", "bystander"]).await?;
        Ok(bystander["status"].to_string().contains(reason))
    };
    // The API server learns a moment later that its discovery is stale; a namespace that is deleted before ends.
    eventually("the deletion of the other namespace to fail", SOON, async || {
        if !site.testbed.kubectl(&["get", "namespace", "bystander"]).await?.ok {
            site.kubectl(&["create", "namespace", "bystander"]).await?;
            site.kubectl(&["delete", "namespace", "bystander", "--wait=false"]).await?;
        }
        ensure!(phase("DiscoveryFailed").await?, "it says nothing of discovery");
        Ok(())
    })
    .await?;
    bash(site, &command("docs/getting-started/install.md", "kubectl get apiservices")?).await?;
    eventually("both namespaces to end", SOON, async || {
        for namespace in [SYSTEM, "bystander"] {
            let found = site.testbed.kubectl(&["get", "namespace", namespace]).await?;
            ensure!(!found.ok, "{namespace} is still there");
        }
        Ok(())
    })
    .await?;
    site.kubectl(&["delete", "crd", CRD]).await?;
    site.namespaces().await?;
    site.leftovers().await?;
    Ok("the other namespace waited for the APIService; after the clean-up nothing is left".to_owned())
}
