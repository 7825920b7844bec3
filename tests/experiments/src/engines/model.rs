//! A model whose pods are kwok's, and whose metrics come from real servers; and what wva makes of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use wva_objects::servers::{MODEL_SERVERS, ServerSignal};
use wva_scaling::Snapshot;
use wva_scaling::snapshot::Replica;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture, saturation_map};
use wva_testbed::install::{Install, get};
use wva_testbed::{Testbed, eventually};

use super::load::SentRequest;
use super::server::{EngineServer, MODEL};
use crate::command::SOON;
use crate::learned::{self, LearnedDecision};

/// Name of the variant and its Deployment.
const NAME: &str = "tiny";
/// Steps in which wva counts arrivals.
pub(super) const STEP: Duration = Duration::from_secs(15);

/// A model in a namespace of its own.
pub(super) struct Model<'a> {
    testbed: &'a Testbed,
    install: &'a Install,
    namespace: String,
    /// Server of each pod, by the pod's name.
    pub(super) pods: BTreeMap<String, &'a EngineServer>,
}

impl<'a> Model<'a> {
    /// Deploys a pod for each server. Nothing follows the target, so that the servers stay what they are.
    pub(super) async fn deploy(
        testbed: &'a Testbed,
        install: &'a Install,
        servers: &[&'a EngineServer],
        engines: u32,
        entry: &str,
    ) -> anyhow::Result<Self> {
        let namespace = testbed.namespace("engines").await?;
        testbed.apply(&saturation_map(&namespace, entry)).await?;
        let fixture = VariantFixture { model: MODEL.to_owned(), ..VariantFixture::new(&namespace, NAME) }
            .replicas(u32::try_from(servers.len())?);
        let mut deployment: Value = serde_saphyr::from_str(&fixture.deployment())?;
        deployment["spec"]["template"]["spec"]["containers"][0]["args"] = json!(EngineServer::args(engines));
        testbed.apply(&[deployment.to_string(), fixture.variant()].join("\n---\n")).await?;
        let pods = Api::<Pod>::namespaced(testbed.admin()?, &namespace);
        let names = eventually("the pods to exist", SOON, async || {
            let found = pods.list(&ListParams::default().labels(&format!("{MODEL_LABEL}=served"))).await?;
            let names: Vec<String> = found.items.into_iter().filter_map(|pod| pod.metadata.name).collect();
            ensure!(names.len() == servers.len(), "{names:?}");
            Ok(names)
        })
        .await?;
        let pods: BTreeMap<String, &EngineServer> = names.into_iter().zip(servers.iter().copied()).collect();
        let targets = pods.iter().map(|(pod, server)| {
            let labels = json!({"namespace": namespace, "pod": pod, "container": "vllm", "job": "vllm"});
            json!({"targets": [server.address()], "labels": labels})
        });
        testbed.scrape_targets(&namespace, &targets.collect())?;
        Ok(Self { testbed, install, namespace, pods })
    }

    /// Ends the scrapes and removes the variant.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        self.testbed.scrape_targets(&self.namespace, &json!([]))?;
        self.testbed
            .kubectl(&["delete", "namespace", &self.namespace, "--wait=false"])
            .await?
            .success()
            .map(drop)
    }

    async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let (status, text) = get(&format!("http://{}/snapshot", self.install.address("debug")?)).await?;
        ensure!(status == 200, "/snapshot answered {status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// Replicas in the newest snapshot, which must all report.
    pub(super) async fn replicas(&self) -> anyhow::Result<Vec<Replica>> {
        let of_model =
            |snapshot: Snapshot| snapshot.models.into_iter().find(|m| m.namespace == self.namespace);
        let model = of_model(self.snapshot().await?).context("the model is not in the snapshot")?;
        let replicas: Vec<Replica> =
            model.variants.into_iter().flat_map(|variant| variant.replicas).collect();
        ensure!(
            replicas.len() == self.pods.len(),
            "{} of {} replicas report",
            replicas.len(),
            self.pods.len()
        );
        Ok(replicas)
    }

    async fn decision(&self) -> anyhow::Result<Option<LearnedDecision>> {
        learned::read(self.install.address("debug")?, &self.namespace, NAME).await
    }

    /// Runs `work`, and looks at the servers and at the decision each second.
    pub(super) async fn watch<T>(
        &self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<(T, Vec<Observation>)> {
        let mut looks = Vec::new();
        let looking = async {
            let mut every = tokio::time::interval(Duration::from_secs(1));
            loop {
                every.tick().await;
                looks.extend(self.look().await?);
            }
        };
        let done = tokio::select! {
            done = work => done?,
            failed = looking => return failed,
        };
        Ok((done, looks))
    }

    /// `None` before the first decision.
    async fn look(&self) -> anyhow::Result<Option<Observation>> {
        let mut waiting = 0.0;
        for server in self.pods.values() {
            waiting += sum(&server.page().await?, "vllm:num_requests_waiting");
        }
        let decision = self.decision().await?;
        Ok(decision.map(|decision| Observation { at: Instant::now(), waiting, decision }))
    }

    /// Requests that arrived between both moments, as wva counts them and as they were sent. Includes the step in which
    /// the first moment lies.
    pub(super) async fn arrivals(
        &self,
        from: Instant,
        to: Instant,
        sent: &[SentRequest],
    ) -> anyhow::Result<Arrivals> {
        let (clock, timestamp) = (Instant::now(), Timestamp::now());
        let snapshot = self.snapshot().await?;
        let now: Timestamp = snapshot.now.context("a snapshot without its time")?.parse()?;
        let memory = snapshot.learned.iter().find(|memory| memory.namespace == self.namespace);
        let memory = memory.context("no arrivals were counted")?;
        let age = Duration::try_from(timestamp.duration_since(now)).unwrap_or_default() + memory.age.get();
        let mut end = clock.checked_sub(age).context("a step before the start of the machine")?;
        let mut arrivals = Arrivals { counted: 0.0, sent: 0, span: Duration::ZERO };
        for step in memory.arrivals.iter().rev() {
            let Some(begin) = end.checked_sub(STEP) else { break };
            if end > from && end <= to {
                arrivals.counted += step.get();
                arrivals.sent +=
                    sent.iter().filter(|request| request.at >= begin && request.at < end).count();
                arrivals.span += STEP;
            }
            end = begin;
        }
        ensure!(!arrivals.span.is_zero(), "no whole step lies between the moments");
        Ok(arrivals)
    }
}

/// Servers and decision at a moment.
pub(super) struct Observation {
    pub(super) at: Instant,
    /// Waiting requests.
    pub(super) waiting: f64,
    pub(super) decision: LearnedDecision,
}

/// Requests of some whole steps.
pub(super) struct Arrivals {
    pub(super) counted: f64,
    pub(super) sent: usize,
    pub(super) span: Duration,
}

impl Arrivals {
    /// Relative error of the count.
    #[expect(clippy::cast_precision_loss, reason = "some hundred requests")]
    pub(super) fn error(&self) -> f64 {
        self.counted / self.sent.max(1) as f64 - 1.0
    }
}

/// Signals of vLLM that a metrics page does not have under any name.
pub(super) fn missing_signals(page: &str) -> Vec<ServerSignal> {
    let has = |name: &str| {
        page.lines().any(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| ["{", " ", "_bucket{"].iter().any(|begin| rest.starts_with(begin)))
        })
    };
    let [vllm, ..] = &MODEL_SERVERS;
    let is_missing =
        |metrics: &[wva_objects::servers::ServerMetric]| !metrics.iter().any(|metric| has(metric.name));
    vllm.signals.iter().filter(|(_, metrics)| is_missing(metrics)).map(|(signal, _)| *signal).collect()
}

/// Sum of the series of a metrics page with this name.
fn sum(page: &str, name: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        rest.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    page.lines().filter_map(value).sum()
}
