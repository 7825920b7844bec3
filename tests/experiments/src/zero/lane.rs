//! One model with occasional requests. This program watches its workload, to know in milliseconds when replicas
//! changed and which requests ran then.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde_json::json;
use tokio::task::JoinSet;
use wva_testbed::fixtures::{VariantFixture, scale_to_zero_map};
use wva_testbed::picker::{FakePicker, pool};
use wva_testbed::{Fleet, Request, Testbed, eventually};

use super::RETENTION;
use super::figures::Figures;
use crate::command::SOON;
use crate::history::History;

/// Maximum pause between two requests, after the end of the first.
const PAUSE: Duration = RETENTION.saturating_mul(3);
/// Maximum duration of a request.
const LONGEST: Duration = RETENTION.saturating_mul(2);

/// One model.
pub(super) struct Lane<'a> {
    testbed: &'a Testbed,
    namespace: String,
    model: String,
    fleet: Fleet,
    pub(super) picker: FakePicker,
    deployments: Api<Deployment>,
    history: History,
    _watching: JoinSet<()>,
    random: Pcg64,
}

impl<'a> Lane<'a> {
    /// Starts a model with one replica.
    pub(super) async fn start(testbed: &'a Testbed, number: usize, seed: u64) -> anyhow::Result<Self> {
        let IdleModel { namespace, model, fleet, picker } = IdleModel::start(testbed, "lane").await?;
        let deployments: Api<Deployment> = Api::namespaced(testbed.admin()?, &namespace);
        let history = History::default();
        let watching = history.follow(deployments.clone());
        let random = Pcg64::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(u64::try_from(number)?));
        Ok(Self {
            testbed,
            namespace,
            model,
            fleet,
            picker,
            deployments,
            history,
            _watching: watching,
            random,
        })
    }

    /// Runs turns to zero and back. Requests arrive at random: before, at, and after the end of the retention period.
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

    /// Wakes the model if it is at 0, and waits until it serves.
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

    /// Scales up by hand, in place of an endpoint picker.
    pub(super) async fn wake(&self) -> anyhow::Result<()> {
        if self.history.now() == Some(0) {
            let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
            self.deployments.patch_scale("a", &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    /// First time since a moment at which it went to zero.
    pub(super) fn went_to_zero_since(&self, since: Instant) -> Option<Instant> {
        self.history.first_since(since, |replicas| replicas == 0)
    }

    /// Waits until it goes to zero; returns the time since a moment.
    pub(super) async fn to_zero_after(&self, since: Instant) -> anyhow::Result<Duration> {
        let what = format!("{} to go to zero", self.namespace);
        let at =
            eventually(&what, SOON + RETENTION, async || self.went_to_zero_since(since).context("it is up"));
        let at = at.await.with_context(|| self.testbed.logs().display().to_string())?;
        Ok(at.duration_since(since))
    }

    /// Evaluates its requests and replicas. `written` are the `/scale` writes in its namespace.
    pub(super) fn figures(&self, written: &[Instant]) -> Figures {
        let (requests, history) = (self.fleet.requests(), self.history.all().clone());
        let mut figures = Figures {
            requests: requests.len(),
            longest: requests.iter().map(|r| r.lasts).max().unwrap_or_default(),
            ..Figures::default()
        };
        for (at, _) in history.iter().filter(|(_, replicas)| *replicas == 0) {
            figures.turns += 1;
            // Time at which the API server received the observed write.
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

    /// A random time below a bound.
    fn below(&mut self, bound: Duration) -> Duration {
        bound.mul_f64(self.random.random())
    }
}

/// A model with one replica that may scale to zero.
pub(super) struct IdleModel {
    pub(super) namespace: String,
    model: String,
    pub(super) fleet: Fleet,
    /// Fake picker with flow control, which scale to zero requires. Prometheus does not scrape it.
    picker: FakePicker,
}

impl IdleModel {
    /// Starts the model in a new namespace.
    pub(super) async fn start(testbed: &Testbed, prefix: &str) -> anyhow::Result<Self> {
        let namespace = testbed.namespace(prefix).await?;
        let fixture = VariantFixture::new(&namespace, "a");
        let fleet = Fleet::start(testbed, fixture.fleet())?;
        let picker = FakePicker::start([127, 0, 2, 1]).await?;
        testbed
            .apply(&[scale_to_zero_map(&namespace, RETENTION), pool(&namespace, "epp")].join("---\n"))
            .await?;
        picker.pod(testbed, &namespace, "epp", "epp-0").await?;
        let model = fixture.model.clone();
        testbed.apply(&fixture.port(fleet.port()).all()).await?;
        fleet.wait_ready(1, SOON).await?;
        Ok(Self { namespace, model, fleet, picker })
    }
}
