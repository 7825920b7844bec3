//! What a person would see of the variants of a namespace, told whenever it changes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{find_condition, list_objects, target};
use wva_testbed::{Testbed, eventually};

/// Characters of a reason that are told: the figures that matter come first.
const WIDTH: usize = 72;

/// One variant and its workload, as the API server has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `spec.replicas` of the workload.
    pub(crate) current: u64,
    /// Its ready replicas.
    pub(crate) ready: u64,
    /// The target; `None` where there is none.
    pub(crate) target: Option<u64>,
    /// Reason of the condition `Ready`.
    pub(crate) reason: String,
    /// Message of the condition `OptimizationReady`.
    pub(crate) why: String,
}

impl Seen {
    fn of(variant: &Value, deployment: Option<&Value>) -> Self {
        let number =
            |path: &str| deployment.and_then(|d| d.pointer(path)).and_then(Value::as_u64).unwrap_or(0);
        let condition = |kind: &str, field: &str| {
            let text = find_condition(variant, kind).ok().and_then(|condition| condition[field].as_str());
            text.unwrap_or_default().to_owned()
        };
        Self {
            current: number("/spec/replicas"),
            ready: number("/status/readyReplicas"),
            target: target(variant),
            reason: condition("Ready", "reason"),
            why: condition("OptimizationReady", "message"),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { current, ready, reason, .. } = self;
        let target = self.target.map_or("-".to_owned(), |t| t.to_string());
        let (why, more) = match self.why.char_indices().nth(WIDTH) {
            Some((end, _)) => (&self.why[..end], " ..."),
            None => (self.why.as_str(), ""),
        };
        write!(f, "current {current}, ready {ready}, target {target}, {reason}; {why}{more}")
    }
}

/// The variants of one namespace.
pub(crate) struct Timeline<'a> {
    testbed: &'a Testbed,
    namespace: &'a str,
    began: Instant,
    last: BTreeMap<String, Seen>,
}

impl<'a> Timeline<'a> {
    /// Begins now.
    pub(crate) fn begin(testbed: &'a Testbed, namespace: &'a str) -> Self {
        Self { testbed, namespace, began: Instant::now(), last: BTreeMap::new() }
    }

    /// Time since it began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Tells what is done to the cluster.
    pub(crate) fn note(&self, what: &str) {
        println!("{:>6.1} s  -- {what}", self.elapsed().as_secs_f64());
    }

    /// The variants as they were last seen, by name.
    pub(crate) fn last(&self) -> &BTreeMap<String, Seen> {
        &self.last
    }

    /// Waits until something holds of the variants by name, telling each change on the way; how long it took.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        deadline: Duration,
        mut holds: impl FnMut(&BTreeMap<String, Seen>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Duration> {
        let began = Instant::now();
        eventually(what, deadline, async || {
            self.look().await?;
            holds(&self.last)
        })
        .await?;
        Ok(began.elapsed())
    }

    /// Looks, and tells what has changed.
    async fn look(&mut self) -> anyhow::Result<()> {
        let variants =
            list_objects(self.testbed, "apis/llmd.ai/v1alpha1", self.namespace, "variantautoscalings")
                .await?;
        let deployments = list_objects(self.testbed, "apis/apps/v1", self.namespace, "deployments").await?;
        for variant in &variants {
            let name = variant["metadata"]["name"].as_str().unwrap_or_default();
            let now = Seen::of(variant, deployments.iter().find(|d| d["metadata"]["name"] == name));
            if self.last.get(name).is_none_or(|last| *last != now) {
                println!("{:>6.1} s  {name}: {now}", self.elapsed().as_secs_f64());
            }
            self.last.insert(name.to_owned(), now);
        }
        Ok(())
    }
}
