//! Timeline of the variants of a namespace: each change is printed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{find_condition, list_objects, target};
use wva_testbed::{Testbed, eventually};

/// Characters of a message that are printed: the important figures come first.
const WIDTH: usize = 72;

/// State of a variant and its workload in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VariantState {
    /// `spec.replicas` of the workload.
    pub(crate) current: u64,
    /// Its ready replicas.
    pub(crate) ready: u64,
    /// Target, if there is one.
    pub(crate) target: Option<u64>,
    /// Reason of the condition `Ready`.
    pub(crate) reason: String,
    /// Message of the condition `OptimizationReady`.
    pub(crate) message: String,
}

impl VariantState {
    fn new(variant: &Value, deployment: Option<&Value>) -> Self {
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
            message: condition("OptimizationReady", "message"),
        }
    }
}

impl fmt::Display for VariantState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { current, ready, reason, .. } = self;
        let target = self.target.map_or("-".to_owned(), |t| t.to_string());
        let (message, more) = match self.message.char_indices().nth(WIDTH) {
            Some((end, _)) => (&self.message[..end], " ..."),
            None => (self.message.as_str(), ""),
        };
        write!(f, "current {current}, ready {ready}, target {target}, {reason}; {message}{more}")
    }
}

/// The variants of one namespace.
pub(crate) struct Timeline<'a> {
    testbed: &'a Testbed,
    namespace: &'a str,
    started: Instant,
    last: BTreeMap<String, VariantState>,
}

impl<'a> Timeline<'a> {
    /// Starts the timeline now.
    pub(crate) fn start(testbed: &'a Testbed, namespace: &'a str) -> Self {
        Self { testbed, namespace, started: Instant::now(), last: BTreeMap::new() }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints an action of the test.
    pub(crate) fn note(&self, what: &str) {
        println!("{:>6.1} s  -- {what}", self.elapsed().as_secs_f64());
    }

    /// Latest states by name of the variant.
    pub(crate) fn last(&self) -> &BTreeMap<String, VariantState> {
        &self.last
    }

    /// Waits until `holds` succeeds, printing each change. Returns how long it took.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        deadline: Duration,
        mut holds: impl FnMut(&BTreeMap<String, VariantState>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Duration> {
        let started = Instant::now();
        eventually(what, deadline, async || {
            self.read().await?;
            holds(&self.last)
        })
        .await?;
        Ok(started.elapsed())
    }

    /// Reads the states and prints what has changed.
    async fn read(&mut self) -> anyhow::Result<()> {
        let variants =
            list_objects(self.testbed, "apis/llmd.ai/v1alpha1", self.namespace, "variantautoscalings")
                .await?;
        let deployments = list_objects(self.testbed, "apis/apps/v1", self.namespace, "deployments").await?;
        for variant in &variants {
            let name = variant["metadata"]["name"].as_str().unwrap_or_default();
            let now = VariantState::new(variant, deployments.iter().find(|d| d["metadata"]["name"] == name));
            if self.last.get(name).is_none_or(|last| *last != now) {
                println!("{:>6.1} s  {name}: {now}", self.elapsed().as_secs_f64());
            }
            self.last.insert(name.to_owned(), now);
        }
        Ok(())
    }
}
