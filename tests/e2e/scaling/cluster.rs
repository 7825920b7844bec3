//! One model with two variants: a cheap one on A100s, of which others hold most, and a dear one on H100s, of which there
//! are plenty.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::timeline::{Seen, Timeline};
use crate::support::{DEADLINE, events, fleet_config, list_objects};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Fleet, FleetConfig, NodeGroup, Options, Testbed, eventually};

/// Longest wait for what takes seconds.
pub(super) const SOON: Duration = DEADLINE;
/// Requests a second that a replica bears with most of its KV cache spare.
const QUIET: f64 = 2.5;
/// Requests a second at which a replica has less KV cache spare than it should.
const BUSY: f64 = 8.75;

/// A control plane with both variants at rest.
pub(super) struct Scarce {
    // In this order they are dropped, so that each ends before what it stands on.
    fleet: Fleet,
    _install: Install,
    pub(super) testbed: Testbed,
    pub(super) namespace: String,
}

/// A workload of somebody else that holds 2 of the 3 A100s.
fn others(namespace: &str) -> String {
    let others = VariantFixture::new(namespace, "others").on_a100().replicas(2).deployment();
    // No servers of the model.
    others.replace(": served}", ": others}")
}

impl Scarce {
    /// Starts everything.
    pub(super) async fn start(name: &str, wva: &Path, env: &[(&str, &str)]) -> anyhow::Result<Self> {
        let nodes = vec![
            NodeGroup { gpus: 3, ..NodeGroup::of("a100", 1, "NVIDIA-A100-SXM4-80GB") },
            NodeGroup::of("h100", 2, "NVIDIA-H100-80GB-HBM3"),
        ];
        let testbed = Testbed::start(Options { name: name.to_owned(), nodes, ..Options::default() }).await?;
        let mut options = InstallOptions::quick(wva);
        options.env.extend(env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let install = Install::start(&testbed, &options).await?;
        let namespace = testbed.namespace(name).await?;
        testbed.apply(&others(&namespace)).await?;
        let hold = ["rollout", "status", "deployment/others", "-n", &namespace, "--timeout=150s"];
        testbed.kubectl(&hold).await?.success()?;
        let cheap = VariantFixture::new(&namespace, "cheap").on_a100().cost("40.0");
        let dear = VariantFixture::new(&namespace, "dear").cost("80.0");
        let fleet = Fleet::start(&testbed, FleetConfig { rate: 2.0 * QUIET, ..served(&namespace) })?;
        for variant in [&cheap, &dear] {
            testbed.apply(&variant.all()).await?;
        }
        Ok(Self { fleet, _install: install, testbed, namespace })
    }

    /// Waits until both variants are measured, and are content with one replica.
    pub(super) async fn rests(&self, timeline: &mut Timeline<'_>) -> anyhow::Result<()> {
        let rest = timeline.until("both variants to be at rest", SOON, |now| {
            for name in ["cheap", "dear"] {
                let seen = of(now, name)?;
                ensure!(
                    (seen.target, seen.ready) == (Some(1), 1) && seen.reason == "Ready",
                    "{name}: {seen}"
                );
            }
            Ok(())
        });
        rest.await.map(|_| ())
    }

    /// Has so much load come in that this many ready replicas are not enough.
    pub(super) fn load(&self, timeline: &Timeline<'_>, replicas: u64) {
        let rate = BUSY * f64::from(u32::try_from(replicas).unwrap_or(u32::MAX));
        timeline.note(&format!("{rate} requests/s come in, too many for {replicas} replicas"));
        self.fleet.set_rate(rate);
    }

    /// Frees the GPUs that others hold.
    pub(super) async fn free(&self) -> anyhow::Result<()> {
        let scale = ["scale", "deployment/others", "-n", &self.namespace, "--replicas=0"];
        self.testbed.kubectl(&scale).await?.success().map(|_| ())
    }

    /// Time from the creation of a variant's oldest pod without a node to the decision that the event `Stuck` tells of.
    /// The API server cuts the time of a creation to a whole second.
    pub(super) async fn pending_until_stuck(&self, variant: &str) -> anyhow::Result<Duration> {
        let event = self.until_told(variant, "Stuck").await?;
        let time = |value: &Value| anyhow::Ok(value.as_str().context("no time")?.parse::<Timestamp>()?);
        let pods = list_objects(&self.testbed, "api/v1", &self.namespace, "pods").await?;
        let own = |pod: &&Value| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with(&format!("{variant}-")) && pod["spec"]["nodeName"].is_null()
        };
        let created = pods.iter().filter(own).map(|pod| time(&pod["metadata"]["creationTimestamp"]));
        let created =
            created.collect::<anyhow::Result<Vec<_>>>()?.into_iter().min().context("no such pod")?;
        Ok(Duration::try_from(time(&event["eventTime"])?.duration_since(created))?)
    }

    /// Waits for an event of this reason about a variant.
    pub(super) async fn until_told(&self, variant: &str, reason: &str) -> anyhow::Result<Value> {
        eventually(&format!("the event {reason} of {variant}"), SOON, async || {
            let events = events(&self.testbed, &self.namespace, reason).await?;
            let told = events.iter().find(|event| event["involvedObject"]["name"] == variant);
            told.cloned().with_context(|| format!("{events:?}"))
        })
        .await
    }
}

/// Ready replicas of the model.
pub(super) fn ready(now: &BTreeMap<String, Seen>) -> u64 {
    now.values().map(|seen| seen.ready).sum()
}

/// One of the variants.
pub(super) fn of<'a>(now: &'a BTreeMap<String, Seen>, name: &str) -> anyhow::Result<&'a Seen> {
    now.get(name).with_context(|| format!("there is no {name} yet"))
}
