//! A cold install, over and over: nothing of the program is there, and two replicas start at the same moment. Both want
//! to make the CA; one must win, and both must serve by it.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::trust::all_agree;
use super::{BOTH, PATIENCE, Times};
use crate::support::Outcome;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::Replicas;
use wva_testbed::{Testbed, eventually};

const READY: Duration = Duration::from_secs(10);
/// The same for what the contract says nothing about: that the doors open.
const OPEN: Duration = Duration::from_secs(30);

/// Installs two replicas `turns` times.
pub(crate) async fn cold_install(testbed: &Testbed, wva: &Path, turns: u32) -> anyhow::Result<Outcome> {
    let mut replicas = Replicas::install(testbed, InstallOptions::quick(wva), "cold").await?;
    let (mut ready, mut right, mut faults) = (Times::default(), Times::default(), Vec::new());
    for turn in 0..turns {
        if turn > 0 {
            replicas.kill_all();
            replicas.anew().await?;
        }
        let (began, since) = (Instant::now(), Timestamp::now());
        replicas.start_all(&BOTH).await?;
        replicas.wait_ready(&BOTH).await?;
        ready.add(&format!("turn {turn}: ready"), began.elapsed(), READY);
        let agreed =
            eventually("everybody to trust one CA", PATIENCE, async || all_agree(&replicas, &BOTH).await);
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

/// How many writes of Secrets in a namespace were stored since then: one CA is one write. Another release renews its own.
fn writes_of_secrets(testbed: &Testbed, namespace: &str, since: Timestamp) -> anyhow::Result<usize> {
    let mut writes = testbed.audit()?;
    writes.retain(|write| write.resource == "secrets" && write.namespace == namespace && write.stored());
    Ok(writes.iter().filter(|write| write.at >= since).count())
}
