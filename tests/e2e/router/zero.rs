//! A picker without flow control: requests do not wait at it.

use std::time::Instant;

use anyhow::{bail, ensure};
use wva_crds::picker_report::PickerPodReport;
use wva_testbed::eventually;

use super::RouterTestbed;
use super::site::{AT_ZERO, NAME, RETENTION, Site, SiteOptions};
use crate::support::DEADLINE;

/// The model does not go to zero by itself. A person takes it there; the next request fails at once, and wakes it.
pub(super) async fn without_flow_control_requests_fail(testbed: &RouterTestbed) -> anyhow::Result<String> {
    let options = SiteOptions { replicas: 1, has_flow_control: false, ..AT_ZERO };
    let site = Site::start(testbed, "router-gate", options).await?;
    site.fleet.wait_ready(1, DEADLINE).await?;
    // Before its first request, the picker does not show that it has no flow control.
    site.wait_until_answered().await?;
    site.allow_zero().await?;
    stays_up(&site).await?;
    let workload = format!("deployment/{NAME}");
    let scale = ["scale", &workload, "-n", &site.namespace, "--replicas=0"];
    site.cluster.testbed.kubectl(&scale).await?.success()?;
    site.wait_at_zero().await?;
    let is_current = |pod: &PickerPodReport| pod.flow_control == "Off" && pod.age_seconds == 0;
    site.wait_for_report("be read at zero", is_current).await?;
    let (failed, began) = (site.gateway.send(&site.model.model, None).await?, Instant::now());
    ensure!(failed.status == 503, "{failed:?}");
    site.cluster.wait_for_replicas(&site.namespace, NAME, 1).await?;
    let scaled = began.elapsed().as_secs_f64();
    let counted = "1 request(s) failed at the endpoint picker";
    eventually("the event of the wake", DEADLINE, async || {
        let events = site.cluster.events(&site.namespace, "ScaledFromZero").await?;
        let [event] = &events[..] else { bail!("{events:?}") };
        ensure!(event["message"].to_string().contains(counted), "{event}");
        Ok(())
    })
    .await?;
    site.wait_until_answered().await?;
    Ok(format!("stays up; at zero 503, /scale {scaled:.1} s later"))
}

/// Condition and event name the obstacle, and the replica stays for three retention periods.
async fn stays_up(site: &Site<'_>) -> anyhow::Result<()> {
    let missing = "its endpoint picker has no flow control";
    site.wait_for_message(missing).await?;
    eventually("the event of the obstacle", DEADLINE, async || {
        let events = site.cluster.events(&site.namespace, "NotWakeable").await?;
        let [event] = &events[..] else { bail!("{events:?}") };
        ensure!(event["message"].to_string().contains(missing), "{event}");
        Ok(())
    })
    .await?;
    let idle = Instant::now();
    eventually("three retention periods to pass", DEADLINE, async || {
        ensure!(site.replicas().await? == 1, "its replica is gone");
        ensure!(idle.elapsed() > 3 * RETENTION, "{:?}", idle.elapsed());
        Ok(())
    })
    .await?;
    let decisions = site.cluster.events(&site.namespace, "ScalingDecision").await?;
    let goes = decisions.iter().any(|event| event["message"].to_string().contains("-> 0"));
    ensure!(!goes, "{decisions:?}");
    Ok(())
}
