//! A stock-out of one type of GPU: the new replica of the cheaper variant finds no node.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;

use super::cluster::{SOON, Scarce, of, ready};
use super::timeline::Timeline;
use crate::support::Outcome;

/// Pods that are unschedulable count as pending for so long.
const GRACE: Duration = Duration::from_mins(1);

pub(crate) async fn stock_out(wva: &Path) -> anyhow::Result<Outcome> {
    let scarce = Scarce::start("stock-out", wva, &[]).await?;
    let mut timeline = Timeline::begin(&scarce.testbed, &scarce.namespace);
    let mut faults = Vec::new();
    scarce.rests(&mut timeline).await?;
    let stuck = runs_out(&scarce, &mut timeline, &mut faults).await?;
    let falls_over = dear_grows(&scarce, &mut timeline).await?;
    let recovers = cheap_recovers(&scarce, &mut timeline).await?;
    let figures = format!(
        "stuck {:.1} s after the target that finds no node, the dearer variant grew {:.1} s after the load, the cheaper \
         one was well {:.1} s after the GPUs were free",
        stuck.as_secs_f64(),
        falls_over.as_secs_f64(),
        recovers.as_secs_f64()
    );
    Ok(Outcome { figures, faults })
}

/// The cheaper variant grows, and its pod finds no node. While it is waited for the dearer one helps out, as it would if
/// the pod were only slow.
async fn runs_out(
    scarce: &Scarce,
    timeline: &mut Timeline<'_>,
    faults: &mut Vec<String>,
) -> anyhow::Result<Duration> {
    scarce.load(timeline, 2);
    let grown = timeline.until("the cheaper variant to grow", SOON, |now| {
        ensure!(of(now, "cheap")?.target >= Some(2), "{}", of(now, "cheap")?);
        Ok(())
    });
    grown.await?;
    let stuck = timeline
        .until("the cheaper variant to be stuck", GRACE + SOON, |now| {
            ensure!(of(now, "cheap")?.reason == "Stuck", "{}", of(now, "cheap")?);
            Ok(())
        })
        .await?;
    let pending = scarce.pending_until_stuck("cheap").await?;
    if pending < GRACE {
        faults.push(format!("stuck {pending:?} after its pod was created, which is too soon"));
    }
    Ok(stuck)
}

/// More load comes. Nothing of the cheaper variant is waited for any more, it is below its maximum, and it is passed over.
async fn dear_grows(scarce: &Scarce, timeline: &mut Timeline<'_>) -> anyhow::Result<Duration> {
    let settled = timeline.until("the dearer variant to have what it asked for", SOON, |now| {
        let dear = of(now, "dear")?;
        ensure!(Some(dear.ready) == dear.target, "{dear}");
        Ok(())
    });
    settled.await?;
    let (all, dear) = (ready(timeline.last()), of(timeline.last(), "dear")?.ready);
    scarce.load(timeline, all);
    // It may have asked for more than one before it counted as stuck.
    let (cheap, mut passed_over) = (of(timeline.last(), "cheap")?.target, true);
    let took = timeline
        .until("the dearer variant to have one more replica that is ready", SOON, |now| {
            passed_over &= of(now, "cheap")?.target == cheap;
            ensure!(of(now, "dear")?.ready > dear, "{}", of(now, "dear")?);
            Ok(())
        })
        .await?;
    ensure!(passed_over, "the cheaper variant grew although it was stuck");
    Ok(took)
}

/// GPUs come free: the pod that waited gets its node, and the cheaper variant is the one that grows next.
async fn cheap_recovers(scarce: &Scarce, timeline: &mut Timeline<'_>) -> anyhow::Result<Duration> {
    timeline.note("others give their A100s back");
    scarce.free().await?;
    let well = timeline
        .until("the cheaper variant to recover", SOON, |now| {
            let cheap = of(now, "cheap")?;
            ensure!(cheap.ready >= 2 && cheap.reason == "Ready", "{cheap}");
            Ok(())
        })
        .await?;
    scarce.load(timeline, ready(timeline.last()));
    let grown = timeline.until("the cheaper variant to have all GPUs that are free", SOON, |now| {
        ensure!(of(now, "cheap")?.ready >= 3, "{}", of(now, "cheap")?);
        Ok(())
    });
    grown.await?;
    Ok(well)
}
