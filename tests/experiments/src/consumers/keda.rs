//! KEDA scales a Deployment with the sample of `config/samples`: under a changing load, during failovers and outages,
//! and between zero and one. KEDA queries Prometheus over TLS with a token.

mod blueprints;
mod install;
mod model;
mod outages;
mod watch;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use wva_testbed::audit::Audit;
use wva_testbed::install::InstallOptions;
use wva_testbed::picker::CRDS;
use wva_testbed::replicas::Replicas;
use wva_testbed::{Options, ProtectedServer, Testbed, eventually};

use self::install::{ACCOUNT, Keda};
use self::model::{Access, MODEL, Model, NAMESPACE};
use self::watch::Gaps;
use super::programs::{established, seconds};
use crate::command::{SOON, print_line};
use crate::report::{Report, spread};

const BOTH: [usize; 2] = [0, 1];
/// Requests per second: easy for one replica, nearly full for three.
const LOW: f64 = 3.0;
const HIGH: f64 = 24.0;
/// Number of leader kills.
const FAILOVERS: usize = 5;
const TOKEN: &str = "a-token-for-prometheus";

/// State shared by all steps.
struct Stage<'a> {
    testbed: &'a Testbed,
    wva: &'a Path,
    replicas: Replicas<'a>,
    keda: Keda,
    model: Model<'a>,
}

/// Runs all steps.
pub(super) async fn run(wva: &Path, report: &mut Report) -> anyhow::Result<()> {
    let options = Options { name: "consumers-keda".to_owned(), audit: Audit::Writes, ..Options::default() };
    let testbed = Testbed::start(options).await?;
    testbed.apply(CRDS).await?;
    established(&testbed).await?;
    let keda = Keda::start(&testbed).await?;
    let mut release = InstallOptions::quick(wva);
    // KEDA serves the external metrics API.
    release.release = Some("wva-keda".to_owned());
    let mut replicas = Replicas::install(&testbed, release, "keda").await?;
    replicas.start_all(&BOTH).await?;
    replicas.wait_ready(&BOTH).await?;
    let certificate = testbed.serving_certificate("prometheus-certificates", &["localhost"])?;
    let prometheus = testbed.prometheus_url()?;
    let behind = prometheus.strip_prefix("http://").context("an URL without a scheme")?;
    let server = ProtectedServer::start(&certificate, TOKEN, behind).await?;
    let (url, ca) = (server.url(), certificate.join("ca.crt"));
    let access = Access { url: &url, token: TOKEN, ca: &ca };
    let model = Model::start(&testbed, &access).await.with_context(|| keda.evidence())?;
    let mut stage = Stage { testbed: &testbed, wva, replicas, keda, model };
    BOTH.into_iter().try_for_each(|index| stage.scrape(index))?;
    let ran = stage.steps(report).await;
    ran.with_context(|| stage.keda.evidence())
}

impl Stage<'_> {
    async fn steps(&mut self, report: &mut Report) -> anyhow::Result<()> {
        blueprints::switch(self, report).await?;
        self.load(report).await?;
        self.failovers(report).await?;
        outages::without_leader(self, report).await?;
        outages::without_leader_by_default(self, report).await?;
        outages::without_prometheus(self, report).await?;
        self.zero(report).await
    }

    /// Adds a replica to Prometheus with the labels that a ServiceMonitor produces.
    fn scrape(&self, index: usize) -> anyhow::Result<()> {
        let labels = [("namespace", self.replicas.system()), ("pod", format!("wva-{index}"))];
        let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
        let address = format!("127.0.0.1:{}", self.replicas.port(index, "metrics")?);
        self.testbed.scrape(&format!("wva-{index}"), &address, "/metrics", &labels)
    }

    /// Restarts killed replicas.
    async fn restart(&mut self, indexes: &[usize]) -> anyhow::Result<()> {
        self.replicas.start_all(indexes).await?;
        indexes.iter().try_for_each(|&index| self.scrape(index))?;
        self.replicas.wait_ready(indexes).await
    }

    /// The load rises to the capacity of three replicas, and falls.
    async fn load(&self, report: &mut Report) -> anyhow::Result<()> {
        let (fleet, began) = (&self.model.fleet, Instant::now());
        fleet.set_rate(HIGH);
        let three = self.model.becomes(3).await?;
        fleet.wait_ready(3, SOON).await?;
        fleet.set_rate(LOW);
        let one = self.model.becomes(1).await?;
        let path = self.model.path_since(began);
        let figures = format!(
            "1 -> {}; {} up, {} down",
            path.iter().map(i32::to_string).collect::<Vec<_>>().join(" -> "),
            seconds(three),
            seconds(one),
        );
        let (up, down) = path.split_at(path.iter().position(|&replicas| replicas == 3).unwrap_or_default());
        let steady = up.is_sorted() && down.is_sorted_by(|a, b| a >= b) && down.first() == Some(&3);
        report.row("KEDA follows the load by the sample", figures, "1 -> 3 -> 1", steady)
    }

    /// Waits until exactly one replica leads, and returns it.
    async fn leader(&self) -> anyhow::Result<usize> {
        eventually("a leader", SOON, async || {
            for index in BOTH {
                // A killed replica has no metrics.
                if self.replicas.leads(index).await.ok().flatten() == Some(true) {
                    return Ok(index);
                }
            }
            anyhow::bail!("no replica leads")
        })
        .await
    }

    /// Kills leaders under a load for three replicas.
    async fn failovers(&mut self, report: &mut Report) -> anyhow::Result<()> {
        self.at_three().await?;
        let (began, gaps) = (Instant::now(), Gaps::default());
        let mut times = Vec::new();
        let testbed = self.testbed;
        let kills = async {
            for _ in 0..FAILOVERS {
                let leader = self.leader().await?;
                let killed = Instant::now();
                self.replicas.kill(leader)?;
                let next = self.leader().await?;
                ensure!(next != leader, "wva-{leader} leads although it is dead");
                times.push(killed.elapsed());
                self.restart(&[leader]).await?;
                watch::target_is_there(testbed).await?;
            }
            anyhow::Ok(())
        };
        gaps.during(testbed, kills).await?;
        let path = self.model.path_since(began);
        let figures = format!(
            "{} changes; next leader after {}; no target in Prometheus for {} at most",
            path.len(),
            spread(&times),
            seconds(gaps.longest()),
        );
        let what = format!("{FAILOVERS} failovers of wva under KEDA, by kills");
        report.row(&what, figures, "0 changes of replicas", path.is_empty())
    }

    /// Waits until three replicas serve the load.
    async fn at_three(&self) -> anyhow::Result<()> {
        self.model.fleet.set_rate(HIGH);
        self.model.becomes(3).await?;
        self.model.fleet.wait_ready(3, SOON).await.map(drop)
    }

    /// KEDA scales the model to zero and back, by the target alone.
    async fn zero(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let picker = self.model.may_go_to_zero().await?;
        self.model.fleet.set_rate(LOW);
        self.model.becomes(1).await?;
        self.model.becomes_idle()?;
        self.model.becomes(0).await?;
        let began = Instant::now();
        picker.queue(MODEL, 1.0);
        let up = self.model.becomes(1).await?;
        self.model.fleet.wait_ready(1, SOON).await?;
        picker.queue(MODEL, 0.0);
        let down = self.model.becomes(0).await?;
        let path = self.model.path_since(began);
        let figures =
            format!("0 -> {path:?}; up {} after a request waits, down {}", seconds(up), seconds(down));
        report.row("KEDA wakes the model and takes it to zero", figures, "0 -> 1 -> 0", path == [1, 0])?;
        let writes = self.testbed.audit()?;
        let steps = || {
            let of_model = |w: &&wva_testbed::audit::Write| w.namespace == NAMESPACE && w.stored();
            writes.iter().filter(of_model).filter(|w| w.resource == "deployments/scale")
        };
        let own = steps().filter(|w| w.user.ends_with(&format!(":{ACCOUNT}"))).count();
        let figures = format!("{own} of {}", steps().count());
        let kept = own == steps().count() && own >= path.len();
        report.row("writes of /scale that are KEDA's", figures, "all: wva writes no /scale", kept)
    }

    /// A condition as one line.
    async fn print_condition(&self, kind: &str, condition: &str) -> anyhow::Result<()> {
        print_line(&format!("  {kind} {condition}: {}", self.model.condition(kind, condition).await?))
    }
}
