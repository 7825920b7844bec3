//! Gaps of the variant's target in Prometheus, as KEDA sees them.

use std::time::{Duration, Instant};

use anyhow::ensure;
use parking_lot::Mutex;
use wva_testbed::{Testbed, eventually};

use super::model::{NAME, NAMESPACE};
use crate::command::SOON;

/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Longest time without a target.
#[derive(Default)]
pub(super) struct Gaps {
    longest: Mutex<Duration>,
}

impl Gaps {
    /// Polls the target until this work ends.
    pub(super) async fn during(
        &self,
        testbed: &Testbed,
        work: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            done = work => done,
            failed = self.watch(testbed) => failed,
        }
    }

    pub(super) fn longest(&self) -> Duration {
        *self.longest.lock()
    }

    async fn watch(&self, testbed: &Testbed) -> anyhow::Result<()> {
        let mut seen = Instant::now();
        loop {
            if has_target(testbed).await? {
                seen = Instant::now();
            } else {
                let mut longest = self.longest.lock();
                *longest = longest.max(seen.elapsed());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Waits until Prometheus has a target.
pub(super) async fn target_is_there(testbed: &Testbed) -> anyhow::Result<()> {
    eventually("a target in Prometheus", SOON, async || {
        ensure!(has_target(testbed).await?, "there is none");
        Ok(())
    })
    .await
}

async fn has_target(testbed: &Testbed) -> anyhow::Result<bool> {
    let query = format!("wva_desired_replicas{{variant_name=\"{NAME}\",exported_namespace=\"{NAMESPACE}\"}}");
    Ok(!testbed.prometheus_query(&query).await?.is_empty())
}
