//! `wva simulate`: compares policies on a simulated fleet, or decides recorded cycles again.

mod replay;
mod sweep;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use wva_simulator::report::{self, Section};
use wva_simulator::scenario::{self, Scenario, Spec};
use wva_simulator::study::run_study;

use self::sweep::Sweep;
use crate::arguments::{file_option, format_option, option, path_value, value};
use crate::output::print;

const LIMIT: u64 = 1 << 20;

const HELP: &str = "\
A scenario describes a fleet, its load, the objectives of requests, and policies:
wva with any saturation entry, llm-d WVA, an HPA, KEDA, fixed replicas, and the
oracle, which knows all requests in advance. docs/guides/simulate-and-replay.md explains all
fields and the model of the fleet.

Examples:
  wva simulate tests/scenarios/ladder.yaml --seeds 30 --report report.html
  wva simulate ladder.yaml --sweep kvSpareTrigger=0.05..0.3
  wva simulate ladder.yaml --sweep policies.0.wva.saturation.kvSpareTrigger=0.1..0.4/7
  wva simulate --compare before.yaml after.yaml --format json
  wva explain --record day.jsonl --for 24h
  wva simulate --replay day.jsonl --config changed.yaml

The same scenario and seeds give the same output.";

pub(crate) fn command() -> Command {
    Command::new("simulate")
        .about("Compare scaling policies on a simulated fleet, faster than real time")
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
            file_option("compare", "Run two scenarios and print one table for each")
                .value_names(["A", "B"])
                .num_args(2)
                .conflicts_with("scenario"),
        )
        .arg(
            option(
                "seeds",
                "N",
                "Run each policy with the seeds 1 to N; prints means with confidence intervals",
            )
            .default_value("1")
            .value_parser(value_parser!(u64).range(1..=1000)),
        )
        .arg(
            option(
                "sweep",
                "FIELD=A..B[/N]",
                "Run the scenario with N values (default 6) of a field from A to B, one table each",
            )
            .value_parser(value_parser!(Sweep)),
        )
        .arg(file_option("report", "Write a self-contained HTML page with plots"))
        .args(replay::arguments())
        .arg(format_option(&["text", "json"]))
}

pub(crate) fn simulate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(recorded) = path_value(arguments, "replay") {
        return replay::replay(recorded, arguments);
    }
    let seeds = arguments.get_one::<u64>("seeds").copied().unwrap_or(1);
    let files = arguments.get_one::<PathBuf>("scenario").into_iter();
    let files: Vec<_> = files.chain(arguments.get_many("compare").into_iter().flatten()).collect();
    let mut scenarios = Vec::new();
    for file in files {
        scenarios.extend(
            read_scenarios(file, arguments.get_one::<Sweep>("sweep"))
                .with_context(|| format!("cannot simulate {}", file.display()))?,
        );
    }
    let sections: Vec<Section> = scenarios.into_iter().map(|(title, s)| run(title, s, seeds)).collect();
    print(&match value(arguments, "format") {
        Some("json") => format!("{}\n", report::json(&sections)),
        _ => report::table(&sections),
    })?;
    // Written last, so that a failure does not lose the printed results.
    if let Some(file) = path_value(arguments, "report") {
        std::fs::write(file, report::html(&sections))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_scenarios(file: &Path, sweep: Option<&Sweep>) -> anyhow::Result<Vec<(String, Scenario)>> {
    let text = read_text(file)?;
    let tree = scenario::parse_tree(&text)?;
    let base = Spec::read(&tree)?;
    let trace = base.read_trace(file, std::fs::File::open)?;
    let Some(sweep) = sweep else {
        return Ok(vec![(base.name.clone(), base.build(trace)?)]);
    };
    let each = sweep.values().map(|value| {
        let mut tree = tree.clone();
        scenario::set_field(&mut tree, &sweep.field, value)?;
        let spec = Spec::read(&tree)?;
        Ok((format!("{}, {} = {value}", spec.name, sweep.field), spec.build(trace.clone())?))
    });
    each.collect()
}

fn read_text(file: &Path) -> anyhow::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    let opened = std::fs::File::open(file)?;
    opened.take(LIMIT + 1).read_to_string(&mut text).context("not a UTF-8 text file")?;
    anyhow::ensure!(text.len() as u64 <= LIMIT, "the file is longer than {LIMIT} bytes");
    anyhow::ensure!(!text.trim().is_empty(), "the file is empty");
    Ok(text)
}

fn run(title: String, scenario: Scenario, seeds: u64) -> Section {
    let mut progress = Progress::new();
    let studies =
        run_study(&scenario, seeds, |policy, seed, share| progress.show(&title, policy, seed, share));
    progress.clear();
    Section { title, seeds, scenario, studies }
}

struct Progress {
    is_terminal: bool,
    percent: u32,
}

impl Progress {
    fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), percent: u32::MAX }
    }

    fn show(&mut self, title: &str, policy: &str, seed: u64, share: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
        let percent = (100.0 * share) as u32;
        if self.is_terminal && percent != self.percent {
            self.percent = percent;
            Self::write(&format!("\r\x1b[K{percent:>3} %  {title}: {policy}, seed {seed}"));
        }
    }

    fn clear(&self) {
        if self.is_terminal {
            Self::write("\r\x1b[K");
        }
    }

    fn write(text: &str) {
        // A closed terminal must not stop the runs.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
