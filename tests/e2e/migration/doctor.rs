//! Breaks the links of a working chain one by one; `wva doctor` names each.

use anyhow::ensure;
use serde_json::json;
use wva_testbed::Fleet;

use super::session::{Session, step};

/// Each link is fixed again, and the chain works at the end.
pub(crate) async fn name_broken_links(session: &Session<'_>, fleet: &Fleet) -> anyhow::Result<()> {
    step("Links are broken one by one");
    break_selector(session).await?;
    break_scrape(session, fleet).await?;
    break_workload(session).await?;
    break_labels(session).await?;
    session.until("a working chain again", &doctor_args(session), |run| run.code == 0).await?;
    let run = session.wva(&["doctor", "-n", &session.namespace, "missing"]).await?;
    ensure!(run.code == 1 && run.stderr.contains("no such VariantAutoscaling"), "{run:?}");
    Ok(())
}

fn doctor_args<'a>(session: &'a Session<'_>) -> [&'a str; 3] {
    ["doctor", "-n", &session.namespace]
}

/// Waits until the doctor reports that the chain is broken at this link, with all of these words.
async fn wait_for_broken_link(session: &Session<'_>, link: &str, parts: &[&str]) -> anyhow::Result<()> {
    let broken = format!("BROKEN at {link}");
    session
        .until(&broken, &doctor_args(session), |run| {
            run.code == 1
                && run.stdout.contains(&broken)
                && parts.iter().all(|part| run.stdout.contains(part))
        })
        .await
        .map(drop)
}

async fn break_selector(session: &Session<'_>) -> anyhow::Result<()> {
    let patch = |name: &str| {
        let path = "/spec/metrics/0/external/metric/selector/matchLabels/variant_name";
        json!([{"op": "replace", "path": path, "value": name}]).to_string()
    };
    let hpa = ["patch", "hpa", "llama-h100", "-n", &session.namespace, "--type=json", "-p"];
    session.kubectl(&[&hpa[..], &[&patch("llama-b200")]].concat()).await?;
    wait_for_broken_link(
        session,
        "autoscaler",
        &["HPA llama-h100 selects variant_name=llama-b200", "HPA llama-h100 gets no value"],
    )
    .await?;
    session.kubectl(&[&hpa[..], &[&patch("llama-h100")]].concat()).await
}

async fn break_scrape(session: &Session<'_>, fleet: &Fleet) -> anyhow::Result<()> {
    for pod in fleet.pods() {
        fleet.set_fault(&pod.pod, Some(wva_testbed::ExportFault::Empty));
    }
    println!("# the pages of all pods are empty");
    let prometheus = session.testbed.prometheus_url()?;
    let doctor = ["doctor", "-n", &session.namespace, "--prometheus", &prometheus];
    session
        .until("series that are gone", &doctor, |run| {
            run.code == 1
                && run
                    .stdout
                    .contains("Prometheus has no series of a model server, such as vllm:kv_cache_usage_perc")
        })
        .await?;
    for pod in fleet.pods() {
        fleet.set_fault(&pod.pod, None);
    }
    Ok(())
}

async fn break_workload(session: &Session<'_>) -> anyhow::Result<()> {
    let target = |name: &str| json!({"spec": {"scaleTargetRef": {"name": name}}}).to_string();
    let va = ["patch", "va", "llama-a100", "-n", &session.namespace, "--type=merge", "-p"];
    session.kubectl(&[&va[..], &[&target("llama-l40s")]].concat()).await?;
    wait_for_broken_link(
        session,
        "workload",
        &["Deployment llama-l40s does not exist", "kubectl get deployment -n"],
    )
    .await?;
    session.kubectl(&[&va[..], &[&target("llama-a100")]].concat()).await
}

/// Sets the label of an instance that does not run.
async fn break_labels(session: &Session<'_>) -> anyhow::Result<()> {
    let label = ["label", "va", "llama-a100", "-n", &session.namespace];
    session.kubectl(&[&label[..], &["wva.llmd.ai/controller-instance=blue"]].concat()).await?;
    wait_for_broken_link(
        session,
        "variant",
        &["its label names instance blue, which is not installed", "CONTROLLER_INSTANCE=blue"],
    )
    .await?;
    // Both in one update, as the rules require.
    let back = json!({"metadata": {
        "labels": {"wva.llmd.ai/controller-instance": null},
        "annotations": {"wva.llmd.ai/allow-instance-change": "true"},
    }});
    let patch = back.to_string();
    session
        .kubectl(&["patch", "va", "llama-a100", "-n", &session.namespace, "--type=merge", "-p", &patch])
        .await
}
