//! A cold install, over and over: nothing of the program is there, and two replicas start at the same moment. Both want
//! to make the CA; one must win, and both must serve by it.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::spread;
use super::trust::all_agree;
use crate::support::{Outcome, bound};
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::Replicas;
use wva_testbed::{Testbed, eventually};

const BOTH: [usize; 2] = [0, 1];
const READY: Duration = Duration::from_secs(10);
/// Longest wait for what the contract says nothing about: that the doors open.
const OPEN: Duration = Duration::from_secs(30);

/// Installs two replicas `turns` times.
///
/// # Errors
/// When an install could not be made at all.
pub(crate) async fn cold_install(testbed: &Testbed, wva: &Path, turns: u32) -> anyhow::Result<Outcome> {
    let mut replicas = Replicas::install(testbed, InstallOptions::quick(wva), "cold").await?;
    let (mut ready, mut right, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..turns {
        if turn > 0 {
            replicas.kill_all();
            replicas.anew().await?;
        }
        let (began, since) = (Instant::now(), Timestamp::now());
        replicas.start_all(&BOTH).await?;
        replicas.wait_ready(&BOTH).await?;
        ready.push(began.elapsed());
        if began.elapsed() > bound(READY) {
            faults.push(format!("turn {turn}: ready after {:?}", began.elapsed()));
        }
        let agreed =
            eventually("everybody to trust one CA", OPEN, async || all_agree(&replicas, &BOTH).await);
        match agreed.await {
            Ok(_) => right.push(began.elapsed()),
            Err(error) => faults.push(format!("turn {turn}: {error:#}")),
        }
        let made = writes_of_secrets(testbed, since)?;
        if made != 1 {
            faults.push(format!("turn {turn}: the Secret was written {made} times"));
        }
    }
    let figures = format!(
        "{turns} installs: both ready after {}, every caBundle right after {}",
        spread(&ready),
        spread(&right)
    );
    Ok(Outcome { figures, faults })
}

/// How many writes of Secrets were stored since then: one CA is one write.
fn writes_of_secrets(testbed: &Testbed, since: Timestamp) -> anyhow::Result<usize> {
    let writes = testbed.audit()?;
    Ok(writes
        .iter()
        .filter(|write| write.at >= since && write.resource == "secrets" && write.stored())
        .count())
}
