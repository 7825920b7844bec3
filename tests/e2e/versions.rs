//! Two versions of the program side by side, as in a rolling upgrade and in the rollback after it: one leads at a time,
//! targets and replicas stay, and no version touches the `controllerState` of a later one.
//! `WVA_PREVIOUS` is the program of an earlier commit, which `make test-versions` builds.
//! Why a control plane of its own: the audit log shows which version wrote, and only one release may lead.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;
use wva_testbed::audit::Audit;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::Replicas;
use wva_testbed::{Fleet, Options, Testbed, eventually};

use crate::operations::churn::{Churn, NAME as CHURN};
use crate::support::{DEADLINE, get_object, patch_status, program_path, saturation_map, target};

/// Replicas in the order of their starts: the earlier version, this one, and the earlier one again.
const EARLIER: usize = 0;
const THIS: usize = 1;
const ROLLED_BACK: usize = 2;

const NAME: &str = "llama";
/// Replicas that the load needs: it uses 60 % of the caches of 3, which would be 90 % of those of 2.
const REPLICAS: u32 = 3;
const USAGE: f64 = 0.6;
/// Status writes that a leader must have made before the next one starts.
const WRITES: usize = 4;
/// Between two looks at the objects.
const LOOKS: Duration = Duration::from_millis(300);

/// A state as a later release might write it. The reason is unknown to this one.
fn later_state() -> Value {
    json!({"version": 1_000_000, "problems": ["Melted"], "waking": false})
}

/// A release whose replicas are of two versions, with load on one variant and work on another.
struct Site<'a> {
    replicas: Replicas<'a>,
    namespace: String,
    churn: String,
}

impl Site<'_> {
    fn testbed(&self) -> &Testbed {
        self.replicas.testbed()
    }

    /// Target, replicas of the Deployment, and state of the variant under load.
    async fn look(&self) -> anyhow::Result<(Option<u64>, u64, Value)> {
        let va = get_object(self.testbed(), &["va", NAME, "-n", &self.namespace]).await?;
        let deployment = get_object(self.testbed(), &["deployment", NAME, "-n", &self.namespace]).await?;
        let replicas = deployment["spec"]["replicas"].as_u64().context("no replicas")?;
        Ok((target(&va), replicas, va["status"]["controllerState"].clone()))
    }

    /// State of the variant whose status changes all the time.
    async fn churned_state(&self) -> anyhow::Result<Value> {
        let va = get_object(self.testbed(), &["va", CHURN, "-n", &self.churn]).await?;
        Ok(va["status"]["controllerState"].clone())
    }

    /// Counts the statuses that a replica has written.
    fn statuses(&self, index: usize) -> anyhow::Result<usize> {
        let credential = self.replicas.credential(index)?;
        let all = self.testbed().audit()?;
        let by_it = all.iter().filter(|write| write.credential == credential && write.stored());
        Ok(by_it.filter(|write| write.resource == "variantautoscalings/status").count())
    }

    /// Waits until this one of the running replicas leads and has written more statuses, and looks at the objects
    /// meanwhile. At most one leads.
    async fn until_leads(
        &self,
        index: usize,
        running: &[usize],
        seen: &mut Observations,
    ) -> anyhow::Result<()> {
        let (began, wanted) = (Instant::now(), self.statuses(index)? + WRITES);
        loop {
            let mut leaders = Vec::new();
            for &replica in running {
                leaders.extend((self.replicas.leads(replica).await? == Some(true)).then_some(replica));
            }
            ensure!(leaders.len() <= 1, "{leaders:?} lead at once");
            seen.add(self).await?;
            let written = self.statuses(index)?;
            if leaders == [index] && written >= wanted {
                return Ok(());
            }
            let evidence = || format!("{leaders:?} lead; {}", self.replicas.evidence());
            ensure!(
                began.elapsed() < DEADLINE,
                "wva-{index} wrote {written} of {wanted} statuses: {}",
                evidence()
            );
            sleep(LOOKS).await;
        }
    }
}

/// Everything that was seen of the objects since their targets settled.
#[derive(Default)]
struct Observations {
    looks: usize,
    states: BTreeSet<String>,
}

impl Observations {
    async fn add(&mut self, site: &Site<'_>) -> anyhow::Result<()> {
        let (target, replicas, state) = site.look().await?;
        let churned = site.churned_state().await?;
        self.looks += 1;
        self.states.insert(format!("target {target:?}, {replicas} replicas, {state}, and {churned}"));
        Ok(())
    }
}

async fn settle(site: &Site<'_>) -> anyhow::Result<()> {
    eventually("the target to fit the load", DEADLINE, async || {
        let (target, replicas, _) = site.look().await?;
        ensure!(
            target == Some(REPLICAS.into()) && replicas == u64::from(REPLICAS),
            "target {target:?}, {replicas} replicas"
        );
        Ok(())
    })
    .await?;
    for (namespace, name) in [(&site.namespace, NAME), (&site.churn, CHURN)] {
        patch_status(site.testbed(), namespace, name, &json!({"controllerState": later_state()})).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-versions"]
async fn two_versions_agree_during_upgrade_and_rollback() -> anyhow::Result<()> {
    let this = program_path();
    let earlier = std::env::var_os("WVA_PREVIOUS").map_or_else(|| this.clone(), PathBuf::from);
    let options = Options { name: "versions".to_owned(), audit: Audit::Writes, ..Options::default() };
    let testbed = Testbed::start(options).await?;
    let mut replicas = Replicas::install(&testbed, InstallOptions::quick(&this), "sides").await?;
    for index in [EARLIER, ROLLED_BACK] {
        replicas.set_program(index, &earlier).await?;
    }
    let (namespace, churn) = (replicas.namespace().to_owned(), testbed.namespace("churn").await?);
    let mut site = Site { replicas, namespace, churn };
    site.replicas.start(EARLIER).await?;
    site.replicas.wait_ready(&[EARLIER]).await?;
    site.replicas.wait_webhooks().await?;

    let fixture = VariantFixture::new(&site.namespace, NAME).replicas(REPLICAS);
    let load = Fleet::start(&testbed, fixture.fleet())?;
    load.set_fixed_all(USAGE, 0.0);
    testbed.apply(&saturation_map(&site.namespace, "analyzerName: percentage")).await?;
    testbed.apply(&fixture.all()).await?;
    let _churn = Churn::start(&testbed, &site.churn).await?;
    settle(&site).await?;

    let mut seen = Observations::default();
    seen.add(&site).await?;
    for (old, new) in [(EARLIER, THIS), (THIS, ROLLED_BACK)] {
        site.replicas.start(new).await?;
        site.replicas.wait_ready(&[new]).await?;
        // Both run for a while.
        site.until_leads(old, &[old, new], &mut seen).await?;
        site.replicas.terminate(old)?;
        let status = site.replicas.ended(old).await?;
        ensure!(status.success(), "wva-{old} ended with {status}");
        site.until_leads(new, &[new], &mut seen).await?;
    }
    ensure!(seen.states.len() == 1, "objects changed: {:#?}", seen.states);
    let state = seen.states.first().context("nothing was seen")?;
    ensure!(state.matches("Melted").count() == 2, "the later state is gone: {state}");
    println!("{} looks, all alike", seen.looks);
    Ok(())
}
