//! The limiter requests no GPU that no node has room for.

use std::path::Path;

use anyhow::ensure;

use super::cluster::{GpuShortage, SOON, variant, wait_for_rest};
use super::timeline::Timeline;
use crate::support::Outcome;

pub(crate) async fn limited(wva: &Path) -> anyhow::Result<Outcome> {
    let cluster = GpuShortage::start("limited", wva, &[("WVA_LIMITED_MODE", "true")]).await?;
    let mut timeline = Timeline::start(&cluster.testbed, &cluster.namespace);
    wait_for_rest(&mut timeline, &["cheap", "expensive"]).await?;

    let mut requested = false;
    let grows = cluster
        .overload_until(
            &mut timeline,
            "the expensive variant to have a second replica that is ready",
            |now| {
                requested |= variant(now, "cheap")?.target != Some(1);
                ensure!(variant(now, "expensive")?.ready >= 2, "{}", variant(now, "expensive")?);
                Ok(())
            },
        )
        .await?;
    let mut faults = Vec::new();
    if requested {
        faults.push("the cheap variant requested a GPU that is not available".to_owned());
    }
    let limited = timeline.until("the cheap variant to report the scarce GPU type", SOON, |now| {
        let message = &variant(now, "cheap")?.message;
        ensure!(message.contains("A100"), "its message is {message:?}");
        Ok(())
    });
    limited.await?;
    cluster.wait_for_event("cheap", "LimitedBy").await?;

    timeline.note("the other workload frees its A100s");
    cluster.free_gpus().await?;
    let cheaper = cluster
        .overload_until(&mut timeline, "the cheap variant to have a second replica that is ready", |now| {
            ensure!(variant(now, "cheap")?.ready >= 2, "{}", variant(now, "cheap")?);
            Ok(())
        })
        .await?;
    let figures = format!(
        "the expensive variant had its replica {:.1} s after the load, the cheap one {:.1} s after the GPUs were free",
        grows.as_secs_f64(),
        cheaper.as_secs_f64()
    );
    Ok(Outcome { figures, faults })
}
