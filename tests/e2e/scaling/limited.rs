//! The limiter on a cluster that is short of one type of GPU: what no node has room for is not asked for.

use std::path::Path;

use anyhow::ensure;

use super::cluster::{SOON, Scarce, of, ready};
use super::timeline::Timeline;
use crate::support::Outcome;

pub(crate) async fn limited(wva: &Path) -> anyhow::Result<Outcome> {
    let scarce = Scarce::start("limited", wva, &[("WVA_LIMITED_MODE", "true")]).await?;
    let mut timeline = Timeline::begin(&scarce.testbed, &scarce.namespace);
    scarce.rests(&mut timeline).await?;

    scarce.load(&timeline, 2);
    let mut asked = false;
    let grows = timeline
        .until("the dearer variant to have a second replica that is ready", SOON, |now| {
            asked |= of(now, "cheap")?.target != Some(1);
            ensure!(of(now, "dear")?.ready >= 2, "{}", of(now, "dear")?);
            Ok(())
        })
        .await?;
    let mut faults = Vec::new();
    if asked {
        faults.push("the cheaper variant asked for a GPU that is not there".to_owned());
    }
    let limited = timeline.until("the cheaper variant to say what is scarce", SOON, |now| {
        let why = &of(now, "cheap")?.why;
        ensure!(why.contains("A100"), "it says {why:?}");
        Ok(())
    });
    limited.await?;
    scarce.until_told("cheap", "LimitedBy").await?;

    timeline.note("others give their A100s back");
    scarce.free().await?;
    scarce.load(&timeline, ready(timeline.last()));
    let cheaper = timeline
        .until("the cheaper variant to have a second replica that is ready", SOON, |now| {
            ensure!(of(now, "cheap")?.ready >= 2, "{}", of(now, "cheap")?);
            Ok(())
        })
        .await?;
    let figures = format!(
        "the dearer variant had its replica {:.1} s after the load, the cheaper one {:.1} s after the GPUs were free",
        grows.as_secs_f64(),
        cheaper.as_secs_f64()
    );
    Ok(Outcome { figures, faults })
}
