//! A stock-out of one GPU type: the new replica of the cheap variant stays unscheduled.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;

use super::cluster::{GpuShortage, SOON, variant, wait_for_rest};
use super::timeline::Timeline;
use crate::support::Outcome;

/// How long unschedulable pods count as pending.
const GRACE: Duration = Duration::from_mins(1);

pub(crate) async fn stock_out(wva: &Path) -> anyhow::Result<Outcome> {
    let cluster = GpuShortage::start("stock-out", wva, &[]).await?;
    let mut timeline = Timeline::start(&cluster.testbed, &cluster.namespace);
    let mut faults = Vec::new();
    wait_for_rest(&mut timeline, &["cheap", "expensive"]).await?;
    let stuck = cheap_gets_stuck(&cluster, &mut timeline, &mut faults).await?;
    let falls_over = expensive_scales_up(&cluster, &mut timeline).await?;
    let recovers = cheap_recovers(&cluster, &mut timeline).await?;
    let figures = format!(
        "stuck {:.1} s after the target that finds no node, the expensive variant grew {:.1} s after the load, the cheap \
         one was ready {:.1} s after the GPUs were free",
        stuck.as_secs_f64(),
        falls_over.as_secs_f64(),
        recovers.as_secs_f64()
    );
    Ok(Outcome { figures, faults })
}

/// The cheap variant scales up and its pod stays unscheduled. Meanwhile the expensive variant helps out, as with a slow
/// pod.
async fn cheap_gets_stuck(
    cluster: &GpuShortage,
    timeline: &mut Timeline<'_>,
    faults: &mut Vec<String>,
) -> anyhow::Result<Duration> {
    let grown = cluster.overload_until(timeline, "the cheap variant to grow", |now| {
        ensure!(variant(now, "cheap")?.target >= Some(2), "{}", variant(now, "cheap")?);
        Ok(())
    });
    grown.await?;
    let stuck = timeline
        .until("the cheap variant to be stuck", GRACE + SOON, |now| {
            ensure!(variant(now, "cheap")?.reason == "Stuck", "{}", variant(now, "cheap")?);
            Ok(())
        })
        .await?;
    let pending = cluster.pending_until_stuck("cheap").await?;
    if pending < GRACE {
        faults.push(format!("stuck {pending:?} after its pod was created, which is too soon"));
    }
    Ok(stuck)
}

/// The load rises. The cheap variant has no pending replicas any more, is below its maximum, and is skipped.
async fn expensive_scales_up(cluster: &GpuShortage, timeline: &mut Timeline<'_>) -> anyhow::Result<Duration> {
    let settled = timeline.until("the expensive variant to have its target ready", SOON, |now| {
        let expensive = variant(now, "expensive")?;
        ensure!(Some(expensive.ready) == expensive.target, "{expensive}");
        Ok(())
    });
    settled.await?;
    let expensive = variant(timeline.last(), "expensive")?.ready;
    // It may have requested more than one replica before it counted as stuck.
    let (cheap, mut is_skipped) = (variant(timeline.last(), "cheap")?.target, true);
    let took = cluster
        .overload_until(timeline, "the expensive variant to have one more replica that is ready", |now| {
            is_skipped &= variant(now, "cheap")?.target == cheap;
            ensure!(variant(now, "expensive")?.ready > expensive, "{}", variant(now, "expensive")?);
            Ok(())
        })
        .await?;
    ensure!(is_skipped, "the cheap variant grew although it was stuck");
    Ok(took)
}

/// GPUs become free: the pending pod is scheduled, and the cheap variant scales up next.
async fn cheap_recovers(cluster: &GpuShortage, timeline: &mut Timeline<'_>) -> anyhow::Result<Duration> {
    timeline.note("the other workload frees its A100s");
    cluster.free_gpus().await?;
    let well = timeline
        .until("the cheap variant to recover", SOON, |now| {
            let cheap = variant(now, "cheap")?;
            ensure!(cheap.ready >= 2 && cheap.reason == "Ready", "{cheap}");
            Ok(())
        })
        .await?;
    let grown = cluster.overload_until(timeline, "the cheap variant to have all GPUs that are free", |now| {
        ensure!(variant(now, "cheap")?.ready >= 3, "{}", variant(now, "cheap")?);
        Ok(())
    });
    grown.await?;
    Ok(well)
}
