//! Leaders that are killed after the signal of a step and before the step: the next leader must perform it exactly
//! once, in time. A variant under a steady load must keep its replicas meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wva_crds::VariantAutoscaling;
use wva_testbed::audit::Write;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::{LEASE, Replicas};
use wva_testbed::{Testbed, eventually};

use super::Plan;
use super::outages::PickerModel;
use super::steady::SteadyVariant;
use crate::command::{SOON, print_line};
use crate::report::{Report, percentile};
use crate::variants::follow;

/// Models that take the same step at the same time: one dead leader leaves several steps open.
const MODELS: usize = 5;
const BOTH: [usize; 2] = [0, 1];
/// Maximum delay of a wake, in addition to the lease duration.
const SLACK: Duration = Duration::from_secs(5);
/// Pause after an election: series, a cycle and two HPA syncs.
const SETTLES: Duration = Duration::from_secs(4);

/// Target in the status of each namespace's variant.
type Signals = watch::Receiver<BTreeMap<String, i32>>;

/// Results of the steps in one direction.
#[derive(Default)]
struct Tally {
    kills: usize,
    /// Steps signalled but not performed by the dead leader.
    between: usize,
    /// Steps written twice or never.
    not_once: usize,
    /// Times from a visible queue to a replica.
    waits: Vec<Duration>,
}

/// Control plane of the experiment.
struct Bench<'a> {
    replicas: Replicas<'a>,
    served: Vec<PickerModel<'a>>,
    signals: Signals,
}

/// Runs the experiment.
pub(super) async fn run(
    testbed: &Testbed,
    wva: &Path,
    plan: &Plan,
    report: &mut Report,
) -> anyhow::Result<()> {
    print_line(&format!(
        "\n== leaders killed between signal and step, {MODELS} models at once, leases of {LEASE:?}"
    ))?;
    let mut replicas = Replicas::install(testbed, InstallOptions::quick(wva), "killed").await?;
    replicas.start_all(&BOTH).await?;
    replicas.wait_ready(&BOTH).await?;
    replicas.wait_webhooks().await?;
    let steady = SteadyVariant::start(testbed).await?;
    let served = try_join_all((0..MODELS).map(|i| PickerModel::start(testbed, i, plan.seed))).await?;
    let (_watching, signals) = follow_targets(testbed)?;
    let mut bench = Bench { replicas, served, signals };
    bench.all_have(0).await?;
    let (mut up, mut down) = (Tally::default(), Tally::default());
    while up.between < plan.killed || down.between < plan.killed {
        let kills = up.kills + down.kills;
        ensure!(
            kills <= 2 * plan.killed,
            "{kills} leaders were killed, and hardly any between signal and step"
        );
        bench.turn(1, &mut up).await.with_context(|| bench.replicas.evidence())?;
        bench.turn(0, &mut down).await.with_context(|| bench.replicas.evidence())?;
    }
    let mut failovers = up.kills + down.kills;
    while failovers < plan.killed {
        bench.leader_ends().await?;
        failovers += 1;
    }
    let changes = steady.changes();
    let what = "failovers under a live HPA that reads the external metrics API";
    let figures = format!("{failovers} ({} of them kills), {changes} changes", up.kills + down.kills);
    up.judge("from zero", true, report)?;
    down.judge("to zero", false, report)?;
    report.row(what, figures, "0 replica changes", changes == 0)
}

impl Tally {
    fn judge(&self, direction: &str, waited: bool, report: &mut Report) -> anyhow::Result<()> {
        let Self { between, kills, not_once, waits } = self;
        let (bound, longest) = (LEASE + SLACK, percentile(waits, 100));
        let figures = format!("{between} steps of {kills} dead leaders, {not_once} not carried out once");
        let (promise, figures) = if waited {
            let longest = longest.as_secs_f64();
            (
                format!("each step once, within {bound:?}"),
                format!("{figures}, a request waited {longest:.1} s at most"),
            )
        } else {
            ("each step once".to_owned(), figures)
        };
        let what = format!("leader killed between the signal {direction} and the step");
        report.row(&what, figures, &promise, *not_once == 0 && longest <= bound)
    }
}

impl Bench<'_> {
    /// All models step to this number of replicas, and their leader dies at the first signal.
    async fn turn(&mut self, to: i32, tally: &mut Tally) -> anyhow::Result<()> {
        let leader = self.leader().await?;
        let (since, began) = (Timestamp::now(), Instant::now());
        for served in &self.served {
            served.lane.picker.queue(&served.model, f64::from(to));
        }
        let names: Vec<String> = self.served.iter().map(|s| s.lane.namespace().to_owned()).collect();
        let first = |all: &BTreeMap<String, i32>| names.iter().any(|name| all.get(name) == Some(&to));
        let seen = tokio::time::timeout(SOON, self.signals.wait_for(first)).await;
        seen.with_context(|| format!("no signal {to} in {SOON:?}"))?
            .context("the watch of variants ended")?;
        self.replicas.kill(leader)?;
        tally.kills += 1;
        self.replicas.start(leader).await?;
        self.all_have(to).await?;
        let writes = self.replicas.testbed().audit()?;
        let dead = self.replicas.credential(leader)?;
        for (served, name) in self.served.iter().zip(&names) {
            let of_it = |w: &&Write| w.namespace == *name && w.at >= since && w.stored();
            let ours: Vec<&Write> = writes.iter().filter(of_it).collect();
            let steps: Vec<&&Write> = ours.iter().filter(|w| w.resource == "deployments/scale").collect();
            let signalled = ours.iter().any(|w| w.credential == dead && w.target() == u64::try_from(to).ok());
            tally.between += usize::from(signalled && steps.iter().all(|w| w.credential != dead));
            tally.not_once += usize::from(steps.len() != 1);
            if to > 0 {
                let up = served.lane.history().first_since(began, |replicas| replicas > 0);
                tally.waits.extend(up.map(|at| at.duration_since(began)));
            }
            served.lane.picker.queue(&served.model, 0.0);
        }
        self.replicas.wait_ready(&BOTH).await
    }

    /// Stops the leader, so that another takes over.
    async fn leader_ends(&mut self) -> anyhow::Result<()> {
        let leader = self.leader().await?;
        self.replicas.terminate(leader)?;
        self.replicas.ended(leader).await?;
        self.replicas.start(leader).await?;
        self.replicas.wait_ready(&BOTH).await?;
        self.leader().await?;
        tokio::time::sleep(SETTLES).await;
        Ok(())
    }

    async fn leader(&self) -> anyhow::Result<usize> {
        eventually("one leader", SOON, async || {
            let mut leaders = Vec::new();
            for index in BOTH {
                leaders.extend((self.replicas.leads(index).await? == Some(true)).then_some(index));
            }
            ensure!(leaders.len() == 1, "{leaders:?} report that they lead");
            Ok(leaders[0])
        })
        .await
    }

    async fn all_have(&self, replicas: i32) -> anyhow::Result<()> {
        eventually(&format!("all models to have {replicas} replicas"), SOON, async || {
            for served in &self.served {
                let now = served.lane.history().now();
                ensure!(now == Some(replicas), "{} has {now:?}", served.lane.namespace());
            }
            Ok(())
        })
        .await
    }
}

/// Follows the targets of all variants.
fn follow_targets(testbed: &Testbed) -> anyhow::Result<(JoinSet<()>, Signals)> {
    let variants: Api<VariantAutoscaling> = Api::all(testbed.admin()?);
    let (sender, receiver) = watch::channel(BTreeMap::new());
    let watching = follow(variants, move |variant| {
        let allocation = variant.status.and_then(|status| status.desired_optimized_alloc);
        if let Some((namespace, allocation)) = variant.metadata.namespace.zip(allocation) {
            sender.send_modify(|all| {
                all.insert(namespace, allocation.num_replicas);
            });
        }
    });
    Ok((watching, receiver))
}
