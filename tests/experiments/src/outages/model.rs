//! One model during an outage: polls its target, Deployment, series and conditions each second.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{self, Install};
use wva_testbed::{Fleet, Testbed, eventually};

use super::Kind;
use crate::variants::{VariantState, variants};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
const SETTLES_WITHIN: Duration = Duration::from_mins(3);
/// Long enough to observe a late recovery.
const COMES_BACK_WITHIN: Duration = Duration::from_mins(3);
const NAME: &str = "held";

/// A model during an outage.
pub(super) struct OutageModel<'a> {
    pub(super) kind: Kind,
    pub(super) fleet: Fleet,
    testbed: &'a Testbed,
    install: &'a Install,
    namespace: String,
}

/// Observations; times since the outage began, or since its end.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Polls with the target or the Deployment below its earlier value.
    pub(super) scale_downs: usize,
    /// Polls with the series missing or changed.
    pub(super) gaps: usize,
    /// `MetricsAvailable` became False.
    pub(super) reported: Option<Duration>,
    /// `OptimizationReady` had the reason `SafetyNet`.
    pub(super) safety_net: Option<Duration>,
    /// A decision gave the reason for holding replicas.
    pub(super) reason_seen: bool,
    /// Both conditions recovered.
    pub(super) back: Option<Duration>,
    /// Scaled down for the load that fell during the outage.
    pub(super) scaled_down: Option<Duration>,
}

/// State of the model at one moment.
struct Observation {
    seen: VariantState,
    series: Option<f64>,
}

impl<'a> OutageModel<'a> {
    /// Initial replicas, needed until the load falls.
    pub(super) const REPLICAS: usize = 4;

    /// Starts a model at a load that needs all its replicas, and waits until the program has measured it.
    pub(super) async fn start(
        testbed: &'a Testbed,
        install: &'a Install,
        kind: Kind,
    ) -> anyhow::Result<Self> {
        let namespace = testbed.namespace("outage").await?;
        let variant = VariantFixture::new(&namespace, NAME).replicas(u32::try_from(Self::REPLICAS)?);
        let fleet = Fleet::start(testbed, variant.fleet())?;
        fleet.set_fixed_all(0.65, 0.0);
        testbed.apply(&variant.all()).await?;
        let model = Self { kind, fleet, testbed, install, namespace };
        model.fleet.wait_ready(Self::REPLICAS, SETTLES_WITHIN).await?;
        eventually("the model to be measured and at rest", SETTLES_WITHIN, async || {
            let observation = model.observe().await?;
            ensure!(
                observation.is_whole() && observation.is_steady(),
                "series {:?}, {}",
                observation.series,
                observation.optimization()
            );
            Ok(())
        })
        .await?;
        Ok(model)
    }

    /// Runs one outage, which `turn(true)` begins and `turn(false)` ends.
    pub(super) async fn suffer(
        &self,
        lasts: Duration,
        turn: impl AsyncFn(bool) -> anyhow::Result<()>,
    ) -> anyhow::Result<Row> {
        turn(true).await?;
        let began = Instant::now();
        self.fleet.set_fixed_all(0.01, 0.0);
        let mut row = Row { reason_seen: self.kind != Kind::Half, ..Row::default() };
        while began.elapsed() < lasts {
            let observation = self.observe().await?;
            row.scale_downs += usize::from(observation.is_lower());
            row.gaps += usize::from(!observation.is_steady());
            if !observation.seen.is_measured() {
                row.reported.get_or_insert(began.elapsed());
            }
            if observation.optimization() == "SafetyNet" {
                row.safety_net.get_or_insert(began.elapsed());
            }
            row.reason_seen |= self.kind == Kind::Half && self.is_held_back().await?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        turn(false).await?;
        let ended = Instant::now();
        while ended.elapsed() < COMES_BACK_WITHIN && row.scaled_down.is_none() {
            let observation = self.observe().await?;
            if observation.is_whole() {
                row.back.get_or_insert(ended.elapsed());
            }
            if observation.is_lower() {
                row.scaled_down.get_or_insert(ended.elapsed());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(row)
    }

    async fn observe(&self) -> anyhow::Result<Observation> {
        let seen = variants(self.testbed, &self.namespace).await?.pop().context("the variant is gone")?;
        let labels = [("namespace", self.namespace.as_str()), ("variant_name", NAME)];
        Ok(Observation { seen, series: self.install.series("wva_desired_replicas", &labels).await? })
    }

    /// Whether the last decision held replicas for lack of metrics.
    async fn is_held_back(&self) -> anyhow::Result<bool> {
        let address = self.install.address("debug")?;
        let url = format!("http://{address}/explain?format=json&namespace={}", self.namespace);
        let (_, text) = install::get(&url).await?;
        let explained: Value = serde_json::from_str(&text).context("no explanation")?;
        let reason = explained["decisions"][0]["reason"].as_str().unwrap_or_default();
        Ok(["ScrapeGap", "MetricsStale"].contains(&reason))
    }
}

impl Observation {
    fn is_lower(&self) -> bool {
        let before = OutageModel::REPLICAS as u64;
        self.seen.replicas < before || self.seen.target.is_some_and(|target| target < before)
    }

    fn optimization(&self) -> &str {
        self.seen.condition("OptimizationReady", "reason")
    }

    /// Whether the series has its earlier value.
    fn is_steady(&self) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a handful of replicas")]
        let before = OutageModel::REPLICAS as f64;
        self.series.is_some_and(|value| (value - before).abs() < 1e-9)
    }

    /// Whether the conditions are those of a measured model.
    fn is_whole(&self) -> bool {
        self.seen.is_measured() && self.optimization() == "SaturationOnlyMode"
    }
}
