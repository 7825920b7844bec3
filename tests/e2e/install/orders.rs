//! Applies the parts of the render in random orders: with retries, every order leads to the same state.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::gitops::{documents, render};
use super::site::CRD;
use super::{Extent, Site, Table};
use crate::support::next_random;
use wva_testbed::{Helm, eventually};

/// Longest wait for all parts to be applied.
const APPLIED: Duration = Duration::from_mins(3);

pub(super) async fn run(site: &Site, extent: Extent, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    let parts = parts(&render(&helm, &["--include-crds"]).await?)?;
    ensure!(parts.len() == 6, "the render has the parts {:?}", parts.keys());
    let mut seen = None;
    for number in 0..extent.times(30, 1) {
        let order = order(parts.keys().copied().collect(), number as u64);
        let work = async {
            let tries = apply(site, &parts, &order).await?;
            site.healthy().await?;
            let state = state(site, &parts).await?;
            let first = seen.get_or_insert_with(|| state.clone());
            ensure!(*first == state, "the state is another:\n{first}\n{state}");
            delete(site, &parts).await?;
            Ok(format!("the same state, after {tries} rounds"))
        };
        table.step(&order.join(", "), Box::pin(work)).await;
    }
    Ok(())
}

/// Documents of the render by part.
fn parts(render: &str) -> anyhow::Result<BTreeMap<&'static str, Vec<Value>>> {
    let mut parts = BTreeMap::<_, Vec<Value>>::new();
    for document in documents(render)? {
        let part = match document["kind"].as_str().unwrap_or_default() {
            "CustomResourceDefinition" => "CRD",
            "VariantAutoscaling" => "variant",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => "webhooks",
            "Deployment" | "PodDisruptionBudget" => "Deployment",
            "HorizontalPodAutoscaler" => "HPA",
            _ => "configuration",
        };
        parts.entry(part).or_default().push(document);
    }
    Ok(parts)
}

/// An order that depends only on its number.
fn order(mut names: Vec<&'static str>, number: u64) -> Vec<&'static str> {
    let mut state = number;
    for last in (1..names.len()).rev() {
        names.swap(last, next_random(&mut state) % (last + 1));
    }
    names
}

/// Applies the parts in rounds until none is denied. Returns the number of rounds.
async fn apply(site: &Site, parts: &BTreeMap<&str, Vec<Value>>, order: &[&str]) -> anyhow::Result<usize> {
    let (mut left, mut rounds) = (order.to_vec(), 0);
    eventually("every part to be applied", APPLIED, async || {
        rounds += 1;
        let mut refused = Vec::new();
        let mut why = String::new();
        for part in std::mem::take(&mut left) {
            let ran = site
                .testbed
                .kubectl_with(&["apply", "--server-side", "-f", "-"], &list(&parts[part]))
                .await?;
            if !ran.ok {
                refused.push(part);
                why = ran.stderr;
            }
        }
        left = refused;
        ensure!(left.is_empty(), "{left:?} were refused: {why}");
        Ok(())
    })
    .await?;
    Ok(rounds)
}

/// A `List`: kubectl 1.30 reads no `---` after a text that begins with JSON.
fn list(documents: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": documents}).to_string()
}

async fn delete(site: &Site, parts: &BTreeMap<&str, Vec<Value>>) -> anyhow::Result<()> {
    for (part, documents) in parts.iter().filter(|(part, _)| **part != "CRD") {
        let args = ["delete", "--ignore-not-found", "--timeout=150s", "-f", "-"];
        let ran = site.testbed.kubectl_with(&args, &list(documents)).await?;
        ran.success().with_context(|| format!("{part} was not deleted"))?;
    }
    site.kubectl(&["delete", "crd", CRD]).await?;
    site.leftovers().await?;
    site.forget().await
}

/// Stored state of the render, without additions of the API server, its controllers and the program.
async fn state(site: &Site, parts: &BTreeMap<&str, Vec<Value>>) -> anyhow::Result<String> {
    let all: Vec<Value> = parts.values().flatten().cloned().collect();
    let stored =
        site.testbed.kubectl_with(&["get", "-o", "json", "-f", "-"], &list(&all)).await?.success()?;
    let stored: Value = serde_json::from_str(&stored)?;
    let mut objects: Vec<String> = Vec::new();
    for mut object in stored["items"].as_array().cloned().unwrap_or_default() {
        normalize(&mut object);
        objects.push(object.to_string());
    }
    objects.sort_unstable();
    Ok(objects.join("\n"))
}

/// Removes what differs between two equal installs.
fn normalize(object: &mut Value) {
    const INSTALL_SPECIFIC: [&str; 12] = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "generation",
        "status",
        "caBundle",
        "clusterIP",
        "clusterIPs",
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/revision",
        "kubernetes.io/service-account.uid",
    ];
    match object {
        Value::Object(map) => {
            map.retain(|key, _| !INSTALL_SPECIFIC.contains(&key.as_str()));
            // The token that the control plane creates for a Secret.
            if map.get("type").and_then(Value::as_str) == Some("kubernetes.io/service-account-token") {
                map.remove("data");
            }
            map.values_mut().for_each(normalize);
        }
        Value::Array(list) => list.iter_mut().for_each(normalize),
        _ => {}
    }
}
