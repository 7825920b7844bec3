//! A variant under an even load whose HPA reads the external metrics API while leaders come and go: its replicas must not
//! change once.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use tokio::task::JoinHandle;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::{Fleet, FleetConfig, Testbed, eventually};

use super::lane::{History, follow};

/// Replicas whose load asks for as many.
const REPLICAS: u32 = 3;
/// Longest wait for what takes seconds.
const SOON: Duration = Duration::from_mins(2);

/// The variant, while it is watched.
pub(super) struct Steady {
    history: History,
    watch: JoinHandle<anyhow::Result<()>>,
    _fleet: Fleet,
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Steady {
    /// Waits until its HPA follows the target.
    pub(super) async fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let namespace = testbed.namespace("steady").await?;
        let fixture = VariantFixture::new(&namespace, "a").replicas(REPLICAS);
        let config = FleetConfig::new(&namespace, &format!("{MODEL_LABEL}=served"), &fixture.model);
        let fleet = Fleet::start(testbed, config)?;
        // Enough spare capacity, and too much load for one replica less.
        fleet.set_fixed_all(0.5, 0.0);
        testbed.apply(&fixture.port(fleet.port()).all()).await?;
        fleet.wait_ready(usize::try_from(REPLICAS)?, SOON).await?;
        eventually("the HPA to follow", SOON, async || {
            let path = "jsonpath={.status.conditions[?(@.type==\"ScalingActive\")].status}/{.status.desiredReplicas}";
            let said = testbed.kubectl(&["get", "hpa/a", "-n", &namespace, "-o", path]).await?.success()?;
            ensure!(said == format!("True/{REPLICAS}"), "{said}");
            Ok(())
        })
        .await?;
        let history = History::default();
        let deployments: Api<Deployment> = Api::namespaced(testbed.admin()?, &namespace);
        let watch = tokio::spawn(follow(deployments, history.clone()));
        eventually("its replicas to be seen", SOON, async || {
            ensure!(history.now().is_some(), "they are not");
            Ok(())
        })
        .await?;
        Ok(Self { history, watch, _fleet: fleet })
    }

    /// How often its replicas have changed.
    pub(super) fn changes(&self) -> usize {
        self.history.all().len().saturating_sub(1)
    }
}
