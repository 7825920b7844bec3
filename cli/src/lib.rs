//! The commands of `wva` but for the controller itself. Each is a function from its arguments to an exit code: 0 fine, 1
//! a finding or a failure; wrong usage (2) is clap's.

mod certs;
mod cluster;
mod decide;
mod doctor;
mod emulate;
mod explain;
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
use clap::{Arg, ArgMatches, Command};

pub use output::{print, print_error};

/// The subcommands, in the order of `wva --help`.
#[must_use]
pub fn commands() -> Vec<Command> {
    vec![
        validate::command(),
        decide::command(),
        explain::command(format_arg(&["text", "json"])),
        status::command(),
        doctor::command(),
        migrate::command(),
        simulate::command(format_arg(&["text", "json"])),
        emulate::command(),
        certs::command(),
        Command::new("crd")
            .about("The CustomResourceDefinition as YAML")
            .after_help("Example: wva crd | kubectl apply --server-side -f -"),
        webhook_config::command(),
    ]
}

/// Runs a subcommand; `None` where it is not one of [`commands`].
///
/// # Errors
/// What the command could not do.
#[must_use]
pub fn run(name: &str, arguments: &ArgMatches) -> Option<anyhow::Result<ExitCode>> {
    Some(match name {
        "validate" => validate::validate(arguments),
        "decide" => decide::decide(arguments),
        "explain" => explain::explain(arguments),
        "status" => status::status(arguments),
        "doctor" => doctor::doctor(arguments),
        "migrate" => migrate::migrate(arguments),
        "simulate" => simulate::simulate(arguments),
        "emulate" => emulate::emulate(arguments),
        "certs" => certs::certs(arguments),
        "crd" => crd(),
        "webhook-config" => webhook_config::webhook_config(arguments),
        _ => return None,
    })
}

fn format_arg(words: &'static [&'static str]) -> Arg {
    Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .value_parser(words.to_vec())
        .default_value(words[0])
        .help("Output format")
}

fn crd() -> anyhow::Result<ExitCode> {
    print(&wva_crds::manifest::crd_yaml()?)?;
    Ok(ExitCode::SUCCESS)
}

/// Objects as YAML documents.
fn yaml(objects: &[serde_json::Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(serde_saphyr::to_string(object)?.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// For commands that ask others: one thread is enough.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?
        .block_on(work)
}
