//! Repeated cold installs: two replicas start at the same moment without any object of the program. Both try to create
//! the CA; one succeeds, and both use it.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::trust::check_agreement;
use super::{BOTH, PATIENCE, Times};
use crate::support::Outcome;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::Replicas;
use wva_testbed::{Testbed, eventually};

const READY: Duration = Duration::from_secs(10);
/// Contract for the opening of the webhooks.
const OPEN: Duration = Duration::from_secs(30);

/// Installs two replicas `turns` times.
pub(crate) async fn cold_install(testbed: &Testbed, wva: &Path, turns: u32) -> anyhow::Result<Outcome> {
    let mut replicas = Replicas::install(testbed, InstallOptions::quick(wva), "cold").await?;
    let (mut ready, mut right, mut faults) = (Times::default(), Times::default(), Vec::new());
    for turn in 0..turns {
        if turn > 0 {
            replicas.kill_all();
            replicas.reset().await?;
        }
        let (began, since) = (Instant::now(), Timestamp::now());
        replicas.start_all(&BOTH).await?;
        replicas.wait_ready(&BOTH).await?;
        ready.add(&format!("turn {turn}: ready"), began.elapsed(), READY);
        let agreed = eventually("all replicas and bundles to agree on one CA", PATIENCE, async || {
            check_agreement(&replicas, &BOTH).await
        });
        match agreed.await {
            Ok(_) => right.add(&format!("turn {turn}: one CA"), began.elapsed(), OPEN),
            Err(error) => faults.push(format!("turn {turn}: {error:#}")),
        }
        let made = writes_of_secrets(testbed, &replicas.system(), since)?;
        if made != 1 {
            faults.push(format!("turn {turn}: the Secret was written {made} times"));
        }
    }
    let figures = format!("{turns} installs: both ready after {ready}, every caBundle right after {right}");
    faults.extend(ready.late.into_iter().chain(right.late));
    Ok(Outcome { figures, faults })
}

/// Counts the stored writes of Secrets in a namespace since a time: one CA takes one write. Other releases renew their
/// own.
fn writes_of_secrets(testbed: &Testbed, namespace: &str, since: Timestamp) -> anyhow::Result<usize> {
    let mut writes = testbed.audit()?;
    writes.retain(|write| write.resource == "secrets" && write.namespace == namespace && write.stored());
    Ok(writes.iter().filter(|write| write.at >= since).count())
}
