//! The limiter counts GPUs that pods get by resource claims (DRA). The scheduler allocates the devices of an emulated
//! driver; no node has GPUs as extended resources.

use std::path::Path;

use anyhow::ensure;
use serde_json::{Value, json};

use super::cluster::{BUSY, QUIET, SOON, variant};
use super::timeline::Timeline;
use crate::support::{Outcome, fleet_config, run_wva};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Fleet, FleetConfig, NodeGroup, Options, Testbed};

const NODE: &str = "dra-0";

pub(crate) async fn claims(wva: &Path) -> anyhow::Result<Outcome> {
    let nodes = vec![NodeGroup { gpus: 0, ..NodeGroup::new("dra", 1, "") }];
    let testbed = Testbed::start(Options { name: "claims".to_owned(), nodes, ..Options::default() }).await?;
    let install =
        Install::start(&testbed, &InstallOptions::quick(wva).with(&[("WVA_LIMITED_MODE", "true")])).await?;
    let namespace = testbed.namespace("claims").await?;
    testbed.apply(&driver(2, 1).to_string()).await?;
    testbed.apply(&class_and_template(&namespace).to_string()).await?;
    let fleet = Fleet::start(&testbed, FleetConfig { rate: QUIET, ..fleet_config(&namespace) })?;
    testbed.apply(&claimed_variant(&namespace)).await?;
    let mut timeline = Timeline::start(&testbed, &namespace);
    timeline
        .until("the variant to be at rest", SOON, |now| {
            let state = variant(now, "claimed")?;
            ensure!((state.target, state.ready) == (Some(1), 1) && state.reason == "Ready", "{state}");
            Ok(())
        })
        .await?;

    timeline.note("load for four replicas comes in; the driver has two H100s");
    fleet.set_rate(4.0 * BUSY);
    let limited = timeline
        .until("the variant to have both GPUs and to name the limit", SOON, |now| {
            let state = variant(now, "claimed")?;
            let is_named = state.message.contains("limited: 0 GPU(s) of H100 are free, a replica needs 1");
            ensure!((state.target, state.ready) == (Some(2), 2) && is_named, "{state}");
            Ok(())
        })
        .await?;
    let mut faults = check_commands(&testbed, &install, &namespace).await?;
    let free = install.series("wva_gpus_capacity", &[("accelerator_type", "H100")]).await?;
    if free != Some(2.0) {
        faults.push(format!("the gauge of capacity is {free:?}"));
    }

    timeline.note("the driver gets a third H100");
    testbed.apply(&driver(3, 2).to_string()).await?;
    let grows = timeline
        .until("the variant to have a third replica that is ready", SOON, |now| {
            let state = variant(now, "claimed")?;
            ensure!(state.ready >= 3, "{state}");
            Ok(())
        })
        .await?;
    let figures = format!(
        "two of four replicas and the limit after {:.1} s, a third replica {:.1} s after its GPU",
        limited.as_secs_f64(),
        grows.as_secs_f64()
    );
    Ok(Outcome { figures, faults })
}

/// What `explain`, `status` and `doctor` must name.
async fn check_commands(
    testbed: &Testbed,
    install: &Install,
    namespace: &str,
) -> anyhow::Result<Vec<String>> {
    let address = install.address("debug")?;
    let mut faults = Vec::new();
    for (command, parts) in [
        (&["explain"][..], &["claimed (H100", "limited: 0 GPU(s) of H100 are free"][..]),
        (
            &["status", "-o", "wide"],
            &["ACCELERATOR   CAPACITY   USED   FREE", "H100          2          2      0"],
        ),
        (
            &["doctor", "-o", "wide"],
            &[
                "gpus",
                "1 GPU of H100 per replica: 1 by claim template one-gpu; the cluster offers 2, of which 2 are used",
            ],
        ),
    ] {
        let args = [command, &["-n", namespace, "--address", address]].concat();
        let run = run_wva(testbed, &args, "").await?;
        let missing = parts.iter().filter(|part| !run.stdout.contains(**part));
        faults.extend(missing.map(|part| format!("{part:?} is not in the output of {command:?}: {run:?}")));
    }
    Ok(faults)
}

/// The slice of a driver with this many devices on the only node.
fn driver(devices: u32, generation: u32) -> Value {
    let device = |i| {
        let text = |text: &str| json!({"string": text});
        let attributes = json!({"type": text("gpu"), "productName": text("NVIDIA H100 80GB HBM3")});
        json!({"name": format!("gpu-{i}"), "attributes": attributes})
    };
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "dra-0-gpu.nvidia.com"},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": NODE,
            "pool": {"name": NODE, "generation": generation, "resourceSliceCount": 1},
            "devices": (0..devices).map(device).collect::<Vec<_>>()}})
}

fn class_and_template(namespace: &str) -> Value {
    let selector = json!({"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}});
    let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"},
            "spec": {"selectors": [selector]}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": [request]}}}},
    ]})
}

/// A variant whose pods have a claim, and which names no accelerator.
fn claimed_variant(namespace: &str) -> String {
    let fixture = VariantFixture::new(namespace, "claimed");
    let selector = format!("nodeSelector: {{nvidia.com/gpu.product: {}}}", fixture.gpu_product);
    let label = format!("labels: {{inference.optimization/acceleratorName: {}}}", fixture.accelerator);
    let all = fixture.all();
    let all = all.replace(&selector, "resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]");
    let all = all.replace("resources: {limits: {nvidia.com/gpu: 1}}", "resources: {claims: [{name: gpu}]}");
    all.replace(&label, "labels: {}")
}
