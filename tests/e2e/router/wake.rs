//! Requests wait at a picker with flow control, wake the model and are answered.

use anyhow::{Context as _, ensure};
use futures::future::ready;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use wva_crds::picker_report::PickerPodReport;
use wva_testbed::eventually;

use super::RouterTestbed;
use super::site::{AT_ZERO, NAME, Site, SiteOptions, check_answer};
use crate::support::DEADLINE;

/// Model name of requests for an adapter.
const ADAPTER: &str = "sql-adapter";
const TENANTS: u32 = 600;
/// Requests of tenants at the same time.
const CLIENTS: usize = 8;
/// Longest page that wva once read.
const FOUR_MIB: usize = 4 << 20;

/// Pool, Service and pod lead wva to the picker. A fresh page does not show whether the picker has flow control; the
/// first request shows it, and waits for the first pod. The idle model then goes to zero, and wakes again.
pub(super) async fn a_waiting_request_is_answered(testbed: &RouterTestbed) -> anyhow::Result<String> {
    let site = Site::start(testbed, "router-wake", AT_ZERO).await?;
    site.wait_at_zero().await?;
    let read = site.wait_until_read().await?;
    let is_fresh = !read.router && read.flow_control == "NotYetShown";
    ensure!(is_fresh && read.url == site.epp.metrics_url(), "{read:?}");
    site.wait_for_message("shows whether it has flow control only after its first request").await?;
    let first = site.wake(&site.model.model).await?;
    eventually("the event", DEADLINE, async || {
        let events = site.cluster.events(&site.namespace, "ScaledFromZero").await?;
        ensure!(events.len() == 1 && events[0]["involvedObject"]["name"] == NAME, "{events:?}");
        Ok(())
    })
    .await?;
    site.wait_for_report("show flow control", |pod| pod.flow_control == "On").await?;
    site.wait_at_zero().await?;
    let again = site.wake(&site.model.model).await?;
    Ok(format!("{first}; from zero again: {again}"))
}

/// The request names an adapter, which no variant serves, in a pool with one model. The pod of this picker does not name
/// its metrics port.
pub(super) async fn an_adapter_wakes_the_model_of_its_pool(
    testbed: &RouterTestbed,
) -> anyhow::Result<String> {
    let site = Site::start(testbed, "router-adapter", SiteOptions { names_port: false, ..AT_ZERO }).await?;
    site.wait_at_zero().await?;
    site.wait_until_read().await?;
    let woken = site.wake(ADAPTER).await?;
    let is_named = |pod: &PickerPodReport| pod.names.iter().any(|name| name == ADAPTER);
    site.wait_for_report("name the adapter", is_named).await?;
    Ok(woken.to_string())
}

/// The page grows by 12 kilobytes with each tenant. It takes the model to zero and wakes it all the same.
pub(super) async fn a_page_of_600_tenants_is_read(testbed: &RouterTestbed) -> anyhow::Result<String> {
    let site = Site::start(testbed, "router-tenants", SiteOptions { replicas: 1, ..AT_ZERO }).await?;
    site.fleet.wait_ready(1, DEADLINE).await?;
    site.wait_until_answered().await?;
    let (gateway, model) = (&site.gateway, site.model.model.as_str());
    let send = |tenant: u32| async move { gateway.send(model, Some(&format!("tenant-{tenant}"))).await };
    let answers = stream::iter(0..TENANTS).map(send).buffer_unordered(CLIENTS);
    answers.try_for_each(|answer| ready(check_answer(&answer, model))).await.context("a request failed")?;
    let page = site.epp.page(site.cluster.testbed.admin_token()).await?;
    ensure!(page.len() > FOUR_MIB, "the page has {} bytes", page.len());
    site.allow_zero().await?;
    site.wait_at_zero().await?;
    let read = site.wait_until_read().await?;
    let woken = site.wake(model).await?;
    let [page, cost] = [page.len(), read.bytes].map(|bytes| bytes / 1000);
    Ok(format!("a page of {page} kB at the cost of {cost} kB; {woken}"))
}

/// The counters of a restarted picker begin at 0, which is not a failed request. A request that its client gave up counts
/// before that.
pub(super) async fn a_restarted_picker_is_read_again(testbed: &RouterTestbed) -> anyhow::Result<String> {
    let mut site = Site::start(testbed, "router-restart", AT_ZERO).await?;
    site.wait_at_zero().await?;
    site.wait_until_read().await?;
    site.gateway.give_up(&site.model.model).await?;
    site.cluster.wait_for_replicas(&site.namespace, NAME, 1).await?;
    site.wait_until_answered().await?;
    site.wait_at_zero().await?;
    site.epp.restart().await?;
    let is_fresh = |pod: &PickerPodReport| pod.error.is_none() && pod.flow_control == "NotYetShown";
    site.wait_for_report("be read after its restart", is_fresh).await?;
    site.cluster.wait_for_cycles(2).await?;
    ensure!(site.replicas().await? == 0, "the restart woke the model");
    let woken = site.wake(&site.model.model).await?;
    Ok(woken.to_string())
}
