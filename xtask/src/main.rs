//! `cargo xtask`: commands of the repository. Each generator makes files from tables, types and texts in the code.

#![expect(
    clippy::unwrap_used,
    reason = "a generator ends if a source in the repository is not as it expects"
)]

#[path = "../../tests/fixtures/admission_policies.rs"]
mod admission_policies;
mod admission_policy;
mod cli_page;
mod configuration_page;
mod dashboards;
#[path = "../../webhook/rules/tests/examples/example.rs"]
mod example;
mod files;
mod generated;
mod invalid_settings;
#[path = "../../tests/fixtures/leaves.rs"]
mod leaves;
mod model_servers_page;
mod program;
mod recordings;
mod rule_pages;
mod schema_pages;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Commands of the repository
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Writes every generated file, and prints the path of each one that changes
    Generate {
        /// Writes nothing: names each outdated file, and ends with 1 if there is one
        #[arg(long)]
        check: bool,
    },
    /// The program `wva`, whose output some pages show
    #[command(hide = true)]
    Wva {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match Cli::parse().task {
        Task::Generate { check: true } => check(),
        Task::Generate { check: false } => generate(),
        Task::Wva { arguments } => program::main(arguments),
    }
}

#[expect(clippy::print_stdout, reason = "the output of the command")]
fn generate() -> ExitCode {
    for path in generated::files().write(Path::new(ROOT)).unwrap() {
        println!("{path}");
    }
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "the findings of the command")]
fn check() -> ExitCode {
    let outdated = generated::files().outdated(Path::new(ROOT));
    for finding in &outdated {
        eprintln!("{finding}");
    }
    if outdated.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
