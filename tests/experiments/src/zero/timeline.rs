//! One turn of one model down to zero and up again, as a person would see it: what the variant, its workload, its HPA and
//! its pods say, and the events, each with the time since the request that began it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::{Fleet, FleetConfig, Testbed, eventually};

use super::lane::{map, serve_picker};
use super::say;

/// Longest wait for what takes seconds.
const SOON: Duration = Duration::from_mins(2);
/// The request that the turn begins with.
const REQUEST: Duration = Duration::from_secs(3);

/// What is looked at, and said when it changes.
struct Watched<'a> {
    testbed: &'a Testbed,
    namespace: &'a str,
    began: Instant,
    last: String,
    events: BTreeSet<String>,
}

/// Runs the turn and prints what happens.
pub(super) async fn one_turn(testbed: &Testbed) -> anyhow::Result<()> {
    let namespace = testbed.namespace("turn").await?;
    let fixture = VariantFixture::new(&namespace, "a");
    let config = FleetConfig::new(&namespace, &format!("{MODEL_LABEL}=served"), &fixture.model);
    let fleet = Fleet::start(testbed, config)?;
    testbed.apply(&map(&namespace)).await?;
    let _picker = serve_picker(testbed, &namespace).await?;
    testbed.apply(&fixture.port(fleet.port()).all()).await?;
    fleet.wait_ready(1, SOON).await?;
    let (began, events) = (Instant::now(), BTreeSet::new());
    let mut watched = Watched { testbed, namespace: &namespace, began, last: String::new(), events };
    watched.note(&format!("a request that runs for {} s", REQUEST.as_secs()))?;
    fleet.send(REQUEST);
    watched.until("target 0 replicas 0 ready 0 HPA False/ScalingDisabled").await?;
    say(&testbed.kubectl(&["describe", "hpa/a", "-n", &namespace]).await?.success()?)?;
    watched.note("a request that finds no replica, and kubectl scale --replicas=1")?;
    fleet.send(REQUEST);
    testbed.kubectl(&["scale", "deployment/a", "-n", &namespace, "--replicas=1"]).await?.success()?;
    watched.until("target 1 replicas 1 ready 1 HPA True/ValidMetricFound").await?;
    say(&testbed.kubectl(&["describe", "hpa/a", "-n", &namespace]).await?.success()?)
}

impl Watched<'_> {
    fn note(&self, what: &str) -> anyhow::Result<()> {
        say(&format!("{:>6.1} s  {what}", self.began.elapsed().as_secs_f64()))
    }

    /// Looks until the state is this one.
    async fn until(&mut self, wanted: &str) -> anyhow::Result<()> {
        eventually(wanted, SOON, async || {
            self.look().await?;
            ensure!(self.last.starts_with(wanted), "{}", self.last);
            Ok(())
        })
        .await
    }

    async fn look(&mut self) -> anyhow::Result<()> {
        let args = ["get", "va,deploy,hpa,events", "-n", self.namespace, "-o", "json"];
        let list: Value = serde_json::from_str(&self.testbed.kubectl(&args).await?.success()?)?;
        let items = list["items"].as_array().context("a list without items")?;
        let one = |kind: &str| items.iter().find(|i| i["kind"] == kind).cloned().unwrap_or_default();
        let (va, workload, hpa) =
            (one("VariantAutoscaling"), one("Deployment"), one("HorizontalPodAutoscaler"));
        let number = |object: &Value, path: &str| {
            object.pointer(path).and_then(Value::as_i64).map_or_else(|| "0".to_owned(), |n| n.to_string())
        };
        let condition = |object: &Value, kind: &str, field: &str| {
            let all = object.pointer("/status/conditions").and_then(Value::as_array);
            let found = all.and_then(|c| c.iter().find(|c| c["type"] == kind));
            found.and_then(|c| c[field].as_str()).unwrap_or("-").to_owned()
        };
        let now = format!(
            "target {} replicas {} ready {} HPA {}/{} VA {}",
            number(&va, "/status/desiredOptimizedAlloc/numReplicas"),
            number(&workload, "/spec/replicas"),
            number(&workload, "/status/readyReplicas"),
            condition(&hpa, "ScalingActive", "status"),
            condition(&hpa, "ScalingActive", "reason"),
            condition(&va, "OptimizationReady", "reason"),
        );
        if now != self.last {
            self.note(&now)?;
            self.last = now;
        }
        for event in items.iter().filter(|i| i["kind"] == "Event") {
            let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let (kind, reason) = (text("/involvedObject/kind"), text("/reason"));
            if kind != "Pod" && kind != "ReplicaSet" && self.events.insert(text("/metadata/uid").to_owned()) {
                self.note(&format!("    event {kind} {reason}: {}", text("/message")))?;
            }
        }
        Ok(())
    }
}
