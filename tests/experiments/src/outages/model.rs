//! One model during a fault: polls its target, Deployment, series and conditions each second.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::time::timeout;
use wva_testbed::fixtures::{VariantFixture, saturation_map};
use wva_testbed::{ExportFault, Fleet, eventually};

use super::kind::{Kind, Load};
use super::row::Row;
use super::site::Site;
use crate::variants::{VariantState, variants};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest look at the objects. kubectl waits minutes for an API server that does not answer.
const LOOK: Duration = Duration::from_secs(3);
const SETTLES_WITHIN: Duration = Duration::from_mins(4);
/// Long enough to observe a late recovery, and a scale-down by one replica in each cycle from the most.
const COMES_BACK_WITHIN: Duration = Duration::from_mins(5);
const NAME: &str = "held";

/// KV cache in use, 0..=1: as it needs all replicas, more, and hardly one.
const NEEDS_ALL: f64 = 0.65;
const NEEDS_MORE: f64 = 0.9;
const NEEDS_ONE: f64 = 0.01;

/// A model during a fault.
pub(super) struct OutageModel<'a> {
    kind: Kind,
    fleet: Fleet,
    site: &'a Site<'a>,
    namespace: String,
}

/// State of the model at one moment.
struct Observation {
    seen: VariantState,
    /// Value of the series for each replica that publishes it.
    published: Vec<f64>,
    resident: u64,
}

impl<'a> OutageModel<'a> {
    /// Initial replicas, needed until the load falls.
    const REPLICAS: usize = 4;

    /// Starts a model at a load that needs all its replicas, and waits until the program has measured it.
    pub(super) async fn start(site: &'a Site<'a>, kind: Kind) -> anyhow::Result<Self> {
        let testbed = site.testbed;
        let namespace = testbed.namespace("outage").await?;
        let variant = VariantFixture::new(&namespace, NAME).replicas(u32::try_from(Self::REPLICAS)?);
        let fleet = Fleet::start(testbed, variant.fleet())?;
        fleet.set_fixed_all(NEEDS_ALL, 0.0);
        // The load is a fixed use of the KV cache, which this analyzer reads: no fault changes what the model needs.
        let analyzer = saturation_map(&namespace, "analyzerName: percentage");
        testbed.apply(&[analyzer, variant.all()].join("---\n")).await?;
        let model = Self { kind, fleet, site, namespace };
        model.fleet.wait_ready(Self::REPLICAS, SETTLES_WITHIN).await?;
        eventually("the model to be measured and at rest", SETTLES_WITHIN, async || {
            let observation = model.observe().await?;
            ensure!(
                observation.is_whole() && observation.is_steady(),
                "series {:?}, {}",
                observation.published,
                observation.optimization()
            );
            Ok(())
        })
        .await?;
        Ok(model)
    }

    /// Runs the fault of this model, and watches it until it has recovered and has scaled down.
    pub(super) async fn suffer(&self, lasts: Duration) -> anyhow::Result<Row> {
        let before = self.site.reviews();
        match self.kind.load() {
            Load::FallsUnseen => self.fleet.set_fixed_all(NEEDS_ONE, 0.0),
            Load::Stays => {}
            Load::Rises => self.fleet.set_fixed_all(NEEDS_MORE, 0.0),
        }
        let mut row = Row::new(self.kind);
        let (done, over) = tokio::sync::watch::channel(false);
        let fault = async {
            let ended = match self.fault_of_pods() {
                Some((share, fault)) => self.break_pods(share, fault, lasts).await,
                None => self.site.suffer(self.kind, lasts, &self.namespace).await,
            };
            done.send_replace(true);
            ended
        };
        let watching = self.watch(&mut row, over);
        tokio::try_join!(fault, watching)?;
        self.fleet.set_fixed_all(NEEDS_ONE, 0.0);
        let ended = Instant::now();
        while ended.elapsed() < COMES_BACK_WITHIN && row.scaled_down.is_none() {
            if let Ok(observation) = self.observe().await {
                row.resident = row.resident.max(observation.resident);
                if observation.is_whole() {
                    row.back.get_or_insert(ended.elapsed());
                }
                if observation.is_lower() {
                    row.scaled_down.get_or_insert(ended.elapsed());
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        row.reviewed(&before, &self.site.reviews());
        Ok(row)
    }

    /// Gives its GPUs back.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        let delete = ["delete", "namespace", &self.namespace, "--wait=false"];
        self.site.testbed.kubectl(&delete).await?.success().map(drop)
    }

    /// Polls until the fault is over.
    async fn watch(&self, row: &mut Row, over: tokio::sync::watch::Receiver<bool>) -> anyhow::Result<()> {
        let began = Instant::now();
        while !*over.borrow() {
            // An API server under a fault may not answer.
            if let Ok(observation) = self.observe().await {
                row.looks += 1;
                row.resident = row.resident.max(observation.resident);
                row.scale_downs += usize::from(observation.is_lower());
                row.two_publishers += usize::from(observation.published.len() > 1);
                row.gaps += usize::from(!observation.is_steady());
                if !observation.seen.is_measured() {
                    row.reported.get_or_insert(began.elapsed());
                }
                if observation.optimization() == "SafetyNet" {
                    row.safety_net.get_or_insert(began.elapsed());
                }
            }
            row.reason_seen |= self.kind == Kind::Half && self.is_held_back().await.unwrap_or_default();
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Share of the pods with a fault, as 1 in this number.
    fn fault_of_pods(&self) -> Option<(usize, ExportFault)> {
        match self.kind {
            Kind::NotANumber => Some((1, ExportFault::NotANumber)),
            Kind::Stale => Some((1, ExportFault::Down)),
            Kind::Half => Some((2, ExportFault::Down)),
            _ => None,
        }
    }

    async fn break_pods(&self, share: usize, fault: ExportFault, lasts: Duration) -> anyhow::Result<()> {
        let pods = self.fleet.pods();
        ensure!(pods.len() == Self::REPLICAS, "{} pods are there", pods.len());
        let broken = &pods[..pods.len() / share];
        for pod in broken {
            self.fleet.set_fault(&pod.pod, Some(fault));
        }
        tokio::time::sleep(lasts).await;
        for pod in broken {
            self.fleet.set_fault(&pod.pod, None);
        }
        Ok(())
    }

    async fn observe(&self) -> anyhow::Result<Observation> {
        let looked = timeout(LOOK, variants(self.site.testbed, &self.namespace)).await;
        let seen = looked.context("the API server does not answer")??.pop().context("the variant is gone")?;
        let labels = [("namespace", self.namespace.as_str()), ("variant_name", NAME)];
        let pages = self.site.pages(&labels).await?;
        Ok(Observation { seen, published: pages.published, resident: pages.resident })
    }

    /// Whether the last decision held replicas for lack of metrics.
    async fn is_held_back(&self) -> anyhow::Result<bool> {
        let explained = self.site.explain(&self.namespace).await?;
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

    /// Whether one replica publishes the series with its earlier value.
    fn is_steady(&self) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a handful of replicas")]
        let before = OutageModel::REPLICAS as f64;
        matches!(self.published.as_slice(), [value] if (value - before).abs() < 1e-9)
    }

    /// Whether the conditions are those of a measured model.
    fn is_whole(&self) -> bool {
        self.seen.is_measured() && self.optimization() == "SaturationOnlyMode"
    }
}
