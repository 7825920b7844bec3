//! One model that is asked now and then. Its workload is watched by this program itself, so that it is known to the
//! millisecond when replicas were taken and what ran then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::task::JoinHandle;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::picker::{FakePicker, pool};
use wva_testbed::{Fleet, FleetConfig, Request, Testbed, eventually};

use super::RETENTION;
use super::figures::Figures;

/// Longest wait for what takes seconds.
const SOON: Duration = Duration::from_mins(2);
/// Longest pause between two requests, after the end of the first.
const PAUSE: Duration = RETENTION.saturating_mul(3);
/// Longest request.
const LONGEST: Duration = RETENTION.saturating_mul(2);

/// Scale to zero for all models of a namespace.
pub(super) fn map(namespace: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: wva-model-scale-to-zero-config, namespace: {namespace}}}
data: {{default: \"enable_scale_to_zero: true\\nretention_period: {}s\\n\"}}
",
        RETENTION.as_secs()
    )
}

/// When a workload had how many replicas, since it is watched.
#[derive(Clone, Default)]
pub(super) struct History(Arc<Mutex<Vec<(Instant, i32)>>>);

impl History {
    pub(super) fn all(&self) -> MutexGuard<'_, Vec<(Instant, i32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_in(&self, deployment: &Deployment) {
        let replicas = deployment.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1);
        let mut all = self.all();
        if all.last().is_none_or(|(_, last)| *last != replicas) {
            all.push((Instant::now(), replicas));
        }
    }

    pub(super) fn now(&self) -> Option<i32> {
        self.all().last().map(|(_, replicas)| *replicas)
    }
}

/// One model.
pub(super) struct Lane<'a> {
    testbed: &'a Testbed,
    namespace: String,
    model: String,
    fleet: Fleet,
    /// A fake, without which the model would not go to zero.
    pub(super) picker: FakePicker,
    deployments: Api<Deployment>,
    history: History,
    watch: JoinHandle<anyhow::Result<()>>,
    random: u64,
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl<'a> Lane<'a> {
    /// A model with one replica.
    pub(super) async fn start(testbed: &'a Testbed, number: usize, seed: u64) -> anyhow::Result<Self> {
        let namespace = testbed.namespace("lane").await?;
        let fixture = VariantFixture::new(&namespace, "a");
        let config = FleetConfig::new(&namespace, &format!("{MODEL_LABEL}=served"), &fixture.model);
        let fleet = Fleet::start(testbed, config)?;
        testbed.apply(&map(&namespace)).await?;
        let picker = serve_picker(testbed, &namespace).await?;
        let model = fixture.model.clone();
        testbed.apply(&fixture.port(fleet.port()).all()).await?;
        let deployments: Api<Deployment> = Api::namespaced(testbed.admin()?, &namespace);
        let history = History::default();
        let watch = tokio::spawn(follow(deployments.clone(), history.clone()));
        let random = seed.wrapping_add(u64::try_from(number)?.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let lane = Self { testbed, namespace, model, fleet, picker, deployments, history, watch, random };
        lane.fleet.wait_ready(1, SOON).await?;
        Ok(lane)
    }

    /// Turns from one replica to none and back. Requests come at random: some before the period is over, some just when
    /// it is, some after.
    pub(super) async fn turns(&mut self, turns: usize) -> anyhow::Result<()> {
        let zeroed = |history: &History| history.all().iter().filter(|(_, replicas)| *replicas == 0).count();
        while zeroed(&self.history) < turns {
            let lasts = self.below(LONGEST);
            self.send(lasts);
            let what = format!("the request in {}", self.namespace);
            eventually(&what, SOON, async || {
                self.wake().await?;
                let all = self.fleet.requests();
                ensure!(all.iter().all(|r| r.ended.is_some()), "{:?}", all.last());
                Ok(())
            })
            .await?;
            let pause = self.below(PAUSE);
            tokio::time::sleep(pause).await;
        }
        self.is_up().await
    }

    /// Sends one request.
    pub(super) fn send(&self, lasts: Duration) {
        self.fleet.send(lasts);
    }

    /// Wakes the model where it is at 0, and waits until it serves.
    pub(super) async fn is_up(&mut self) -> anyhow::Result<()> {
        let what = format!("a ready pod in {}", self.namespace);
        eventually(&what, SOON, async || {
            self.wake().await?;
            ensure!(self.fleet.pods().len() == 1, "{} pods are ready", self.fleet.pods().len());
            Ok(())
        })
        .await
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// Does what an endpoint picker would have done, and a person does here.
    pub(super) async fn wake(&self) -> anyhow::Result<()> {
        if self.history.now() == Some(0) {
            let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
            self.deployments.patch_scale("a", &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    /// When it went to zero, if it did since.
    pub(super) fn went_to_zero_since(&self, since: Instant) -> Option<Instant> {
        let all = self.history.all();
        all.iter().find(|(at, replicas)| *at > since && *replicas == 0).map(|(at, _)| *at)
    }

    /// How long after a moment it goes to zero.
    pub(super) async fn to_zero_after(&self, since: Instant) -> anyhow::Result<Duration> {
        let what = format!("{} to go to zero", self.namespace);
        let at =
            eventually(&what, SOON + RETENTION, async || self.went_to_zero_since(since).context("it is up"));
        let at = at.await.with_context(|| self.testbed.logs().display().to_string())?;
        Ok(at.duration_since(since))
    }

    /// What became of its requests and replicas. `written` are the writes of `/scale` in its namespace.
    pub(super) fn figures(&self, written: &[Instant]) -> Figures {
        let (requests, history) = (self.fleet.requests(), self.history.all().clone());
        let mut figures = Figures {
            requests: requests.len(),
            longest: requests.iter().map(|r| r.lasts).max().unwrap_or_default(),
            ..Figures::default()
        };
        for (at, _) in history.iter().filter(|(_, replicas)| *replicas == 0) {
            figures.turns += 1;
            // When the API server received what was seen then.
            let write = written.iter().rfind(|written| *written <= at).unwrap_or(at);
            let under_way = |r: &&Request| r.sent < *at && r.ended.is_none_or(|ended| ended > *write);
            let (cut, late): (Vec<&Request>, Vec<&Request>) =
                requests.iter().filter(under_way).partition(|r| r.sent < *write);
            figures.cut.extend(cut.iter().map(|r| write.duration_since(r.sent)));
            figures.late += late.len();
            let ended = requests.iter().filter_map(|r| r.ended).filter(|ended| ended <= at).max();
            figures.idle.extend(ended.map(|ended| at.duration_since(ended)));
        }
        let at_zero = |when: Instant| {
            let last = history.iter().rfind(|(at, _)| *at <= when);
            last.is_some_and(|(_, replicas)| *replicas == 0)
        };
        let late = requests.iter().filter(|r| at_zero(r.sent));
        let waits = late.filter_map(|r| r.runs.as_ref().map(|(_, since)| since.duration_since(r.sent)));
        figures.waited.extend(waits);
        figures
    }

    /// A random time below a bound (splitmix64).
    fn below(&mut self, bound: Duration) -> Duration {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let share = u16::try_from((z ^ (z >> 31)) >> 48).unwrap_or_default();
        bound.mul_f64(f64::from(share) / 65536.0)
    }
}

/// An InferencePool with a fake endpoint picker, which has flow control. Prometheus does not scrape it.
pub(super) async fn serve_picker(testbed: &Testbed, namespace: &str) -> anyhow::Result<FakePicker> {
    let picker = FakePicker::start([127, 0, 2, 1]).await?;
    testbed.apply(&pool(namespace, "epp")).await?;
    picker.pod(testbed, namespace, "epp", "epp-0").await?;
    Ok(picker)
}

/// Follows the replicas of the one workload of a namespace.
pub(super) async fn follow(deployments: Api<Deployment>, history: History) -> anyhow::Result<()> {
    loop {
        let list = deployments.list(&kube::api::ListParams::default()).await?;
        list.items.iter().for_each(|deployment| history.take_in(deployment));
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut events = deployments.watch(&WatchParams::default(), &version).await?.boxed();
        while let Ok(Some(event)) = events.try_next().await {
            match event {
                WatchEvent::Added(deployment) | WatchEvent::Modified(deployment) => {
                    history.take_in(&deployment);
                }
                WatchEvent::Error(_) => break,
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            }
        }
    }
}
