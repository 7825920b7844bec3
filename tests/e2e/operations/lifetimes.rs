//! CA and serving certificates that live for a minute, the least that can be set, so that the CA is replaced every
//! forty seconds or so, while reviews come in and handshakes are verified against what each `caBundle` carries.

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
/// Reviews a second.
const RATE: u32 = 50;
/// Between two looks at bundles and certificates.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What the handshakes came to.
#[derive(Default)]
struct Shaken {
    all: usize,
    failed: Vec<String>,
    /// Every CA that the Secret held.
    authorities: BTreeSet<Vec<u8>>,
}

/// Keeps two replicas under reviews for this long; `release` where another release runs beside them.
pub(crate) async fn lifetimes(
    testbed: &Testbed,
    wva: &Path,
    release: Option<&str>,
    lasts: Duration,
) -> anyhow::Result<Outcome> {
    let mut options = InstallOptions::quick(wva);
    options.release = release.map(str::to_owned);
    for life in ["WVA_CA_LIFETIME", "WVA_CERT_LIFETIME"] {
        options.env.push((life.to_owned(), format!("{}s", LIFE.as_secs())));
    }
    let replicas = pair(testbed, options, "lifetimes").await?;
    let reviews = Reviews::start(testbed, replicas.namespace(), RATE).await?;
    let shaken = shake_until(&replicas, Instant::now() + lasts).await;
    let tally = reviews.end().await?;

    let mut faults = super::faults(&tally);
    if !shaken.failed.is_empty() {
        let first = shaken.failed.iter().take(3).cloned().collect::<Vec<_>>().join(" / ");
        faults.push(format!("{} handshakes failed: {first}", shaken.failed.len()));
    }
    let wanted = usize::try_from(lasts.as_secs() / LIFE.as_secs())?;
    let rotations = shaken.authorities.len().saturating_sub(1);
    if rotations < wanted {
        faults.push(format!("the CA was replaced {rotations} times only: {wanted} would show something"));
    }
    let figures = format!(
        "{} s: CA replaced {rotations} times; {} of {} handshakes and {} of {} reviews failed, {} invalid admitted",
        lasts.as_secs(),
        shaken.failed.len(),
        shaken.all,
        tally.failed,
        tally.sent(),
        tally.let_through
    );
    Ok(Outcome { figures, faults })
}

async fn shake_until(replicas: &Replicas<'_>, end: Instant) -> Shaken {
    let mut shaken = Shaken::default();
    let mut beat = tokio::time::interval(LOOK_AGAIN);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < end {
        beat.tick().await;
        let Some(trust) = read(replicas, &mut shaken).await else { continue };
        let (all, mut failed) = trust.shake(replicas, &BOTH).await;
        shaken.all += all;
        if failed.is_empty() {
            continue;
        }
        // What was read may have been replaced before the handshake: then the new bundle is the one that counts.
        let Some(now) = read(replicas, &mut shaken).await else { continue };
        if now.bundles != trust.bundles {
            failed = now.shake(replicas, &BOTH).await.1;
        }
        shaken.failed.extend(failed);
    }
    shaken
}

async fn read(replicas: &Replicas<'_>, shaken: &mut Shaken) -> Option<Trust> {
    match Trust::read(replicas).await {
        Ok(trust) => {
            shaken.authorities.extend(trust.ca.clone());
            Some(trust)
        }
        Err(error) => {
            shaken.failed.push(format!("{error:#}"));
            None
        }
    }
}
