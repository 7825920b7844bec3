//! Subcommands of `wva` other than `run`. Exit codes: 0 success, 1 a finding or a failure, 2 wrong usage (clap).

mod arguments;
mod certs;
mod cluster;
mod decide;
mod doctor;
pub mod emulate;
mod explain;
mod generate;
mod input;
mod leader;
mod migrate;
mod output;
mod prometheus;
mod simulate;
mod status;
mod validate;
mod webhook_config;
mod workloads;

use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};

pub use output::{print, print_error};

const WRONG_USAGE: u8 = 2;

type Run = fn(&ArgMatches) -> anyhow::Result<ExitCode>;

/// The subcommands, in the order of `wva --help`.
static COMMANDS: [(fn() -> Command, Run); 12] = [
    (validate::command, validate::validate),
    (decide::command, decide::decide),
    (explain::command, explain::explain),
    (status::command, status::status),
    (doctor::command, doctor::doctor),
    (generate::command, generate::generate),
    (migrate::command, migrate::migrate),
    (simulate::command, simulate::simulate),
    (emulate::command, emulate::emulate),
    (certs::command, certs::certs),
    (crd_command, crd),
    (webhook_config::command, webhook_config::webhook_config),
];

/// Command lines of all subcommands, in the order of `wva --help`.
#[must_use]
pub fn commands() -> Vec<Command> {
    COMMANDS.iter().map(|(command, _)| command()).collect()
}

/// Runs a subcommand; `None` if the name is not one of [`commands`].
///
/// # Errors
/// The failure of the command.
#[must_use]
pub fn run(name: &str, arguments: &ArgMatches) -> Option<anyhow::Result<ExitCode>> {
    let (_, run) = COMMANDS.iter().find(|(command, _)| command().get_name() == name)?;
    Some(run(arguments))
}

fn crd_command() -> Command {
    Command::new("crd")
        .about("Print the VariantAutoscaling CustomResourceDefinition as YAML")
        .after_help("Example: wva crd | kubectl apply --server-side -f -")
}

fn crd(_: &ArgMatches) -> anyhow::Result<ExitCode> {
    print(&wva_crds::manifest::crd_yaml()?)?;
    Ok(ExitCode::SUCCESS)
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(work)
}
