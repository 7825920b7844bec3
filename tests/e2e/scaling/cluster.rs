//! One model with two variants: a cheap one on A100s, most of which are taken, and an expensive one on H100s.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::timeline::{Timeline, VariantState};
use crate::support::{DEADLINE, events, fleet_config, list_objects};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Fleet, FleetConfig, NodeGroup, Options, Testbed, eventually};

/// Longest wait for what takes seconds.
pub(super) const SOON: Duration = DEADLINE;
/// Requests/s at which a replica has most of its KV cache spare.
pub(super) const QUIET: f64 = 2.5;
/// Requests/s at which a replica has too little KV cache spare.
pub(super) const BUSY: f64 = 8.75;

/// A control plane with both variants at rest.
pub(super) struct GpuShortage {
    // Dropped in this order: each ends before the one that it depends on.
    fleet: Fleet,
    _install: Install,
    pub(super) testbed: Testbed,
    pub(super) namespace: String,
}

/// A workload of another owner that takes 2 of the 3 A100s.
pub(super) fn other_workload(namespace: &str) -> String {
    let others = VariantFixture::new(namespace, "others").on_a100().replicas(2).deployment();
    // Its pods do not serve the model.
    others.replace(": served}", ": others}")
}

impl GpuShortage {
    /// Starts control plane, program, workloads and fleet.
    pub(super) async fn start(name: &str, wva: &Path, env: &[(&str, &str)]) -> anyhow::Result<Self> {
        let nodes = vec![
            NodeGroup { gpus: 3, ..NodeGroup::new("a100", 1, "NVIDIA-A100-SXM4-80GB") },
            NodeGroup::new("h100", 2, "NVIDIA-H100-80GB-HBM3"),
        ];
        let testbed = Testbed::start(Options { name: name.to_owned(), nodes, ..Options::default() }).await?;
        let install = Install::start(&testbed, &InstallOptions::quick(wva).with(env)).await?;
        let namespace = testbed.namespace(name).await?;
        testbed.apply(&other_workload(&namespace)).await?;
        let hold = ["rollout", "status", "deployment/others", "-n", &namespace, "--timeout=150s"];
        testbed.kubectl(&hold).await?.success()?;
        let cheap = VariantFixture::new(&namespace, "cheap").on_a100().cost("40.0");
        let expensive = VariantFixture::new(&namespace, "expensive").cost("80.0");
        let fleet = Fleet::start(&testbed, FleetConfig { rate: 2.0 * QUIET, ..fleet_config(&namespace) })?;
        for variant in [&cheap, &expensive] {
            testbed.apply(&variant.all()).await?;
        }
        Ok(Self { fleet, _install: install, testbed, namespace })
    }

    /// Keeps the load above the capacity of the ready replicas until `holds` succeeds. Returns how long it took.
    /// Why it follows them: one that was on its way takes its share, and then nothing grows. Why it rises, by [`BUSY`] each
    /// minute: a replica whose throughput is learned may serve more than that.
    pub(super) async fn overload_until(
        &self,
        timeline: &mut Timeline<'_>,
        what: &str,
        mut holds: impl FnMut(&BTreeMap<String, VariantState>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Duration> {
        timeline.note("more requests come in than the ready replicas can serve");
        let began = Instant::now();
        let overload = |now: &BTreeMap<String, VariantState>| {
            let ready: u64 = now.values().map(|state| state.ready).sum();
            let of_each = BUSY * (1.0 + began.elapsed().as_secs_f64() / 60.0);
            self.fleet.set_rate(of_each * f64::from(u32::try_from(ready).unwrap_or(u32::MAX)));
        };
        timeline.until(what, SOON, |now| holds(now).inspect_err(|_| overload(now))).await
    }

    /// Frees the GPUs of the other workload.
    pub(super) async fn free_gpus(&self) -> anyhow::Result<()> {
        let scale = ["scale", "deployment/others", "-n", &self.namespace, "--replicas=0"];
        self.testbed.kubectl(&scale).await?.success().map(|_| ())
    }

    /// Time from the creation of the oldest unscheduled pod of a variant to the decision that caused the event `Stuck`.
    /// The API server truncates the creation time to whole seconds.
    pub(super) async fn pending_until_stuck(&self, variant: &str) -> anyhow::Result<Duration> {
        let event = self.wait_for_event(variant, "Stuck").await?;
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
    pub(super) async fn wait_for_event(&self, variant: &str, reason: &str) -> anyhow::Result<Value> {
        eventually(&format!("the event {reason} of {variant}"), SOON, async || {
            let events = events(&self.testbed, &self.namespace, reason).await?;
            let found = events.iter().find(|event| event["involvedObject"]["name"] == variant);
            found.cloned().with_context(|| format!("{events:?}"))
        })
        .await
    }
}

/// Waits until these variants have metrics and one ready replica each.
pub(super) async fn wait_for_rest(timeline: &mut Timeline<'_>, names: &[&str]) -> anyhow::Result<()> {
    let rest = timeline.until("the variants to be at rest", SOON, |now| {
        for name in names {
            let state = variant(now, name)?;
            ensure!(
                (state.target, state.ready) == (Some(1), 1) && state.reason == "Ready",
                "{name}: {state}"
            );
        }
        Ok(())
    });
    rest.await.map(|_| ())
}

/// Finds one of the variants.
pub(super) fn variant<'a>(
    now: &'a BTreeMap<String, VariantState>,
    name: &str,
) -> anyhow::Result<&'a VariantState> {
    now.get(name).with_context(|| format!("there is no {name} yet"))
}
