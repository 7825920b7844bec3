//! `DamageRecord` to the CA and the time to repair it: the Secret and each `caBundle`, in every way, while reviews arrive.
//! Reviews may fail only where kube-apiserver has no CA or a wrong one, and until the repair.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;

use super::damage::{DamageKind, DamageTarget};
use super::trust::check_agreement;
use super::{BOTH, PATIENCE, Times, pair};
use crate::support::Outcome;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::Replicas;
use wva_testbed::reviews::{Reviews, Tally};
use wva_testbed::{Testbed, eventually};

/// Reviews/s.
const RATE: u32 = 20;
/// Contract for a repair.
const REPAIRED: Duration = Duration::from_secs(15);
/// Valid reviews that are admitted after a repair before it counts as noticed: kube-apiserver learns of a repaired
/// configuration by its watch.
const NOTICED_AFTER: u64 = 3;
/// Reviews that are admitted before the Secret is damaged, 12 s: a replica that has just started accepts a valid Secret
/// as it is.
const SERVED: u64 = 120;

/// A damage and the time in which reviews may fail.
struct DamageRecord {
    what: String,
    begin: Instant,
    end: Instant,
    excuse: bool,
}

/// Causes each damage `turns` times on two replicas.
pub(crate) async fn repair(testbed: &Testbed, wva: &Path, turns: u32) -> anyhow::Result<Outcome> {
    let replicas = pair(testbed, InstallOptions::quick(wva), "repair").await?;
    let reviews = Reviews::start(testbed, replicas.namespace(), RATE).await?;
    let (mut damages, mut faults, mut figures) = (Vec::new(), Vec::new(), Vec::new());
    for bundle in [true, false] {
        if !bundle {
            eventually("the replicas to have served for a while", PATIENCE, async || {
                admitted(&reviews, SERVED)
            })
            .await?;
        }
        for kind in DamageKind::ALL {
            let (mut repaired, mut noticed) = (Times::default(), Times::default());
            for turn in 0..turns {
                let target = target(bundle, turn);
                let (damage, took) = damage_and_repair(&replicas, &reviews, target, kind).await?;
                repaired.add(&damage.what, took, REPAIRED);
                let reviewed = (damage.end - damage.begin).saturating_sub(took);
                noticed.add(&format!("{}: reviews", damage.what), reviewed, REPAIRED);
                damages.push(damage);
            }
            let what = if bundle { "caBundle" } else { "Secret" };
            figures.push(format!("{what} {kind:?} {repaired}"));
            faults.extend(repaired.late.into_iter().chain(noticed.late));
        }
    }
    let tally = reviews.end().await?;
    let excused = judge(&tally, &damages, &mut faults);
    figures.push(format!(
        "of {} reviews {excused} failed where they may and {} where not",
        tally.sent(),
        tally.failed - excused
    ));
    Ok(Outcome { figures: format!("{turns} each: {}", figures.join("; ")), faults })
}

fn target(bundle: bool, turn: u32) -> DamageTarget {
    match (bundle, turn % 3) {
        (false, _) => DamageTarget::Secret,
        (true, 0) => DamageTarget::Validating,
        (true, 1) => DamageTarget::Mutating,
        (true, _) => DamageTarget::ApiService,
    }
}

/// Checks that this many valid reviews were admitted.
fn admitted(reviews: &Reviews, wanted: u64) -> anyhow::Result<()> {
    let admitted = reviews.so_far().admitted;
    ensure!(admitted >= wanted, "{admitted} reviews were admitted, and {wanted} are wanted");
    Ok(())
}

/// Causes one damage, waits for the repair and then for admitted reviews. Returns the damage and the time to the
/// repair.
async fn damage_and_repair(
    replicas: &Replicas<'_>,
    reviews: &Reviews,
    target: DamageTarget,
    kind: DamageKind,
) -> anyhow::Result<(DamageRecord, Duration)> {
    let what = format!("{target:?} {kind:?}");
    eventually("all replicas and bundles to agree on one CA", PATIENCE, async || {
        check_agreement(replicas, &BOTH).await
    })
    .await?;
    let begin = Instant::now();
    target.damage(kind, replicas).await?;
    eventually(&format!("the repair: {what}"), PATIENCE, async || check_agreement(replicas, &BOTH).await)
        .await?;
    let took = begin.elapsed();
    let noticed = reviews.so_far().admitted + NOTICED_AFTER;
    eventually("reviews to be admitted again", PATIENCE, async || admitted(reviews, noticed)).await?;
    Ok((DamageRecord { what, begin, end: Instant::now(), excuse: target.is_the_api_servers() }, took))
}

/// Counts the failed reviews with an excuse; failures without one, and wrong verdicts, are faults.
fn judge(tally: &Tally, damages: &[DamageRecord], faults: &mut Vec<String>) -> u64 {
    let mut excused = 0;
    let mut without = Vec::new();
    for failure in &tally.failures {
        let during = |damage: &&DamageRecord| damage.begin <= failure.at && failure.sent <= damage.end;
        match damages.iter().find(during) {
            Some(damage) if damage.excuse => excused += 1,
            Some(damage) => without.push(format!("({}) {}", damage.what, failure.text)),
            None => without.push(failure.text.clone()),
        }
    }
    if !without.is_empty() {
        let first = without.iter().take(3).cloned().collect::<Vec<_>>().join(" / ");
        faults.push(format!("{} reviews failed without an excuse: {first}", without.len()));
    }
    if tally.let_through > 0 {
        faults.push(format!("{} invalid objects were admitted", tally.let_through));
    }
    excused
}

#[cfg(test)]
mod tests {
    use super::*;
    use wva_testbed::reviews::Failure;

    #[test]
    fn excuses_only_failures_during_a_damage() {
        let at = |seconds: u64, base: Instant| base + Duration::from_secs(seconds);
        let base = Instant::now();
        let damage = |what: &str, begin, end, excuse| DamageRecord {
            what: what.to_owned(),
            begin: at(begin, base),
            end: at(end, base),
            excuse,
        };
        let damages = [damage("bundle", 10, 12, true), damage("Secret", 20, 22, false)];
        let failure =
            |seconds| Failure { sent: at(seconds, base), at: at(seconds, base), text: "x509".to_owned() };
        let failures = [5, 11, 21].map(failure).to_vec();
        let tally = Tally { failed: 3, failures, ..Tally::default() };
        let mut faults = Vec::new();
        assert_eq!(judge(&tally, &damages, &mut faults), 1);
        assert_eq!(faults, ["2 reviews failed without an excuse: x509 / (Secret) x509"]);
    }
}
