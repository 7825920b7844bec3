//! A variant under a steady load whose HPA reads the external metrics API while leaders change: its replicas must
//! never change.

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use tokio::task::JoinSet;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Fleet, Testbed, eventually};

use crate::command::SOON;
use crate::history::History;

/// Number of replicas that the load needs.
const REPLICAS: u32 = 3;

/// The variant, with its replicas recorded.
pub(super) struct SteadyVariant {
    history: History,
    _watching: JoinSet<()>,
    _fleet: Fleet,
}

impl SteadyVariant {
    /// Starts the variant and waits until its HPA follows the target.
    pub(super) async fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let namespace = testbed.namespace("steady").await?;
        let fixture = VariantFixture::new(&namespace, "a").replicas(REPLICAS);
        let fleet = Fleet::start(testbed, fixture.fleet())?;
        // Enough spare capacity, and too much load for one replica fewer.
        fleet.set_fixed_all(0.5, 0.0);
        testbed.apply(&fixture.port(fleet.port()).all()).await?;
        fleet.wait_ready(usize::try_from(REPLICAS)?, SOON).await?;
        eventually("the HPA to follow", SOON, async || {
            let path = "jsonpath={.status.conditions[?(@.type==\"ScalingActive\")].status}/{.status.desiredReplicas}";
            let actual = testbed.kubectl(&["get", "hpa/a", "-n", &namespace, "-o", path]).await?.success()?;
            ensure!(actual == format!("True/{REPLICAS}"), "{actual}");
            Ok(())
        })
        .await?;
        let history = History::default();
        let deployments: Api<Deployment> = Api::namespaced(testbed.admin()?, &namespace);
        let watching = history.follow(deployments);
        eventually("its replicas to be seen", SOON, async || {
            ensure!(history.now().is_some(), "they are not");
            Ok(())
        })
        .await?;
        Ok(Self { history, _watching: watching, _fleet: fleet })
    }

    /// Number of changes of its replicas.
    pub(super) fn changes(&self) -> usize {
        self.history.all().len().saturating_sub(1)
    }
}
