//! Objects that come and go: variants with Deployments, ConfigMaps, and whole namespaces.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio::task::JoinSet;
use wva_testbed::Testbed;
use wva_testbed::fixtures::{VariantFixture, saturation_map};

use crate::bench::create;

/// Interval of changes.
const EVERY: Duration = Duration::from_secs(1);
/// Changes after which a namespace is replaced, and variants that it has until then.
const OF_A_NAMESPACE: usize = 20;

/// Objects created and deleted so far, and calls that failed, as under a fault of the API server.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(Arc<[AtomicUsize; 3]>);

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [created, deleted, failed] = self.0.each_ref().map(|count| count.load(Ordering::Relaxed));
        write!(f, "{created} created, {deleted} deleted, {failed} calls failed")
    }
}

/// The churn. Dropping it ends the changes.
pub(super) struct Churn {
    counts: Counts,
    _running: JoinSet<()>,
}

impl Churn {
    pub(super) fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let counts = Counts::default();
        let client = testbed.admin()?;
        let mut running = JoinSet::new();
        running.spawn(change(client, counts.clone()));
        Ok(Self { counts, _running: running })
    }

    pub(super) fn end(self) -> Counts {
        self.counts
    }
}

async fn change(client: kube::Client, counts: Counts) {
    let count = |which: usize, ok: bool, n: usize| {
        let counter = &counts.0[if ok { which } else { 2 }];
        counter.fetch_add(n, Ordering::Relaxed);
    };
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for i in 0_usize.. {
        ticks.tick().await;
        let (turn, step) = (i / OF_A_NAMESPACE, i % OF_A_NAMESPACE);
        let namespace = format!("churn-{turn}");
        if step == 0 {
            let object = k8s_openapi::api::core::v1::Namespace {
                metadata: kube::api::ObjectMeta { name: Some(namespace.clone()), ..Default::default() },
                ..Default::default()
            };
            count(0, namespaces.create(&PostParams::default(), &object).await.is_ok(), 1);
            if let Some(last) = turn.checked_sub(1) {
                let deleted = namespaces.delete(&format!("churn-{last}"), &DeleteParams::default()).await;
                count(1, deleted.is_ok(), OF_A_NAMESPACE);
            }
            continue;
        }
        let fixture = VariantFixture::new(&namespace, &format!("passing-{step}")).replicas(0);
        let yaml = if step == 4 {
            vec![saturation_map(&namespace, "kvCacheThreshold: 0.7")]
        } else {
            vec![fixture.deployment(), fixture.autoscaler(), fixture.variant()]
        };
        for object in yaml {
            count(0, create(&client, &namespace, &object).await.is_ok(), 1);
        }
    }
}
