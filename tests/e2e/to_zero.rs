//! Idle models go to zero on a real control plane with every kind of autoscaler, and not while a request runs. The
//! program writes each step through the API server, with the permissions of its service account.
//! Why a control plane of its own: a feature gate of its API server lets HPAs go to zero.

mod idle_pod;
mod model;
mod steps;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::Install;
use wva_testbed::picker::{CRDS, FakePicker, PickerBehavior, pool_of_ranks};
use wva_testbed::{Options, Testbed, eventually};

use self::model::{Model, OtherScaler, RETENTION, assert_completed, picker, servers, until_scaling_active};
use crate::support::{Cluster, DEADLINE, apply_crds, apply_stand_in, find_condition, target};

/// Duration of a request that the test ends.
const ENDLESS: Duration = Duration::from_hours(1);

/// A model whose picker has no flow control stays up, and condition and event report why. It goes to zero once the
/// picker has flow control.
async fn model_without_flow_control_stays_up(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = cluster.testbed.namespace("zero-no-flow").await?;
    let fleet = servers(cluster, &namespace)?;
    let picker = picker(cluster, &namespace, PickerBehavior::NoFlowControl).await?;
    let model = Model::deploy(cluster, OtherScaler::Nothing, namespace, fleet).await?;
    let idle = tokio::time::Instant::now();
    let missing = "its endpoint picker has no flow control";
    let ns = model.namespace.as_str();
    eventually("the condition and an event to name the obstacle", DEADLINE, async || {
        let va = model.variant().await?;
        let condition = find_condition(&va, "OptimizationReady")?;
        ensure!(condition["message"].to_string().contains(missing), "{condition}");
        let events = cluster.events(ns, "NotWakeable").await?;
        ensure!(events.len() == 1 && events[0]["message"].to_string().contains(missing), "{events:?}");
        Ok(())
    })
    .await?;
    eventually("three retention periods to pass", DEADLINE, async || {
        ensure!(idle.elapsed() > 3 * RETENTION, "{:?}", idle.elapsed());
        Ok(())
    })
    .await?;
    let decisions = cluster.events(ns, "ScalingDecision").await?;
    ensure!(decisions.iter().all(|event| !event["message"].to_string().contains("-> 0")), "{decisions:?}");
    ensure!(model.replicas().await? == 1, "its replica is gone");
    picker.set_behavior(PickerBehavior::Later);
    model.wait_for_zero().await
}

/// A request that no scrape shows, at the second of two ranks in the pod: the program queries the ranks, and does not
/// scale to zero while the request runs.
async fn unscraped_request_delays_the_step_to_zero(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = cluster.testbed.namespace("zero-unseen").await?;
    let (first, second) = (servers(cluster, &namespace)?, servers(cluster, &namespace)?);
    let picker = FakePicker::start([127, 0, 0, 8]).await?;
    picker.pod(&cluster.testbed, &namespace, "epp", "epp-0").await?;
    let ranks = [first.port(), second.port()];
    cluster.testbed.apply(&pool_of_ranks(&namespace, "epp", &ranks)).await?;
    second.hide_requests();
    second.send(ENDLESS);
    let model = Model::deploy(cluster, OtherScaler::Nothing, namespace, first).await?;
    let held = "Scale to zero cancelled: a model server has a request";
    let at_second = format!(":{}", second.port());
    eventually("the step to be held back", DEADLINE, async || {
        ensure!(target(&model.variant().await?) == Some(0), "its target is not 0");
        let lines = model.log_lines(held)?;
        let seen = |line: &Value| line["server"].as_str().is_some_and(|s| s.ends_with(&at_second));
        ensure!(lines.iter().any(seen), "the second rank was not queried: {lines:?}");
        Ok(())
    })
    .await?;
    second.end_requests();
    model.wait_for_zero().await?;
    assert_completed(&second, 0)
}

/// An endpoint picker that Prometheus does not scrape hangs, and then has a request that only it knows of.
async fn unscraped_picker_is_queried_before_zero(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = cluster.testbed.namespace("zero-picker").await?;
    let picker = picker(cluster, &namespace, PickerBehavior::Later).await?;
    let fleet = servers(cluster, &namespace)?;
    // Keeps the model up until its picker was queried.
    fleet.send(ENDLESS);
    let model = Model::deploy(cluster, OtherScaler::Nothing, namespace, fleet).await?;
    eventually("flow control to be seen", DEADLINE, async || {
        ensure!(picker.scrapes().count > 0, "it was not queried");
        Ok(())
    })
    .await?;
    picker.set_behavior(PickerBehavior::Hangs);
    model.fleet.end_requests();
    let pods = model.pods();
    let missed = "Endpoint picker does not answer and Prometheus has no series of its queue; restarting the retention period for scale to zero";
    eventually("the missing answer to be logged", DEADLINE, async || {
        ensure!(!model.log_lines(missed)?.is_empty(), "it is not");
        Ok(())
    })
    .await?;
    picker.queue(&VariantFixture::new(&model.namespace, "a").model, 1.0);
    picker.set_behavior(PickerBehavior::Later);
    let asked = picker.scrapes().count;
    eventually("its request to keep the model up", DEADLINE, async || {
        ensure!(picker.scrapes().count > asked, "it was not queried");
        ensure!(target(&model.variant().await?) == Some(1), "the target was not taken back");
        Ok(())
    })
    .await?;
    ensure!(model.replicas().await? == 1 && model.pods() == pods, "its replica was removed meanwhile");
    picker.queue(&VariantFixture::new(&model.namespace, "a").model, 0.0);
    model.wait_for_zero().await
}

/// A control plane with HPAs that may go to zero, and with optional kinds.
async fn cluster() -> anyhow::Result<Cluster> {
    let options = Options { name: "to-zero".to_owned(), hpa_to_zero: true, ..Options::default() };
    let testbed = Testbed::start(options).await?;
    apply_crds(&testbed, CRDS).await?;
    for kind in ["scaledobjects", "leaderworkersets"] {
        apply_stand_in(&testbed, kind).await?;
    }
    let install = Install::start(&testbed, &crate::support::install_options()).await?;
    Ok(Cluster { testbed, install })
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_models_go_to_zero_with_every_kind_of_scaler() -> anyhow::Result<()> {
    let mut cluster = cluster().await?;
    let picker = Box::pin(unscraped_picker_is_queried_before_zero(&cluster));
    let no_flow_control = Box::pin(model_without_flow_control_stays_up(&cluster));
    tokio::try_join!(Box::pin(idle_models_go_to_zero_and_wake(&cluster)), picker, no_flow_control)?;
    let Cluster { testbed, install } = cluster;
    install.stop().await?;
    let options = crate::support::install_options().with(&[("WVA_ACTUATION", "scale")]);
    let install = Install::start(&testbed, &options).await?;
    cluster = Cluster { testbed, install };
    steps::every_step(&cluster).await?;
    idle_pod::idle_pod_goes(&cluster).await
}

/// Idle models go to zero after their request, and come back when a person scales them.
async fn idle_models_go_to_zero_and_wake(cluster: &Cluster) -> anyhow::Result<()> {
    let models = try_join_all(OtherScaler::ALL.map(|scaler| Model::start(cluster, scaler))).await?;
    let all = try_join_all(models.iter().map(Model::wait_for_zero));
    tokio::try_join!(all, unscraped_request_delays_the_step_to_zero(cluster))?;
    for model in &models {
        assert_completed(&model.fleet, 0).with_context(|| model.scaler.name())?;
        let checks = model.log_lines("Final check before scale to zero: no model server has a request")?;
        let blind = model.log_lines("Final check before scale to zero: some model servers cannot be queried; relying on Prometheus for these")?;
        let name = model.scaler.name();
        // A step that a later change overtook is checked again.
        ensure!(checks.iter().all(|l| l["idle"] == 1), "{name}: {checks:?}");
        ensure!(blind.is_empty(), "{name}: {blind:?}");
        match model.scaler {
            OtherScaler::ScaledObject => ensure!(checks.is_empty(), "{name}: KEDA makes that step"),
            // An HPA that may go to 0 can be faster.
            OtherScaler::HpaToZero => {}
            _ => ensure!(!checks.is_empty(), "{name}: no check was made"),
        }
    }
    let hpa = models.iter().find(|m| m.scaler == OtherScaler::Hpa).context("there is none")?;
    until_scaling_active(hpa, "False").await?;

    let scaled: Vec<&Model> = models.iter().filter(|m| m.scaler != OtherScaler::ScaledObject).collect();
    let woken = try_join_all(scaled.iter().map(|model| model.wake()));
    // In parallel: the model is idle again soon, and then at zero.
    tokio::try_join!(woken, until_scaling_active(hpa, "True"))?;
    try_join_all(scaled.iter().map(|model| model.wait_for_zero())).await.map(|_| ())
}
