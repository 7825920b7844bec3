//! What wva makes of real vLLM servers under real load: signals, arrivals, capacity and targets. The servers run on the
//! CPU with a tiny model; pods are kwok's, and Prometheus scrapes the servers in their place.

mod load;
mod model;
mod server;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use wva_objects::servers::ServerSignal;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Options, Testbed, eventually};

use self::load::{Client, ClosedLoop};
use self::model::{Arrivals, Model, Observation, STEP, missing_signals};
use self::server::{CACHE_TOKENS, EngineServer, Installed};
use crate::command::{SOON, print_line};
use crate::report::{Report, mib};

/// Interval of scrapes, and of rounds of queries and cycles.
const SCRAPES: Duration = Duration::from_secs(5);
const INTERVAL: &str = "5s";
/// Length of a load, and of a measurement with as many requests at once as the server runs.
const LASTS: Duration = Duration::from_mins(1);
const MEASURES: Duration = Duration::from_secs(40);
/// Load that rises beyond saturation, as shares of the closed loop.
const RISES: [f64; 4] = [0.7, 0.85, 1.0, 1.2];
/// A queue that is never empty for so long stays.
const STAYS: Duration = Duration::from_secs(30);
/// Seed of the requests.
const SEED: u64 = 1;
/// Share of its speed that a slowed server keeps.
const SLOWED: f64 = 0.2;

/// Share of a replica that is planned without an objective, and with one.
const PLANNED: f64 = 0.85;
const PLANNED_WITH_OBJECTIVE: f64 = 0.95;

/// Greatest relative error of the arrivals, and of the learned capacity.
const ARRIVALS: f64 = 0.1;
const CAPACITY: f64 = 0.3;
/// A slow server may raise the target up to what this multiple of the completed requests needs.
const EXCESS: f64 = 1.5;

/// Engines of the data-parallel server.
const ENGINES: u32 = 2;

/// Runs all parts; fails if a bound is exceeded.
pub(crate) async fn run(wva: &Path, folder: &Path) -> anyhow::Result<()> {
    let installed = Installed::find(folder)?;
    let options = Options { name: "engines".to_owned(), scrape_interval: SCRAPES, ..Options::default() };
    let testbed = Testbed::start(options).await?;
    let install = Install::start(&testbed, &InstallOptions::every(wva, INTERVAL)).await?;
    let mut bench = Bench {
        installed,
        testbed: &testbed,
        install: &install,
        report: Report::default(),
        began: Instant::now(),
    };
    bench.note("one engine starts")?;
    let server = bench.start("engine-1", 1).await?;
    let measured = bench.one_engine(&server).await?;
    bench.note("a second server starts")?;
    let second = bench.start("engine-2", 1).await?;
    bench.slow_server(&server, &second, &measured).await?;
    drop((server, second));
    bench.note("two data-parallel engines start")?;
    let server = bench.start("engine-3", ENGINES).await?;
    bench.data_parallel(&server, &measured).await?;
    bench.report.end()
}

struct Bench<'a> {
    installed: Installed,
    testbed: &'a Testbed,
    install: &'a Install,
    report: Report,
    began: Instant,
}

impl Bench<'_> {
    fn note(&self, what: &str) -> anyhow::Result<()> {
        let seconds = self.began.elapsed().as_secs();
        print_line(&format!("{:>2}:{:02}  {what}", seconds / 60, seconds % 60))
    }

    async fn start(&self, name: &str, engines: u32) -> anyhow::Result<EngineServer> {
        let began = Instant::now();
        let server = EngineServer::start(&self.installed, name, engines, self.testbed.logs()).await?;
        let seconds = began.elapsed().as_secs();
        Report::note(
            &format!("{name} answers; memory"),
            format!("after {seconds} s; {}", mib(server.memory())),
        )?;
        Ok(server)
    }

    /// One engine: idle, Poisson arrivals with and without cancelled requests, beyond saturation.
    async fn one_engine(&mut self, server: &EngineServer) -> anyhow::Result<ClosedLoop> {
        let model =
            Model::deploy(self.testbed, self.install, &[server], 1, "{analyzerName: throughput}").await?;
        let client = Client::new(vec![server.url()], SEED)?;
        self.idle(&model, server, 1).await?;

        self.note("as many requests at once as it runs")?;
        let measured = client.measure(MEASURES).await?;
        let ClosedLoop { throughput, token_gap } = measured;
        Report::note("closed loop", format!("{throughput:.2} req/s, {:.1} ms per token", 1e3 * token_gap))?;

        self.arrive(&model, &client, "40 %", 0.4 * throughput, 0.0).await?;
        self.arrive(&model, &client, "60 %, half of it cancelled", 0.6 * throughput, 0.5).await?;
        self.loaded(server, &model, &client, throughput).await?;

        self.note("70, 85, 100 and 120 % of the closed loop")?;
        let load = async {
            for share in RISES {
                client.arrive(share * throughput, 3 * LASTS / 4, 0.0).await?;
            }
            client.finish().await
        };
        let ((), looks) = model.watch(load).await?;
        let asked = looks.iter().find(|look| look.decision.target > 1).map(|look| look.at);
        let (figure, in_time) = match (asked, queue_stays(&looks)) {
            (None, _) => ("it is not asked for".to_owned(), false),
            (Some(_), None) => ("no queue stays".to_owned(), true),
            (Some(asked), Some(stays)) if asked <= stays => {
                (format!("{:.0} s before", (stays - asked).as_secs_f64()), true)
            }
            (Some(asked), Some(stays)) => (format!("{:.0} s after", (asked - stays).as_secs_f64()), false),
        };
        self.report.row("second replica is asked for before a queue stays", figure, "before", in_time)?;

        self.note("as many requests at once as it runs")?;
        let (again, looks) = model.watch(client.measure(MEASURES)).await?;
        let learned = looks.last().context("no decision")?.decision.throughput / PLANNED;
        let off = learned / again.throughput - 1.0;
        let figure = format!("{learned:.2} of {:.2} req/s, {:+.0} %", again.throughput, 100.0 * off);
        self.report.row("learned capacity", figure, "within 30 %", off.abs() <= CAPACITY)?;
        model.remove().await?;
        Ok(again)
    }

    /// Two servers, one of them slowed.
    async fn slow_server(
        &mut self,
        server: &EngineServer,
        slow: &EngineServer,
        measured: &ClosedLoop,
    ) -> anyhow::Result<()> {
        // An objective that an engine at its full speed keeps, and a slowed one cannot.
        let objective = 1e3 * 1.5 * measured.token_gap;
        let entry = format!("{{analyzerName: throughput, itlSlo: {objective:.1}}}");
        let model = Model::deploy(self.testbed, self.install, &[server, slow], 1, &entry).await?;
        let client = Client::new(vec![server.url(), slow.url()], SEED + 1)?;
        let rate = 0.8 * measured.throughput;
        self.note(&format!("two servers, itlSlo {objective:.0}, {rate:.1} req/s"))?;
        client.poisson(rate, LASTS, 0.0).await?;
        self.note("one of them is slowed to a fifth")?;
        let slowed = slow.slow_down(SLOWED)?;
        let from = Instant::now();
        let ((), looks) = model.watch(client.arrive(rate, 2 * LASTS, 0.0)).await?;
        let to = Instant::now();
        drop(slowed);
        client.finish().await?;
        let sent = client.sent();
        let done =
            sent.iter().filter_map(|request| request.completed).filter(|at| *at >= from && *at < to).count();
        let completed = f64::from(u32::try_from(done)?) / (to - from).as_secs_f64();
        let needed = (EXCESS * completed / (PLANNED_WITH_OBJECTIVE * measured.throughput)).ceil().max(1.0);
        let highest = looks.iter().max_by_key(|look| look.decision.target).context("no decision")?;
        let target = highest.decision.target;
        // Both servers exist: a target that stays is not above what is needed.
        let bound = needed.max(2.0);
        let kept = f64::from(u32::try_from(target)?) <= bound;
        let figure = format!("{target}; {completed:.1} of {rate:.1} req/s completed, {needed:.0} needed");
        self.report.row("target with a slowed server", figure, &format!("at most {bound:.0}"), kept)?;
        if !kept {
            Report::note("  its trace", &highest.decision.trace)?;
        }
        let pod =
            model.pods.iter().find(|(_, one)| one.address() == slow.address()).map(|(pod, _)| pod.clone());
        let pod = pod.context("the slow server has no pod")?;
        let named = looks.iter().filter(|look| look.decision.slow.contains(&pod)).count();
        self.report.row("cycles that name its pod", named, "at least 1", named > 0)?;
        model.remove().await
    }

    /// Two data-parallel engines behind two API servers.
    async fn data_parallel(&mut self, server: &EngineServer, measured: &ClosedLoop) -> anyhow::Result<()> {
        let model =
            Model::deploy(self.testbed, self.install, &[server], ENGINES, "{analyzerName: throughput}")
                .await?;
        let client = Client::new(vec![server.url()], SEED + 2)?;
        self.idle(&model, server, ENGINES).await?;
        let rate = 0.6 * measured.throughput;
        self.arrive(&model, &client, "60 % of one engine", rate, 0.0).await?;
        self.arrive(&model, &client, "60 %, half of it cancelled", rate, 0.5).await?;
        self.loaded(server, &model, &client, measured.throughput).await?;
        model.remove().await
    }

    /// A server without a request yet reports zeros, and the size of its cache.
    async fn idle(&mut self, model: &Model<'_>, server: &EngineServer, engines: u32) -> anyhow::Result<()> {
        let missing = missing_signals(&server.page().await?);
        // Several API servers write the gauges at the first request.
        let bound = if engines > 1 { "only gauges" } else { "none" };
        let is_gauge = |signal: &_| GAUGES.contains(signal);
        let kept = if engines > 1 { missing.iter().all(is_gauge) } else { missing.is_empty() };
        self.report.row("idle: signals that the page lacks", format!("{missing:?}"), bound, kept)?;
        let replica = eventually("the idle server to report", SOON, async || {
            model.replicas().await?.into_iter().next().context("no replica")
        })
        .await?;
        let zeros = [replica.kv.map(f64::from), replica.queue.map(f64::from), replica.running.map(f64::from)];
        let reports =
            zeros.iter().all(|figure| figure.is_none_or(|figure| figure == 0.0)) && zeros[0].is_some();
        self.report.row("idle: cache in use, waiting, running", format!("{zeros:?}"), "zeros", reports)?;
        let size =
            replica.num_gpu_blocks.zip(replica.block_size).map(|(blocks, size)| blocks.get() * size.get());
        let is_known = size == Some(f64::from(CACHE_TOKENS)) && replica.ranks.unwrap_or(1) == engines;
        let figure = format!("{size:?} tokens, {:?} engines", replica.ranks);
        self.report.row("idle: KV cache", figure, &format!("{CACHE_TOKENS} of each of {engines}"), is_known)
    }

    /// A page under load has every signal.
    async fn loaded(
        &mut self,
        server: &EngineServer,
        model: &Model<'_>,
        client: &Client,
        throughput: f64,
    ) -> anyhow::Result<()> {
        self.note("every signal under load")?;
        let load = client.poisson(0.5 * throughput, LASTS / 3, 0.0);
        let look = async {
            tokio::time::sleep(LASTS / 4).await;
            anyhow::Ok((server.page().await?, model.replicas().await?))
        };
        let (sent, seen) = tokio::join!(load, look);
        sent?;
        let (page, replicas) = seen?;
        let missing = missing_signals(&page);
        self.report.row(
            "loaded: signals that the page lacks",
            format!("{missing:?}"),
            "none",
            missing.is_empty(),
        )?;
        let replica = replicas.into_iter().next().context("no replica")?;
        let figures = [
            ("kv", replica.kv.map(f64::from)),
            ("running", replica.running.map(f64::from)),
            ("mean input", replica.mean_input.map(f64::from)),
            ("mean output", replica.mean_output.map(f64::from)),
        ];
        let positive = figures.iter().all(|(_, figure)| figure.is_some_and(|figure| figure > 0.0));
        let known = replica.queue.is_some() && replica.prefix_hit_rate.is_some() && !replica.work.is_empty();
        self.report.row(
            "loaded: figures of the replica",
            format!("{figures:?}"),
            "above 0",
            positive && known,
        )
    }

    /// Poisson arrivals: wva counts as many as were sent.
    async fn arrive(
        &mut self,
        model: &Model<'_>,
        client: &Client,
        what: &str,
        rate: f64,
        cancelled: f64,
    ) -> anyhow::Result<()> {
        self.note(&format!("{what}: {rate:.2} req/s"))?;
        // What arrives between two scrapes is spread over the time between them, so nothing may arrive at the edges.
        // The first step may begin before the load, and must not have requests of the load before.
        tokio::time::sleep(STEP + 2 * SCRAPES).await;
        let from = Instant::now();
        client.poisson(rate, LASTS, cancelled).await?;
        // The last step has ended, and its scrapes are read.
        tokio::time::sleep(STEP + 2 * SCRAPES).await;
        let arrivals = model.arrivals(from, Instant::now(), &client.sent()).await?;
        let Arrivals { counted, sent, span } = arrivals;
        let error = arrivals.error();
        let figure = format!("{counted:.1} of {sent} in {} s, {:+.1} %", span.as_secs(), 100.0 * error);
        self.report.row(&format!("arrivals, {what}"), figure, "within 10 %", error.abs() <= ARRIVALS)
    }
}

/// Signals that several API servers export from the first request on.
const GAUGES: [ServerSignal; 4] =
    [ServerSignal::KvUsage, ServerSignal::Waiting, ServerSignal::Running, ServerSignal::Awake];

/// Start of a queue that is not empty for [`STAYS`].
fn queue_stays(looks: &[Observation]) -> Option<Instant> {
    let mut since: Option<Instant> = None;
    for look in looks {
        if look.waiting <= 0.0 {
            since = None;
        } else if look.at.duration_since(*since.get_or_insert(look.at)) >= STAYS {
            return since;
        }
    }
    None
}
