//! CA and serving certificates with the shortest lifetime, a minute: the CA is replaced about every forty seconds,
//! while reviews arrive and handshakes are verified with each `caBundle`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::trust::Trust;
use super::{BOTH, pair};
use crate::support::Outcome;
use wva_testbed::Testbed;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::Replicas;
use wva_testbed::reviews::Reviews;

const LIFE: Duration = Duration::from_mins(1);
/// Reviews/s.
const RATE: u32 = 50;
/// Time between two checks of bundles and certificates.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Results of the handshakes.
#[derive(Default)]
struct Handshakes {
    all: usize,
    failed: Vec<String>,
    /// Every CA that the Secret had.
    authorities: BTreeSet<Vec<u8>>,
}

/// Sends reviews to two replicas for this long; `release` where another release runs in parallel.
pub(crate) async fn lifetimes(
    testbed: &Testbed,
    wva: &Path,
    release: Option<&str>,
    lasts: Duration,
) -> anyhow::Result<Outcome> {
    let life = format!("{}s", LIFE.as_secs());
    let lives = ["WVA_CA_LIFETIME", "WVA_CERT_LIFETIME"].map(|key| (key, life.as_str()));
    let mut options = InstallOptions::quick(wva).with(&lives);
    options.release = release.map(str::to_owned);
    let replicas = pair(testbed, options, "lifetimes").await?;
    let reviews = Reviews::start(testbed, replicas.namespace(), RATE).await?;
    let handshakes = run_handshakes(&replicas, Instant::now() + lasts).await;
    let tally = reviews.end().await?;

    let mut faults = super::faults(&tally);
    if !handshakes.failed.is_empty() {
        let first = handshakes.failed.iter().take(3).cloned().collect::<Vec<_>>().join(" / ");
        faults.push(format!("{} handshakes failed: {first}", handshakes.failed.len()));
    }
    let wanted = usize::try_from(lasts.as_secs() / LIFE.as_secs())?;
    let rotations = handshakes.authorities.len().saturating_sub(1);
    if rotations < wanted {
        faults.push(format!("the CA was replaced {rotations} times only: {wanted} would show something"));
    }
    let figures = format!(
        "{} s: CA replaced {rotations} times; {} of {} handshakes and {} of {} reviews failed, {} invalid admitted",
        lasts.as_secs(),
        handshakes.failed.len(),
        handshakes.all,
        tally.failed,
        tally.sent(),
        tally.let_through
    );
    Ok(Outcome { figures, faults })
}

async fn run_handshakes(replicas: &Replicas<'_>, end: Instant) -> Handshakes {
    let mut handshakes = Handshakes::default();
    let mut beat = tokio::time::interval(POLL_INTERVAL);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < end {
        beat.tick().await;
        let Some(trust) = read(replicas, &mut handshakes).await else { continue };
        let (all, mut failed) = trust.run_handshakes(replicas, &BOTH).await;
        handshakes.all += all;
        if failed.is_empty() {
            continue;
        }
        // The bundle may have been replaced before the handshake: then the new bundle counts.
        let Some(now) = read(replicas, &mut handshakes).await else { continue };
        if now.bundles != trust.bundles {
            failed = now.run_handshakes(replicas, &BOTH).await.1;
        }
        handshakes.failed.extend(failed);
    }
    handshakes
}

async fn read(replicas: &Replicas<'_>, handshakes: &mut Handshakes) -> Option<Trust> {
    match Trust::read(replicas).await {
        Ok(trust) => {
            handshakes.authorities.extend(trust.ca.clone());
            Some(trust)
        }
        Err(error) => {
            handshakes.failed.push(format!("{error:#}"));
            None
        }
    }
}
