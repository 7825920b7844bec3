//! `wva generate` reads running workloads, and the API server accepts its output.

use crate::support::{Cluster, repository_path, run_wva};
use anyhow::ensure;
use serde_json::Value;

/// HPA that scales `mixtral-mi300x` by another metric.
const HPA: &str = "apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: by-cpu}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: mixtral-mi300x}
  minReplicas: 1
  maxReplicas: 3
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}
";

async fn apply(cluster: &Cluster, namespace: &str, objects: &str) -> anyhow::Result<()> {
    let args = ["apply", "-n", namespace, "-f", "-"];
    cluster.testbed.kubectl_with(&args, objects).await?.success().map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn generates_objects_that_the_api_server_accepts() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("generate").await?;
    for file in ["vllm-args", "mi300x"] {
        let path = repository_path(&format!("tests/fixtures/generate/{file}.yaml"));
        apply(cluster, &ns, &std::fs::read_to_string(path)?).await?;
    }
    apply(cluster, &ns, HPA).await?;
    for (workload, model, autoscaler, max) in [
        ("llama-h100", "meta-llama/Llama-3.3-70B-Instruct", "llama-h100", 10),
        ("deployment/mixtral-mi300x", "mistralai/Mixtral-8x22B-Instruct-v0.1", "by-cpu", 3),
    ] {
        let run = run_wva(&cluster.testbed, &["generate", workload, "-n", &ns], "").await?;
        ensure!(run.code == 0 && run.stderr.contains("Nothing was applied"), "{workload}: {run:?}");
        let dry_run = ["apply", "--dry-run=server", "-f", "-"];
        cluster.testbed.kubectl_with(&dry_run, &run.stdout).await?.success()?;
        let objects: Vec<Value> = serde_saphyr::from_multiple(&run.stdout)?;
        ensure!(objects[0]["spec"]["modelID"] == model, "{}", run.stdout);
        let hpa = &objects[1];
        // The version of the cluster is known, so that the tolerance needs no comment.
        ensure!(hpa["spec"]["behavior"]["scaleUp"]["tolerance"] == "0", "{}", run.stdout);
        ensure!(!run.stdout.contains("# tolerance"), "{}", run.stdout);
        ensure!(hpa["metadata"]["name"] == autoscaler && hpa["spec"]["maxReplicas"] == max, "{}", run.stdout);
    }
    let run = run_wva(&cluster.testbed, &["generate", "lama-h100", "-n", &ns], "").await?;
    ensure!(run.code == 1 && run.stderr.contains("did you mean llama-h100?"), "{run:?}");
    let delete = ["delete", "deployment", "-n", &ns, "--all", "--wait=false"];
    cluster.testbed.kubectl(&delete).await?.success().map(drop)
}
