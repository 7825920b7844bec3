//! A leader that cannot lead: frozen past its lease and continued, cut off from kube-apiserver, or without its Lease.
//! The audit log shows who wrote what and when: the old leader must not write after its lease.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use tokio::time::Instant;

use super::churn::Churn;
use super::{BOTH, PATIENCE, Times, pair};
use crate::support::Outcome;
use wva_testbed::audit::Write;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::{LEASE, LEASE_NAME, Replicas};
use wva_testbed::{Signal, Testbed, eventually, within};

const CALL: Duration = Duration::from_secs(10);
/// Contract: how long after the lease another replica leads.
const SLACK: Duration = Duration::from_secs(5);
/// The test watches a new leader until it has written this often, for late writes of the old one.
const WRITES: usize = 4;

/// Fault of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Frozen,
    CutOff,
    LeaseDeleted,
    /// Cut off; requests that it had sent arrive when the link is healed.
    CutOffLate,
}

impl Fault {
    /// Whether late writes are faults. Requests sent during the lease cannot be recalled when a network delays them:
    /// they are measured only. `docs/development/evidence/operations-tests.md` has the consequences.
    fn judged(self) -> bool {
        self != Self::CutOffLate
    }
}

/// Causes each fault `turns` times; with `late` also the one that is measured only.
pub(crate) async fn leadership(
    testbed: &Testbed,
    wva: &Path,
    turns: u32,
    late: bool,
) -> anyhow::Result<Outcome> {
    let replicas = pair(testbed, InstallOptions::quick(wva), "leadership").await?;
    let _churn = Churn::start(testbed, replicas.namespace()).await?;
    let (mut figures, mut faults) = (Vec::new(), Vec::new());
    let all = [Fault::Frozen, Fault::CutOff, Fault::LeaseDeleted, Fault::CutOffLate];
    for fault in all.into_iter().filter(|fault| late || fault.judged()) {
        let (mut times, mut after) = (Times::default(), 0);
        for _ in 0..turns {
            let effect =
                one(&replicas, fault).await.with_context(|| format!("{fault:?}: {}", replicas.evidence()))?;
            times.add(&format!("{fault:?}: taken over"), effect.took, LEASE + SLACK);
            after += effect.late.len();
            if !fault.judged() {
                continue;
            }
            faults
                .extend(effect.late.iter().map(|write| format!("{fault:?}: the old leader wrote {write:?}")));
            faults.extend(
                effect
                    .overlapping
                    .iter()
                    .map(|write| format!("{fault:?}: after the first write of the new leader: {write:?}")),
            );
        }
        figures.push(format!("{fault:?}: led again after {times}, {after} late writes"));
        faults.extend(times.late);
    }
    Ok(Outcome { figures: format!("{turns} each: {}", figures.join("; ")), faults })
}

/// Effect of one fault.
struct FaultEffect {
    /// Time from the fault until a replica leads.
    took: Duration,
    /// Writes of the old leader after the end of its lease.
    late: Vec<Write>,
    /// Writes of the old leader after the first write of the new one.
    overlapping: Vec<Write>,
}

async fn one(replicas: &Replicas<'_>, fault: Fault) -> anyhow::Result<FaultEffect> {
    let old = eventually("one leader", PATIENCE, async || the_leader(replicas).await).await?;
    let writes = writes_by(replicas, old, Timestamp::now());
    eventually("the leader to write", PATIENCE, async || writes(1)).await?;
    let (began, since) = (Instant::now(), Timestamp::now());
    cause(replicas, old, fault).await?;
    let new = eventually("a new leader", PATIENCE, async || holder(replicas, fault, old).await).await?;
    let took = began.elapsed();
    let acts = writes_by(replicas, new, since);
    if new != old {
        eventually("the new leader to write", PATIENCE, async || acts(1)).await?;
    }
    end_fault(replicas, old, fault)?;
    let woken = writes_by(replicas, new, Timestamp::now());
    eventually("the new leader to go on writing", PATIENCE, async || woken(WRITES)).await?;
    eventually("one leader and one follower", PATIENCE, async || {
        let leader = the_leader(replicas).await?;
        ensure!(leader == new, "wva-{leader} leads, and wva-{new} took over");
        Ok(())
    })
    .await?;
    replicas.wait_ready(&BOTH).await?;
    if new == old {
        return Ok(FaultEffect { took, late: Vec::new(), overlapping: Vec::new() });
    }
    let all = replicas.testbed().audit()?;
    let (old, new) = (replicas.credential(old)?, replicas.credential(new)?);
    Ok(FaultEffect {
        took,
        late: after_expiry(&all, old, new, since)?,
        overlapping: overlapping(&all, old, new, since),
    })
}

async fn cause(replicas: &Replicas<'_>, leader: usize, fault: Fault) -> anyhow::Result<()> {
    match fault {
        Fault::Frozen => replicas.signal(leader, Signal::Stop),
        Fault::CutOff | Fault::CutOffLate => {
            replicas.cut(leader);
            Ok(())
        }
        Fault::LeaseDeleted => replicas.delete_lease().await,
    }
}

/// Ends the fault.
fn end_fault(replicas: &Replicas<'_>, old: usize, fault: Fault) -> anyhow::Result<()> {
    match fault {
        Fault::Frozen => replicas.signal(old, Signal::Cont)?,
        Fault::CutOff => replicas.heal(old),
        Fault::CutOffLate => replicas.heal_and_deliver(old),
        Fault::LeaseDeleted => {}
    }
    Ok(())
}

/// The only replica that leads, where the Lease agrees.
async fn the_leader(replicas: &Replicas<'_>) -> anyhow::Result<usize> {
    let mut leaders = Vec::new();
    for index in BOTH {
        let leads = replicas.leads(index).await?.context("there is no series wva_leader")?;
        leaders.extend(leads.then_some(index));
    }
    ensure!(leaders.len() == 1, "{leaders:?} say that they lead");
    let lease = lease_holder(replicas).await?;
    ensure!(lease == format!("wva-{}", leaders[0]), "wva-{} leads, and the Lease says {lease:?}", leaders[0]);
    Ok(leaders[0])
}

/// The leader after the fault: another replica, or possibly the same one after a deleted Lease.
async fn holder(replicas: &Replicas<'_>, fault: Fault, old: usize) -> anyhow::Result<usize> {
    let name = lease_holder(replicas).await?;
    let index = BOTH.into_iter().find(|index| name == format!("wva-{index}"));
    let index = index.with_context(|| format!("{name:?} holds the Lease"))?;
    ensure!(index != old || fault == Fault::LeaseDeleted, "the old leader still holds the Lease");
    ensure!(replicas.leads(index).await? == Some(true), "wva-{index} holds the Lease and does not lead yet");
    Ok(index)
}

async fn lease_holder(replicas: &Replicas<'_>) -> anyhow::Result<String> {
    let leases = Api::<Lease>::namespaced(replicas.testbed().admin()?, &replicas.system());
    let lease = within("reading the Lease", CALL, leases.get(LEASE_NAME)).await?;
    lease.spec.and_then(|spec| spec.holder_identity).context("the Lease has no holder")
}

/// Check that a replica has written this often since a time, apart from its Lease.
fn writes_by<'a>(
    replicas: &'a Replicas<'_>,
    index: usize,
    since: Timestamp,
) -> impl Fn(usize) -> anyhow::Result<()> + 'a {
    move |wanted| {
        let credential = replicas.credential(index)?;
        let writes = replicas.testbed().audit()?;
        let count =
            writes.iter().filter(|write| is_leader_write(write, credential) && write.at >= since).count();
        ensure!(count >= wanted, "wva-{index} wrote {count} times");
        Ok(())
    }
}

/// Whether a write changes something that only a leader changes. Events do not count: they report the past and may
/// arrive at any time.
fn is_leader_write(write: &Write, credential: &str) -> bool {
    write.credential == credential
        && write.stored()
        && !["leases", "events"].contains(&write.resource.as_str())
}

/// Writes that kube-apiserver received from `old` after its lease, which starts at its last renewal before `new` took
/// the Lease.
fn after_expiry(all: &[Write], old: &str, new: &str, fault: Timestamp) -> anyhow::Result<Vec<Write>> {
    let leases = all.iter().filter(|write| write.resource == "leases" && write.stored());
    let of = |who: &str, write: &&Write| write.credential == who;
    let taken =
        leases.clone().filter(|write| of(new, write)).map(|write| write.at).filter(|at| *at > fault).min();
    let taken = taken.context("the new leader never wrote the Lease")?;
    let last = leases.filter(|write| of(old, write)).map(|write| write.at).filter(|at| *at < taken).max();
    let over = last.context("the old leader never renewed its Lease")? + SignedDuration::try_from(LEASE)?;
    Ok(all.iter().filter(|write| is_leader_write(write, old) && write.at > over).cloned().collect())
}

/// Writes of `old` after the first write of `new` since the fault.
fn overlapping(all: &[Write], old: &str, new: &str, since: Timestamp) -> Vec<Write> {
    let first = all
        .iter()
        .filter(|write| is_leader_write(write, new) && write.at > since)
        .map(|write| write.at)
        .min();
    all.iter()
        .filter(|write| is_leader_write(write, old) && first.is_some_and(|first| write.at > first))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(second: i64, credential: &str, resource: &str) -> anyhow::Result<Write> {
        Ok(Write {
            body: serde_json::Value::Null,
            at: Timestamp::from_second(second)?,
            credential: credential.to_owned(),
            user: String::new(),
            verb: "patch".to_owned(),
            resource: resource.to_owned(),
            namespace: String::new(),
            name: "x".to_owned(),
            code: 200,
        })
    }

    #[test]
    fn only_writes_after_the_lease_are_late() -> anyhow::Result<()> {
        let status = "variantautoscalings/status";
        let all = [
            write(100, "old", "leases")?,
            write(104, "old", status)?,
            write(108, "new", "leases")?,
            write(109, "new", status)?,
            write(110, "old", "leases")?,
            write(111, "old", status)?,
            write(112, "new", status)?,
        ];
        let fault = Timestamp::from_second(101)?;
        assert_eq!(after_expiry(&all, "old", "new", fault)?, all[5..6]);
        assert_eq!(overlapping(&all, "old", "new", fault), all[5..6]);
        assert!(after_expiry(&all, "old", "other", fault).is_err());
        Ok(())
    }
}
