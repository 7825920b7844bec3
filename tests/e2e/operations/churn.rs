//! Work for each cycle: a variant whose Deployment is scaled up and down all the time, so that its status keeps
//! changing.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Testbed, within};

/// Shorter than a cycle of the program under test.
const PERIOD: Duration = Duration::from_millis(1300);
const CALL: Duration = Duration::from_secs(5);
/// Name of the variant.
pub(crate) const NAME: &str = "churn";

/// The variant. Dropping this ends the scaling.
pub(crate) struct Churn {
    _running: JoinSet<()>,
}

impl Churn {
    pub(crate) async fn start(testbed: &Testbed, namespace: &str) -> anyhow::Result<Self> {
        let fixture = VariantFixture::new(namespace, NAME);
        testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
        let deployments = Api::<Deployment>::namespaced(testbed.admin()?, namespace);
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut beat = interval(PERIOD);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for replicas in (1..=3).cycle() {
                beat.tick().await;
                let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                let params = PatchParams::default();
                // The next patch makes up for a failed one.
                let _ = within("scaling a Deployment", CALL, deployments.patch(NAME, &params, &patch)).await;
            }
        });
        Ok(Self { _running: running })
    }
}
