//! `wva simulate`: policies on a simulated fleet under a load, side by side, and recorded cycles decided again. The
//! simulation itself is the crate `wva-simulator`; here files are read, runs are shown as they go, and results are written.

mod replay;
mod sweep;

use std::io::{BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use wva_simulator::fleet::server::Request;
use wva_simulator::report::{self, Section};
use wva_simulator::scenario::{self, Scenario, Spec};
use wva_simulator::study::study;
use wva_simulator::traffic::trace;

use self::sweep::Sweep;
use crate::arguments::{file, file_option, format_option, option, word};
use crate::output::print;

/// A scenario is a page or two.
const LIMIT: u64 = 1 << 20;

const HELP: &str = "\
A scenario names a fleet, its load, what requests are held to, and policies:
ours with any saturation entry, the original's loop, an HPA, KEDA, fixed
replicas, and the plan of one who knows all requests. docs/simulate.md tells
what each field means and how the fleet is modelled.

Examples:
  wva simulate tests/scenarios/ladder.yaml --seeds 30 --report report.html
  wva simulate ladder.yaml --sweep kvSpareTrigger=0.05..0.3
  wva simulate ladder.yaml --sweep policies.0.wva.saturation.kvSpareTrigger=0.1..0.4/7
  wva simulate --compare before.yaml after.yaml --format json
  wva explain --record day.jsonl --for 24h
  wva simulate --replay day.jsonl --config changed.yaml

The same scenario and seeds give the same bytes.";

/// The command line of `wva simulate`.
pub(crate) fn command() -> Command {
    Command::new("simulate")
        .about("Try policies on a simulated fleet under a load, faster than real time")
        .after_help(HELP)
        .arg(
            Arg::new("scenario")
                .value_name("SCENARIO")
                .required_unless_present_any(["compare", "replay"])
                .conflicts_with("replay")
                .value_parser(value_parser!(PathBuf))
                .help("Scenario file, YAML or JSON"),
        )
        .arg(
            file_option("compare", "Two scenarios, one table below the other")
                .value_names(["A", "B"])
                .num_args(2)
                .conflicts_with("scenario"),
        )
        .arg(
            option(
                "seeds",
                "N",
                "Runs each policy on the seeds 1 to N, and shows means with confidence intervals",
            )
            .default_value("1")
            .value_parser(value_parser!(u64).range(1..=1000)),
        )
        .arg(
            option(
                "sweep",
                "FIELD=A..B[/N]",
                "Sets a field of the scenario to N values from A to B (6), one table each",
            )
            .value_parser(value_parser!(Sweep)),
        )
        .arg(file_option("report", "Writes one HTML page with plots that needs no network"))
        .args(replay::arguments())
        .arg(format_option(&["text", "json"]))
}

pub(crate) fn simulate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(recorded) = file(arguments, "replay") {
        return replay::replay(recorded, arguments);
    }
    let seeds = arguments.get_one::<u64>("seeds").copied().unwrap_or(1);
    let files = arguments.get_one::<PathBuf>("scenario").into_iter();
    let files: Vec<_> = files.chain(arguments.get_many("compare").into_iter().flatten()).collect();
    let mut scenarios = Vec::new();
    for file in files {
        // Every scenario is understood before the first one runs.
        scenarios.extend(
            read(file, arguments.get_one::<Sweep>("sweep"))
                .with_context(|| format!("{} cannot be simulated", file.display()))?,
        );
    }
    let sections: Vec<Section> = scenarios.into_iter().map(|(title, s)| section(title, s, seeds)).collect();
    print(&match word(arguments, "format") {
        Some("json") => format!("{}\n", report::json(&sections)),
        _ => report::table(&sections),
    })?;
    // Last: hours of simulation are not lost for want of a folder.
    if let Some(file) = file(arguments, "report") {
        std::fs::write(file, report::html(&sections))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The scenarios of a file, with their titles: one, or one for each value of a sweep.
fn read(file: &Path, sweep: Option<&Sweep>) -> anyhow::Result<Vec<(String, Scenario)>> {
    let text = text(file)?;
    let tree = scenario::tree(&text)?;
    let plain = Spec::read(&tree)?;
    let trace = plain.traffic.trace.as_ref().map(|t| requests(file, t)).transpose()?;
    let Some(sweep) = sweep else {
        return Ok(vec![(plain.name.clone(), plain.scenario(trace)?)]);
    };
    let each = sweep.values().map(|value| {
        let mut tree = tree.clone();
        scenario::set(&mut tree, &sweep.field, value)?;
        let spec = Spec::read(&tree)?;
        Ok((format!("{}, {} = {value}", spec.name, sweep.field), spec.scenario(trace.clone())?))
    });
    each.collect()
}

fn text(file: &Path) -> anyhow::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let opened = std::fs::File::open(file)?;
    opened.take(LIMIT + 1).read_to_string(&mut text).context("it cannot be read as UTF-8 text")?;
    anyhow::ensure!(text.len() as u64 <= LIMIT, "it is longer than {LIMIT} bytes");
    anyhow::ensure!(!text.trim().is_empty(), "it is empty");
    Ok(text)
}

fn requests(scenario: &Path, wanted: &scenario::spec::Trace) -> anyhow::Result<Arc<[Request]>> {
    let file = scenario.parent().unwrap_or(Path::new(".")).join(&wanted.file);
    let failed = || format!("traffic.trace.file: {}", file.display());
    let opened = std::fs::File::open(&file).with_context(failed)?;
    let read = trace::read(BufReader::new(opened), wanted.layout, wanted.model.as_deref());
    Ok(read.with_context(failed)?.into())
}

fn section(title: String, scenario: Scenario, seeds: u64) -> Section {
    let mut shown = Progress::new();
    let studies = study(&scenario, seeds, |policy, seed, share| shown.show(&title, policy, seed, share));
    shown.clear();
    Section { title, seeds, scenario, studies }
}

/// One line on a terminal that tells how far the runs are.
struct Progress {
    on: bool,
    last: u32,
}

impl Progress {
    fn new() -> Self {
        Self { on: std::io::stderr().is_terminal(), last: u32::MAX }
    }

    fn show(&mut self, title: &str, policy: &str, seed: u64, share: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 100")]
        let percent = (100.0 * share) as u32;
        if self.on && percent != self.last {
            self.last = percent;
            Self::write(&format!("\r\x1b[K{percent:>3} %  {title}: {policy}, seed {seed}"));
        }
    }

    fn clear(&self) {
        if self.on {
            Self::write("\r\x1b[K");
        }
    }

    fn write(text: &str) {
        // A terminal that is gone is no reason to stop the runs.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
