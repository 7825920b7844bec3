//! `wva simulate`: compares policies on a simulated fleet, or decides recorded cycles again.

mod included;
mod replay;
mod sweep;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use wva_crds::envelope::FileKind;
use wva_simulator::report::{self, Section, SimulationReport};
use wva_simulator::scenario::{self, Scenario, Spec};
use wva_simulator::study::{count_runs, run_study};

use self::sweep::Sweep;
use crate::arguments::{file_option, flag, option, output_format, output_option, path_value, value};
use crate::output::{self, UnreadableFile, print, wrong_usage};
use crate::progress::Progress;

const LIMIT: u64 = 1 << 20;

const HELP: &str = "\
A scenario describes a fleet, its load, the objectives of requests, and
policies: wva with any saturation entry, llm-d WVA, an HPA, KEDA, fixed
replicas, and the oracle, which knows all requests in advance.
docs/guides/simulate-and-replay.md explains all fields and the model of the
fleet. Some scenarios are included: --list names them, and --print ladder prints
one to start from.

The table has at most 100 columns; -o wide has all figures.

Examples:
  wva simulate --list
  wva simulate ladder --seeds 30 --report report.html
  wva simulate ladder --sweep kvSpareTrigger=0.05..0.3/7
  wva simulate ladder --sweep policies.0.wva.saturation.kvSpareTrigger=0.1..0.4
  wva simulate --compare before.yaml after.yaml -o json
  wva explain --record day.jsonl --for 24h
  wva simulate --replay day.jsonl --config changed.yaml

The same scenario and seeds give the same output.

Exit code: 0 simulated, 1 an invalid scenario or an unwritable report, 2 wrong
usage or an unreadable file.";

pub(crate) fn command() -> Command {
    Command::new("simulate")
        .about("Compare scaling policies on a simulated fleet")
        .after_help(HELP)
        .arg(
            Arg::new("scenario")
                .value_name("SCENARIO")
                .required_unless_present_any(["compare", "replay", "list", "print"])
                .conflicts_with("replay")
                .value_parser(value_parser!(PathBuf))
                .help("Scenario file, YAML or JSON, or the name of an included scenario"),
        )
        .arg(
            flag("list", "List the included scenarios")
                .conflicts_with_all(["scenario", "compare", "replay", "output"]),
        )
        .arg(
            option("print", "NAME", "Print an included scenario")
                .conflicts_with_all(["scenario", "compare", "replay"]),
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
        .arg(output_option(&["text", "wide", "json", "yaml"]))
}

pub(crate) fn simulate(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(recorded) = path_value(arguments, "replay") {
        return replay::replay(recorded, arguments);
    }
    if arguments.get_flag("list") {
        print(&included::list())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = value(arguments, "print") {
        return Ok(match included::find(name) {
            Some(text) => {
                print(text)?;
                ExitCode::SUCCESS
            }
            None => wrong_usage(included::unknown(name)),
        });
    }
    let seeds = arguments.get_one::<u64>("seeds").copied().unwrap_or(1);
    let files = arguments.get_one::<PathBuf>("scenario").into_iter();
    let files: Vec<_> = files.chain(arguments.get_many("compare").into_iter().flatten()).collect();
    if let Some(name) = files.iter().find(|file| included::is_unknown_name(file)) {
        let name = name.display().to_string();
        let error = included::unknown(&name);
        return Ok(wrong_usage(anyhow::anyhow!("cannot read {name}: no such file, and {error}")));
    }
    let mut scenarios = Vec::new();
    for file in files {
        scenarios.extend(
            read_scenarios(file, arguments.get_one::<Sweep>("sweep"))
                .with_context(|| format!("cannot simulate {}", file.display()))?,
        );
    }
    let sections = run(scenarios, seeds);
    print(&match output_format(arguments) {
        format @ ("json" | "yaml") => {
            output::report(FileKind::SimulationReport, SimulationReport::new(&sections), format)?
        }
        format => report::table(&sections, format == "wide"),
    })?;
    // Written last, so that a failure does not lose the printed results.
    if let Some(file) = path_value(arguments, "report") {
        std::fs::write(file, report::simulation::document(&sections).html()?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_scenarios(file: &Path, sweep: Option<&Sweep>) -> anyhow::Result<Vec<(String, Scenario)>> {
    let text = match included::find_unless_file(file) {
        Some(text) => text.to_owned(),
        None => read_text(file)?,
    };
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
    let opened = std::fs::File::open(file).map_err(|error| UnreadableFile::new(file, error))?;
    opened.take(LIMIT + 1).read_to_string(&mut text).context("not a UTF-8 text file")?;
    anyhow::ensure!(text.len() as u64 <= LIMIT, "the file is longer than {LIMIT} bytes");
    anyhow::ensure!(!text.trim().is_empty(), "the file is empty");
    Ok(text)
}

/// One progress bar for all runs of all scenarios.
fn run(scenarios: Vec<(String, Scenario)>, seeds: u64) -> Vec<Section> {
    let progress = Progress::new(scenarios.iter().map(|(_, scenario)| count_runs(scenario, seeds)).sum());
    let run_one = |(title, scenario): (String, Scenario)| {
        let studies = run_study(&scenario, seeds, |policy| progress.count(&title, policy));
        Section { title, seeds, scenario, studies }
    };
    scenarios.into_iter().map(run_one).collect()
}
