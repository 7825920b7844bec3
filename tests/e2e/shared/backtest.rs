//! `wva backtest` reads costs and bounds of the variants in a cluster, if it is asked to.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::history::calm_hours;
use crate::support::run_wva;

/// Models and namespaces of the history are in the namespace of the test.
fn file_of(namespace: &str) -> String {
    calm_hours(2, [0, 10, 0, 0, 0, 0]).replace("\"prod\"", &format!("\"{namespace}\""))
}

fn variant(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "llmd.ai/v1alpha1",
        "kind": "VariantAutoscaling",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"modelID": "acme/secret", "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}
    });
    if let (Some(own), Some(more)) = (object["spec"].as_object_mut(), spec.as_object()) {
        own.extend(more.clone());
    }
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn backtest_reads_costs_and_bounds_of_the_variants() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("backtest").await?;
    let file = cluster.testbed.data().join("history.jsonl");
    std::fs::write(&file, file_of(&ns))?;
    let file = file.to_str().context("the path is not UTF-8")?;
    let kubeconfig = cluster.testbed.admin_kubeconfig();
    let kubeconfig = kubeconfig.to_str().context("the path is not UTF-8")?;

    let asked = ["backtest", "--from", file, "-n", &ns, "--kubeconfig", kubeconfig];
    let run = run_wva(&cluster.testbed, &asked, "").await?;
    let text = format!("has no VariantAutoscaling in namespace {ns}: leave --kubeconfig and --context out");
    ensure!(run.code != 0 && run.stderr.contains(&text), "{run:?}");

    for (name, spec) in [
        ("h100", json!({"variantCost": "40", "minReplicas": 1, "maxReplicas": 2})),
        ("l4", json!({"variantCost": "10", "minReplicas": 1, "maxReplicas": 3})),
    ] {
        cluster.testbed.apply(&variant(&ns, name, &spec).to_string()).await?;
    }
    let run = run_wva(&cluster.testbed, &[&asked[..], &["-o", "json"]].concat(), "").await?;
    ensure!(run.code == 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout)?;
    let assumptions = report.pointer("/models/0/assumptions").context("no assumptions")?.to_string();
    for text in [
        "a replica costs 25, the mean variantCost of h100, l4",
        "at most 5 replicas, maxReplicas of its variants",
        "at least 2 replicas, minReplicas of its variants",
    ] {
        ensure!(assumptions.contains(text), "{text:?} is not in {assumptions}");
    }

    // Unasked, no cluster is read: the kubeconfig of the environment has the same variants.
    let run = run_wva(&cluster.testbed, &["backtest", "--from", file, "-o", "json"], "").await?;
    ensure!(run.code == 0 && !run.stdout.contains("variantCost"), "{run:?}");
    Ok(())
}
