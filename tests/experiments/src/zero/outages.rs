//! Outages of Prometheus and of endpoint pickers around an idle period. A model without visible requests must not go
//! to zero, and a model at zero must wake once its picker is back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use wva_testbed::picker::PickerBehavior;
use wva_testbed::{Testbed, eventually};

use super::lane::Lane;
use super::{LANES, Plan, RETENTION};
use crate::command::{SOON, print_line};
use crate::report::{Report, spread};

/// Models with their own pickers. The first are awake at the outage, half of them with a picker that Prometheus does
/// not scrape; the others are at zero.
const PICKERS: usize = 6;
const AWAKE: usize = 4;
const UNSCRAPED: usize = AWAKE / 2;
/// Maximum time from a picker's return to the wake of a model with waiting requests.
const WOKEN: Duration = Duration::from_secs(5);

/// Every model has a request that ends when Prometheus stops, and none afterwards.
pub(super) async fn of_prometheus(testbed: &Testbed, plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    print_line(&format!(
        "\n== Prometheus down for {:?} around an idle period (retention {RETENTION:?})",
        plan.outage
    ))?;
    let mut lanes = try_join_all((0..LANES).map(|i| Lane::start(testbed, i, plan.seed))).await?;
    try_join_all(lanes.iter_mut().map(Lane::is_up)).await?;
    for lane in &lanes {
        lane.send(Duration::from_secs(2));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    testbed.prometheus_stop().await?;
    let down = Instant::now();
    tokio::time::sleep(plan.outage).await;
    let zeroed = lanes.iter().filter(|lane| lane.went_to_zero_since(down).is_some()).count();
    testbed.prometheus_start().await?;
    let up = Instant::now();
    let after = try_join_all(lanes.iter().map(|lane| lane.to_zero_after(up))).await?;
    let too_soon = after.iter().filter(|after| **after < RETENTION).count();
    let figures = format!(
        "{zeroed} of {} zeroed meanwhile, {too_soon} before a whole period was seen; all after it was back in {}",
        lanes.len(),
        spread(&after),
    );
    report.row("Prometheus is down", figures, "0 zeroed", zeroed + too_soon == 0)
}

/// A model with a picker.
pub(super) struct PickerModel<'a> {
    pub(super) lane: Lane<'a>,
    pub(super) model: String,
}

impl<'a> PickerModel<'a> {
    /// A model with a picker that Prometheus does not scrape.
    async fn unscraped(testbed: &'a Testbed, number: usize, seed: u64) -> anyhow::Result<Self> {
        let lane = Lane::start(testbed, LANES + number, seed).await?;
        let model = lane.model().to_owned();
        Ok(Self { lane, model })
    }

    /// A model with a picker that Prometheus scrapes.
    pub(super) async fn start(testbed: &'a Testbed, number: usize, seed: u64) -> anyhow::Result<Self> {
        let served = Self::unscraped(testbed, number, seed).await?;
        let (namespace, picker) = (served.lane.namespace(), &served.lane.picker);
        // The program must know the picker's queue metric before the outage.
        picker.queue(&served.model, 0.0);
        let labels = [("namespace", namespace), ("pod", "epp-0")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        testbed.scrape(&format!("picker-{number}"), &picker.address(), "/metrics", &labels.into())?;
        let metric = format!("inference_extension_flow_control_queue_size{{namespace=\"{namespace}\"}}");
        eventually("Prometheus to see the queue", SOON, async || {
            let found = testbed.prometheus_query(&metric).await?;
            ensure!(!found.is_empty(), "there is no {metric}");
            Ok(())
        })
        .await?;
        Ok(served)
    }
}

/// Some models had a request just before their pickers fail; the others are at zero and receive requests during the
/// outage.
pub(super) async fn of_pickers(testbed: &Testbed, plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    print_line(&format!(
        "\n== pickers down for {:?} around an idle period (retention {RETENTION:?})",
        plan.outage
    ))?;
    // On a busy machine one may reach zero before the last has started.
    let began = Instant::now();
    let all = try_join_all((0..PICKERS).map(async |i| match i {
        0..UNSCRAPED => PickerModel::unscraped(testbed, i, plan.seed).await,
        _ => PickerModel::start(testbed, i, plan.seed).await,
    }));
    let all = all.await?;
    // With a working picker, each goes to zero.
    try_join_all(all.iter().map(|served| served.lane.to_zero_after(began))).await?;
    let mut awake = all;
    let asleep = awake.split_off(AWAKE);
    try_join_all(awake.iter_mut().map(|served| served.lane.is_up())).await?;
    for served in &awake {
        served.lane.send(Duration::from_secs(2));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let down = Instant::now();
    for served in awake.iter().chain(&asleep) {
        served.lane.picker.set_behavior(PickerBehavior::Hangs);
    }
    tokio::time::sleep(plan.outage / 2).await;
    for served in &asleep {
        served.lane.picker.queue(&served.model, 3.0);
    }
    tokio::time::sleep(plan.outage / 2).await;
    let zeroed = awake.iter().filter(|served| served.lane.went_to_zero_since(down).is_some()).count();
    let up = Instant::now();
    for served in awake.iter().chain(&asleep) {
        served.lane.picker.set_behavior(PickerBehavior::Later);
    }
    let woken = try_join_all(asleep.iter().map(|served| woken_after(served, up))).await?;
    let up_still = awake.iter().filter(|served| served.lane.went_to_zero_since(down).is_none());
    let after = try_join_all(up_still.map(|served| served.lane.to_zero_after(up))).await?;
    let stuck = woken.iter().filter(|after| **after > WOKEN).count();
    let figures = format!(
        "{zeroed} of {} zeroed meanwhile ({UNSCRAPED} with pickers that Prometheus does not scrape), the others after they were back in {}; {stuck} of {} stuck at 0, woken after {}",
        awake.len(),
        spread(&after),
        asleep.len(),
        spread(&woken),
    );
    report.row("endpoint pickers are down", figures, "0 zeroed, 0 stuck at 0", zeroed + stuck == 0)
}

/// Time from a moment until a model has a replica.
async fn woken_after(served: &PickerModel<'_>, since: Instant) -> anyhow::Result<Duration> {
    let at = eventually(&format!("{} to be woken", served.lane.namespace()), SOON, async || {
        served.lane.history().first_since(since, |replicas| replicas > 0).context("it is at 0")
    })
    .await?;
    served.lane.picker.queue(&served.model, 0.0);
    Ok(at.duration_since(since))
}
