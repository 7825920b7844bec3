//! The admissions enforcer of AKS and Helm 4, which applies on the server. The enforcer is a fake: it adds its expressions to
//! the selectors of webhooks and owns them from then on, as people report it.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use super::profiles::profile;
use super::site::{MODELS, NO_PROMETHEUS, Site};
use super::table::Table;
use crate::support::get_object;
use wva_testbed::install::WEBHOOKS;
use wva_testbed::{CommandOutput, Helm, eventually};

const SOON: Duration = Duration::from_mins(3);
const KINDS: [&str; 2] = ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"];
const DISABLED: &str = "admissions.enforcer/disabled";

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    table.step("without the profile the second apply conflicts", Box::pin(conflicts(site, &helm))).await;
    table.step("the profile ends the conflict", Box::pin(profile_helps(site, &helm))).await;
    table.step("two applies with the enforcer between them", Box::pin(twice(site, &helm))).await;
    table.step("uninstall", Box::pin(site.remove(&helm))).await;
    table.step("or the annotation exempts the release", Box::pin(exempted(site, &helm))).await;
    table.step("uninstall of that", Box::pin(site.remove(&helm))).await;
    Ok(())
}

fn expressions() -> [Value; 2] {
    [
        json!({"key": "control-plane", "operator": "NotIn", "values": ["true"]}),
        json!({"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]}),
    ]
}

/// Webhooks of one configuration.
async fn webhooks(site: &Site, kind: &str) -> anyhow::Result<(Value, Vec<Value>)> {
    let mut object = get_object(&site.testbed, &[kind, WEBHOOKS]).await?;
    let webhooks = object["webhooks"].take();
    Ok((object, webhooks.as_array().cloned().unwrap_or_default()))
}

fn selector(webhook: &Value) -> Vec<Value> {
    webhook["namespaceSelector"]["matchExpressions"].as_array().cloned().unwrap_or_default()
}

/// One round of the fake enforcer. Returns the number of expressions that it added.
async fn enforce(site: &Site) -> anyhow::Result<usize> {
    let mut added = 0;
    for kind in KINDS {
        let (object, webhooks) = webhooks(site, kind).await?;
        if object["metadata"]["annotations"][DISABLED] == "true" {
            continue;
        }
        let missing = webhooks.iter().enumerate().flat_map(|(number, webhook)| {
            let own = selector(webhook);
            let missing = expressions().into_iter().filter(move |wanted| !own.contains(wanted));
            let path = format!("/webhooks/{number}/namespaceSelector/matchExpressions/-");
            missing.map(move |value| json!({"op": "add", "path": path, "value": value}))
        });
        let patch: Vec<Value> = missing.collect();
        added += patch.len();
        if !patch.is_empty() {
            let patch = Value::from(patch).to_string();
            let manager = "--field-manager=admissionsenforcer";
            site.kubectl(&["patch", kind, WEBHOOKS, manager, "--type=json", "-p", &patch]).await?;
        }
    }
    Ok(added)
}

/// Each webhook has the expressions once, and reviews are answered.
async fn selectors_stay(site: &Site) -> anyhow::Result<()> {
    for kind in KINDS {
        for webhook in webhooks(site, kind).await?.1 {
            let own = selector(&webhook);
            for wanted in expressions() {
                let count = own.iter().filter(|own| **own == wanted).count();
                ensure!(count == 1, "{kind} {} has {wanted} {count} times", webhook["name"]);
            }
        }
    }
    eventually("reviews", SOON, async || site.judges(MODELS, &json!({})).await).await
}

async fn upgrade(site: &Site, helm: &Helm, more: &[&str]) -> anyhow::Result<CommandOutput> {
    site.helm(helm, &[&["--set", NO_PROMETHEUS], more].concat()).await
}

async fn conflicts(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    upgrade(site, helm, &[]).await?.success()?;
    site.healthy().await?;
    let added = enforce(site).await?;
    ensure!(added > 0, "the enforcer found nothing to add");
    selectors_stay(site).await?;
    let second = upgrade(site, helm, &[]).await?;
    ensure!(!second.ok && second.stderr.contains("admissionsenforcer"), "no conflict: {second:?}");
    Ok(format!("the enforcer added {added} expressions, and Helm names it"))
}

async fn profile_helps(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    upgrade(site, helm, &["-f", &profile("values-aks.yaml")]).await?.success()?;
    selectors_stay(site).await?;
    Ok("the upgrade of the release that conflicts works".to_owned())
}

async fn twice(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    site.remove(helm).await?;
    let profile = profile("values-aks.yaml");
    for interval in ["17s", "18s"] {
        let interval = format!("wva.reconcileInterval={interval}");
        upgrade(site, helm, &["-f", &profile, "--set", &interval]).await?.success()?;
        site.healthy().await?;
        let added = enforce(site).await?;
        ensure!(added == 0, "the enforcer added {added} expressions");
        selectors_stay(site).await?;
    }
    Ok("no conflict, and the enforcer has nothing to add".to_owned())
}

async fn exempted(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let annotation = r"wva.webhook.annotations.admissions\.enforcer/disabled=true";
    for _ in 0..2 {
        upgrade(site, helm, &["--set-string", annotation]).await?.success()?;
        let added = enforce(site).await?;
        ensure!(added == 0, "the enforcer added {added} expressions");
    }
    site.healthy().await?;
    Ok("two applies without a conflict".to_owned())
}
