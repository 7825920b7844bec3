//! Subcommands of `wva` other than `run`. Exit codes: 0 success, 1 a finding or a failure, 2 wrong usage (clap),
//! 3 the cluster does not answer.

mod arguments;
mod backtest;
mod certs;
mod cluster;
mod completion;
mod decide;
mod doctor;
pub mod emulate;
mod explain;
mod generate;
mod gpus;
mod help;
mod input;
mod installs;
mod leader;
mod migrate;
mod output;
mod progress;
mod prometheus;
mod recording;
mod report;
mod rule;
mod simulate;
mod status;
mod validate;
mod version;
mod webhook_config;
mod workloads;

use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use wva_crds::envelope::{self, FileKind};
use wva_scaling::{Outcome, Snapshot};
use wva_simulator::backtest::answer::BacktestReport;
use wva_simulator::replay::ReplayReport;
use wva_simulator::report::SimulationReport;

use arguments::{output_format, output_option};
use output::print;

pub use explain::record_cycles;
pub use help::fit_help;
pub use output::{TerminalSize, fail, terminal_size, use_colours};
pub use report::read_recording;

const WRONG_USAGE: u8 = 2;
/// Exit code if the cluster or the controller does not answer, so that nothing was looked at.
const NOT_SEEN: u8 = 3;

/// The program that the commands belong to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Program {
    /// Release, such as `0.1.0`.
    pub version: &'static str,
    /// Commit of the build.
    pub revision: &'static str,
    /// Release of the compiler.
    pub rustc: &'static str,
    /// The whole command line.
    #[serde(skip)]
    pub command: Command,
}

/// Commands that serve one purpose.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Purpose, as the heading in `wva --help`.
    pub title: &'static str,
    /// Names of the commands.
    pub commands: &'static [&'static str],
}

/// All commands by purpose, for `wva --help`.
pub const GROUPS: [Group; 6] = [
    Group { title: "Look at what runs, and what is wrong", commands: &["status", "doctor"] },
    Group { title: "Explain targets", commands: &["explain", "decide", "report"] },
    Group { title: "Check files before you apply them", commands: &["validate", "rule"] },
    Group { title: "Try policies and servers without GPUs", commands: &["backtest", "simulate", "emulate"] },
    Group { title: "Set up models", commands: &["generate", "migrate"] },
    Group {
        title: "Operate wva",
        commands: &["crd", "webhook-config", "certs", "run", "version", "completion", "man"],
    },
];

type Run = fn(&ArgMatches, &Program) -> anyhow::Result<ExitCode>;

/// The subcommands, in the order of `wva --help`.
static COMMANDS: [(fn() -> Command, Run); 18] = [
    (validate::command, |arguments, _| validate::validate(arguments)),
    (rule::command, |arguments, _| rule::rule(arguments)),
    (decide::command, |arguments, _| decide::decide(arguments)),
    (explain::command, |arguments, _| explain::explain(arguments)),
    (status::command, |arguments, _| status::status(arguments)),
    (doctor::command, |arguments, _| doctor::doctor(arguments)),
    (generate::command, |arguments, _| generate::generate(arguments)),
    (migrate::command, |arguments, _| migrate::migrate(arguments)),
    (backtest::command, |arguments, _| backtest::backtest(arguments)),
    (simulate::command, |arguments, _| simulate::simulate(arguments)),
    (report::command, |arguments, _| report::report(arguments)),
    (emulate::command, |arguments, _| emulate::emulate(arguments)),
    (certs::command, |arguments, _| certs::certs(arguments)),
    (crd_command, |arguments, _| crd(arguments)),
    (webhook_config::command, |arguments, _| webhook_config::webhook_config(arguments)),
    (version::command, version::version),
    (completion::command, |arguments, program| completion::completion(arguments, &program.command)),
    (completion::man_command, |arguments, program| completion::man(arguments, &program.command)),
];

/// Command lines of all subcommands, in the order of `wva --help`.
#[must_use]
pub fn commands() -> Vec<Command> {
    COMMANDS.iter().map(|(command, _)| command()).collect()
}

/// JSON Schemas of files and outputs, by kind.
#[must_use]
pub fn schemas() -> Vec<(FileKind, Value)> {
    vec![
        (FileKind::Snapshot, envelope::schema::<Snapshot>(FileKind::Snapshot, true)),
        (FileKind::Decisions, envelope::schema::<Outcome>(FileKind::Decisions, false)),
        (FileKind::StatusReport, status::schema()),
        (FileKind::DoctorReport, doctor::schema()),
        (FileKind::ValidationReport, validate::schema()),
        (FileKind::VersionReport, version::schema()),
        (FileKind::SimulationReport, envelope::schema::<SimulationReport>(FileKind::SimulationReport, false)),
        (FileKind::ReplayReport, envelope::schema::<ReplayReport<'_>>(FileKind::ReplayReport, false)),
        (FileKind::BacktestReport, envelope::schema::<BacktestReport>(FileKind::BacktestReport, false)),
        (FileKind::BacktestHistory, backtest::history_schema()),
    ]
}

/// Asserts that an output has its kind and matches the schema of the kind.
#[cfg(test)]
fn assert_schema(kind: FileKind, output: &str) {
    let output: Value = serde_json::from_str(output).unwrap();
    assert_eq!(output["kind"], kind.to_string());
    let (_, schema) = schemas().into_iter().find(|(known, _)| *known == kind).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&output).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{output:#}");
}

/// Runs a subcommand; `None` if the name is not one of [`commands`].
///
/// # Errors
/// The failure of the command.
#[must_use]
pub fn run(name: &str, arguments: &ArgMatches, program: &Program) -> Option<anyhow::Result<ExitCode>> {
    let (_, run) = COMMANDS.iter().find(|(command, _)| command().get_name() == name)?;
    Some(run(arguments, program))
}

fn crd_command() -> Command {
    Command::new("crd")
        .about("Print the VariantAutoscaling CustomResourceDefinition")
        .after_help(
            "Example: wva crd | kubectl apply --server-side -f -\n\nExit code: 0 printed, 2 wrong usage.",
        )
        .arg(output_option(&["yaml", "json"]))
}

fn crd(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let yaml = wva_crds::manifest::crd_yaml()?;
    print(&match output_format(arguments) {
        "json" => output::structured(&serde_saphyr::from_str::<Value>(&yaml)?, "json")?,
        _ => yaml,
    })?;
    Ok(ExitCode::SUCCESS)
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(work)
}
