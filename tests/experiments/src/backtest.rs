//! `wva backtest` against a real Prometheus that is filled with recorded traffic, as simulated fleets served it: what the
//! command says against what is true.

mod driver;
mod memory;
mod parts;
mod prometheus;
mod remote_write;
mod series;
mod truth;
mod week;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_simulator::scenario::spec::Policy;
use wva_simulator::scenario::{Scenario, Spec, parse_tree};

use self::driver::FleetRun;
use self::prometheus::Server;
use crate::command::print_line;
use crate::report::Report;

pub(crate) use self::parts::run as run_parts;
pub(crate) use self::week::run as run_week;

/// Cold start of the scenarios, which the histograms do not show.
const START: &str = "103s";
/// Bounds of a verdict: points of the share, and percent of the cost.
const SHARE_BOUND: f64 = 2.0;
/// See [`SHARE_BOUND`].
const COST_BOUND: f64 = 5.0;
/// What ran in all cases.
const HPA: &str = "HPA on queue and KV";
/// A trace, the fleet that served it, and the scrape interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    scenario: &'a str,
    /// Policy of the scenario that ran.
    ran: &'a str,
    /// Scrape interval, seconds.
    interval: u32,
    expected: Expected,
}

/// What the command has to answer.
#[derive(Clone, Copy, Debug)]
enum Expected {
    VerdictOnWva,
    Refusal,
    /// Verdicts within the bounds, if any.
    Any,
}

const fn case(scenario: &'static str, interval: u32, expected: Expected) -> Case<'static> {
    Case { scenario, ran: HPA, interval, expected }
}

const CASES: [Case<'static>; 11] = [
    case("azure-conv", 15, Expected::VerdictOnWva),
    case("azure-conv", 60, Expected::Any),
    case("servegen-m-large", 15, Expected::VerdictOnWva),
    case("servegen-m-large", 60, Expected::Any),
    case("mooncake-conv", 15, Expected::Any),
    case("mooncake-conv", 60, Expected::Any),
    case("azure-code", 15, Expected::Refusal),
    case("azure-code", 60, Expected::Refusal),
    case("servegen-r1", 15, Expected::Any),
    case("servegen-mm-image", 15, Expected::Any),
    case("mooncake-synthetic", 15, Expected::Any),
];

/// Runs all cases whose scenario contains `only`. `ran`: policy that ran, in place of that of the cases, of which nothing is
/// expected then but verdicts within the bounds.
pub(crate) async fn run(
    wva: &Path,
    only: Option<&str>,
    ran: Option<&str>,
    folder: &Path,
) -> anyhow::Result<()> {
    let mut report = Report::default();
    for case in CASES.iter().filter(|case| only.is_none_or(|only| case.scenario.contains(only))) {
        let case = match ran {
            Some(ran) => Case { ran, expected: Expected::Any, ..*case },
            None => *case,
        };
        case.run(wva, folder, &mut report).await?;
    }
    report.end()
}

/// What the command printed, and what it took.
struct Answer {
    json: Value,
    took: Duration,
    /// Peak memory, KiB.
    peak: u64,
}

impl Case<'_> {
    fn policy<'a>(&self, scenario: &'a Scenario) -> anyhow::Result<&'a Policy> {
        let policy = scenario.policies.iter().find(|policy| policy.name == self.ran);
        policy.with_context(|| format!("no policy {:?}", self.ran))
    }

    async fn run(&self, wva: &Path, folder: &Path, report: &mut Report) -> anyhow::Result<()> {
        let scenario = read_scenario(self.scenario)?;
        let ran = FleetRun::new(&scenario.setting, self.policy(&scenario)?, self.interval)?;
        let name = format!("{}-{}s", self.scenario, self.interval);
        let server = Server::start(&folder.join(&name)).await?;
        let epoch = prometheus::aligned_start(scenario.setting.duration)?;
        let samples = server
            .fill(&[(&ran, "recorded".to_owned(), "acme/model".to_owned())], epoch, scenario.setting.duration)
            .await?;
        let setting = &scenario.setting;
        let max = setting.variants[0].max.to_string();
        let span = prometheus::span(epoch, setting.duration);
        let objectives =
            [setting.objectives.ttft, setting.objectives.itl].map(|s| format!("{:.0}ms", 1000.0 * s));
        let page = folder.join(format!("{name}.html"));
        let arguments = [
            &["--ttft-slo", &objectives[0], "--itl-slo", &objectives[1]],
            &["--start", START, "--max-replicas", &max],
            &["--report", page.to_str().context("a path that is not text")?, "-o", "json"],
        ];
        let arguments: Vec<&str> = arguments.iter().flat_map(|part| part.iter().copied()).collect();
        let answer = server.backtest(wva, &span, &arguments).await?;
        std::fs::write(folder.join(format!("{name}.json")), answer.json.to_string())?;
        print_line(&format!(
            "\n{}, served by {}, scraped each {} s: {samples} samples; read and judged in {:.0} s with {} MiB",
            scenario.name,
            self.ran,
            self.interval,
            answer.took.as_secs_f64(),
            answer.peak / 1024
        ))?;
        truth::judge(self, &scenario, &ran, &answer.json, report)
    }
}

fn read_scenario(name: &str) -> anyhow::Result<Scenario> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/traces").join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let spec = Spec::read(&parse_tree(&text)?)?;
    let trace = spec.read_trace(&file, std::fs::File::open)?;
    let scenario = spec.build(trace)?;
    ensure!(scenario.setting.variants.len() == 1, "{name} has several variants");
    Ok(scenario)
}

/// Runs a command, and follows its memory.
async fn run_measured(program: &Path, arguments: &[String], log: PathBuf) -> anyhow::Result<Answer> {
    let began = Instant::now();
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .stdout(std::process::Stdio::piped())
        .stderr(std::fs::File::create(&log)?)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let pid = child.id().context("the command ended at once")?;
    let mut output = child.stdout.take().context("no standard output")?;
    let mut text = Vec::new();
    let mut peak = 0;
    let read = tokio::io::AsyncReadExt::read_to_end(&mut output, &mut text);
    tokio::pin!(read);
    loop {
        let tick = tokio::time::sleep(Duration::from_millis(100));
        tokio::select! {
            done = &mut read => { done?; break; }
            () = tick => peak = peak_kib(pid).unwrap_or(peak),
        }
    }
    let status = child.wait().await?;
    let json = serde_json::from_slice(&text)
        .with_context(|| format!("{status}: {}", std::fs::read_to_string(&log).unwrap_or_default()))?;
    Ok(Answer { json, took: began.elapsed(), peak })
}

fn peak_kib(pid: u32) -> Option<u64> {
    procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?.status().ok()?.vmhwm
}
