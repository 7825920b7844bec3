//! How long Prometheus has no target of the variant, as KEDA would see it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wva_testbed::Testbed;

use super::model::{NAME, NAMESPACE};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// The longest time without a target.
#[derive(Default)]
pub(super) struct Gaps {
    longest: Mutex<Duration>,
}

impl Gaps {
    /// Looks for the target until this work ends.
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
        let query =
            format!("wva_desired_replicas{{variant_name=\"{NAME}\",exported_namespace=\"{NAMESPACE}\"}}");
        let mut seen = Instant::now();
        loop {
            let found = testbed.prometheus_query(&query).await?;
            if found.is_empty() {
                let mut longest = self.longest.lock();
                *longest = longest.max(seen.elapsed());
            } else {
                seen = Instant::now();
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
