//! An install without any cluster-scoped object by two users with real RBAC: the administrator of the cluster runs the
//! commands of the documents once, a service account with the built-in role `admin` in one namespace does the rest.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::elsewhere::block;
use super::site::{CRD, Site};
use super::table::Table;
use crate::support::{condition, get_object, repository_path, valid_spec, variant};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{CommandOutput, Helm, eventually};

const TEAM: &str = "team-a";
const USER: &str = "ns-admin";
const PAGE: &str = "docs/getting-started/install.md";
const UNCOUNTED: [&str; 2] = ["componentstatuses", "ipaddresses.networking.k8s.io"];
const SOON: Duration = Duration::from_mins(3);
/// Longer than `--timeout` of the install.
const INSTALL: Duration = Duration::from_mins(5);

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    table.step("a namespace and its administrator", Box::pin(namespace(site))).await;
    table.step("the administrator of the cluster prepares", Box::pin(prepare(site, &helm))).await;
    table.step("the administrator of the namespace installs", Box::pin(install(site, &helm))).await;
    table.step("and creates a variant, which is managed", Box::pin(managed(site, &helm))).await;
    table.step("the administrator of the namespace upgrades", Box::pin(upgrade(site, &helm))).await;
    table.step("and uninstalls", Box::pin(uninstall(site, &helm))).await;
    Ok(())
}

/// Runs a script as a user, in the folder of the repository.
async fn run_as(
    site: &Site,
    helm: &Helm,
    user: Option<PathBuf>,
    script: &str,
) -> anyhow::Result<CommandOutput> {
    let programs = [site.testbed.tools().path("kubectl")?, helm.program()];
    let folders = programs.map(|program| program.parent().map(|folder| folder.display().to_string()));
    let path = folders.into_iter().flatten().chain(std::env::var("PATH")).collect::<Vec<_>>().join(":");
    let mut command = tokio::process::Command::new("bash");
    command.args(["-e", "-o", "pipefail", "-c", script]).current_dir(repository_path("."));
    let kubeconfig = user.unwrap_or_else(|| site.testbed.admin_kubeconfig().to_owned());
    command.env("PATH", path).env("KUBECONFIG", kubeconfig);
    for home in ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
        command.env(home, site.testbed.data().join("helm"));
    }
    wva_testbed::run(script, command, "", INSTALL).await
}

async fn as_user(site: &Site, helm: &Helm, script: &str) -> anyhow::Result<CommandOutput> {
    let user = site.testbed.service_account_kubeconfig(TEAM, USER).await?;
    run_as(site, helm, Some(user), script).await
}

async fn namespace(site: &Site) -> anyhow::Result<String> {
    site.kubectl(&["create", "namespace", TEAM]).await?;
    site.kubectl(&["-n", TEAM, "create", "serviceaccount", USER]).await?;
    let account = format!("--serviceaccount={TEAM}:{USER}");
    site.kubectl(&["-n", TEAM, "create", "rolebinding", USER, "--clusterrole=admin", &account]).await?;
    site.testbed.apply(&VariantFixture::new(TEAM, "llama").deployment()).await?;
    Ok("a service account with the role admin of the cluster".to_owned())
}

async fn prepare(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    run_as(site, helm, None, &block(PAGE, "--show-only templates/rbac-manager.yaml")?).await?.success()?;
    // The controller of the cluster adds the roles to the built-in ones.
    eventually("the role admin to have VariantAutoscalings", SOON, async || {
        let user = format!("system:serviceaccount:{TEAM}:{USER}");
        site.kubectl(&["-n", TEAM, "auth", "can-i", "create", "va", "--as", &user]).await
    })
    .await?;
    Ok("CRD, roles of variants, and the two Roles of the controller".to_owned())
}

/// Names of all objects without a namespace, apart from the addresses that the API server keeps for Services.
async fn cluster_scoped(site: &Site) -> anyhow::Result<BTreeSet<String>> {
    let kinds = site.kubectl(&["api-resources", "--verbs=list", "--namespaced=false", "-o", "name"]).await?;
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !UNCOUNTED.contains(kind)).collect();
    let list = site.kubectl(&["get", &kinds.join(","), "-o", "name"]).await?;
    Ok(list.lines().map(str::to_owned).collect())
}

async fn install(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let denied = as_user(site, helm, "kubectl get clusterroles").await?;
    ensure!(!denied.ok && denied.stderr.contains("Forbidden"), "the user may read the cluster: {denied:?}");
    let before = cluster_scoped(site).await?;
    let script = block(PAGE, "--set rbac.create=false --set serviceAccount.name=wva")?;
    as_user(site, helm, script.trim_end()).await?.success()?;
    let manager = async || -> anyhow::Result<()> {
        let found =
            get_object(&site.testbed, &["deployments", "-n", TEAM, "-l", "control-plane=controller-manager"]);
        let found = found.await?;
        let status = &found["items"][0]["status"];
        ensure!(status["availableReplicas"] == 2, "{status}");
        Ok(())
    };
    eventually("both replicas", SOON, manager).await.with_context(|| site.evidence())?;
    let after = cluster_scoped(site).await?;
    let new: Vec<_> = after.difference(&before).collect();
    ensure!(new.is_empty(), "objects without a namespace: {new:?}");
    Ok("two replicas, and no object outside the namespace".to_owned())
}

async fn managed(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let mut object = variant("llama", &valid_spec("llama"));
    object["metadata"]["namespace"] = TEAM.into();
    let file = site.testbed.data().join("variant.json");
    std::fs::write(&file, object.to_string())?;
    as_user(site, helm, &format!("kubectl apply -f {}", file.display())).await?.success()?;
    eventually("its conditions", SOON, async || {
        let va = get_object(&site.testbed, &["va", "llama", "-n", TEAM]).await?;
        let (status, reason) = condition(&va, "TargetResolved")?;
        ensure!(status == "True", "{reason}");
        Ok(())
    })
    .await
    .with_context(|| site.evidence())?;
    Ok("the controller writes its conditions".to_owned())
}

async fn upgrade(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let script = block(PAGE, "--set rbac.create=false --set serviceAccount.name=wva")?;
    let script = format!("{} --set wva.reconcileInterval=17s", script.trim_end());
    as_user(site, helm, &script).await?.success()?;
    Ok("works".to_owned())
}

async fn uninstall(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    as_user(site, helm, &format!("helm uninstall wva -n {TEAM} --wait")).await?.success()?;
    site.kubectl(&["delete", "namespace", TEAM, "--timeout=150s"]).await?;
    run_as(site, helm, None, "kubectl delete -f config/base/variant-roles.yaml").await?.success()?;
    site.kubectl(&["delete", "crd", CRD]).await?;
    site.leftovers().await?;
    Ok("nothing left".to_owned())
}
