//! One turn of one model to zero and back: state of variant, workload, HPA and pods, and events, each with the time
//! since the first request.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::{Testbed, eventually};

use super::lane::IdleModel;
use crate::command::{SOON, print_line};
use crate::variants::{objects, variants_of};

/// Duration of the first request.
const REQUEST: Duration = Duration::from_secs(3);

/// Polls the state and prints changes.
struct TimelineRecorder<'a> {
    testbed: &'a Testbed,
    namespace: &'a str,
    began: Instant,
    last: String,
    events: BTreeSet<String>,
}

/// Runs the turn and prints what happens.
pub(super) async fn one_turn(testbed: &Testbed) -> anyhow::Result<()> {
    let IdleModel { namespace, fleet, .. } = &IdleModel::start(testbed, "turn").await?;
    let (began, events) = (Instant::now(), BTreeSet::new());
    let mut recorder = TimelineRecorder { testbed, namespace, began, last: String::new(), events };
    recorder.note(&format!("a request that runs for {} s", REQUEST.as_secs()))?;
    fleet.send(REQUEST);
    recorder.until("target 0 replicas 0 ready 0 HPA False/ScalingDisabled").await?;
    print_line(&testbed.kubectl(&["describe", "hpa/a", "-n", namespace]).await?.success()?)?;
    recorder.note("a request that finds no replica, and kubectl scale --replicas=1")?;
    fleet.send(REQUEST);
    testbed.kubectl(&["scale", "deployment/a", "-n", namespace, "--replicas=1"]).await?.success()?;
    recorder.until("target 1 replicas 1 ready 1 HPA True/ValidMetricFound").await?;
    print_line(&testbed.kubectl(&["describe", "hpa/a", "-n", namespace]).await?.success()?)
}

impl TimelineRecorder<'_> {
    fn note(&self, what: &str) -> anyhow::Result<()> {
        print_line(&format!("{:>6.1} s  {what}", self.began.elapsed().as_secs_f64()))
    }

    /// Polls until the state begins with this text.
    async fn until(&mut self, wanted: &str) -> anyhow::Result<()> {
        eventually(wanted, SOON, async || {
            self.print_changes().await?;
            ensure!(self.last.starts_with(wanted), "{}", self.last);
            Ok(())
        })
        .await
    }

    async fn print_changes(&mut self) -> anyhow::Result<()> {
        let objects = objects(self.testbed, self.namespace, "va,deploy,hpa,events").await?;
        let seen = variants_of(&objects).pop().context("the variant is gone")?;
        let now = format!(
            "target {} replicas {} ready {} HPA {}/{} VA {}",
            seen.target.unwrap_or_default(),
            seen.replicas,
            seen.ready,
            seen.hpa_condition("ScalingActive", "status"),
            seen.hpa_condition("ScalingActive", "reason"),
            seen.condition("OptimizationReady", "reason"),
        );
        if now != self.last {
            self.note(&now)?;
            self.last = now;
        }
        for event in objects.iter().filter(|object| object["kind"] == "Event") {
            let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let (kind, reason) = (text("/involvedObject/kind"), text("/reason"));
            if kind != "Pod" && kind != "ReplicaSet" && self.events.insert(text("/metadata/uid").to_owned()) {
                self.note(&format!("    event {kind} {reason}: {}", text("/message")))?;
            }
        }
        Ok(())
    }
}
