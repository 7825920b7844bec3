//! `wva decide`: one pass of the decision pipeline over a snapshot file, the same function that runs in the cluster.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};
use wva_scaling::{Snapshot, decide as decide_snapshot, trace};

use crate::arguments::{file, file_option, format_option, word};
use crate::input::{self, STDIN, is_stdin};
use crate::output::print;

/// Snapshots of the largest installs are a few megabytes.
const LIMIT: u64 = 256 << 20;

/// The command line.
pub(crate) fn command() -> Command {
    Command::new("decide")
        .about("One pass of the decision pipeline over a snapshot file: targets and the trace that leads to them")
        .after_help("Examples:\n  wva explain --snapshot cycle.json && wva decide -f cycle.json\n  wva decide -f snapshot.yaml --format json")
        .arg(
            file_option("file", "Snapshot file, YAML or JSON; - reads standard input")
                .short('f')
                .value_name("SNAPSHOT")
                .required(true),
        )
        .arg(format_option(&["text", "json", "yaml"]))
}

#[expect(clippy::print_stderr, reason = "decisions go to stdout, what else is to be known to stderr")]
pub(crate) fn decide(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = file(arguments, "file").context("no snapshot file")?;
    let format = word(arguments, "format");
    let text = read(file)?;
    let snapshot = Snapshot::parse(&text).with_context(|| format!("{} is no snapshot", shown(file)))?;
    let outcome = decide_snapshot(&snapshot);
    let told = match format {
        Some("json") => serde_json::to_string(&outcome)?,
        Some("yaml") => serde_saphyr::to_string(&outcome)?,
        _ if outcome.decisions.is_empty() => "no variant in it, so nothing is decided".to_owned(),
        _ => trace::report(&snapshot, &outcome),
    };
    print(&format!("{}\n", told.trim_end_matches('\n')))?;
    if format.is_some_and(|format| format != "text") {
        for warning in &outcome.warnings {
            eprintln!("warning: {warning}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let opened = input::open(file).with_context(|| format!("cannot open {}", shown(file)))?;
    let read = opened.take(LIMIT + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {} as UTF-8 text", shown(file)))?;
    anyhow::ensure!(text.len() as u64 <= LIMIT, "{} is longer than {LIMIT} bytes", shown(file));
    // Before a pipe this is a command that failed, and no fleet without variants.
    anyhow::ensure!(
        !text.trim().is_empty(),
        "{} is empty: name a file that `wva explain --snapshot FILE` has written",
        shown(file)
    );
    Ok(text)
}

/// The file as messages name it.
fn shown(file: &Path) -> std::path::Display<'_> {
    if is_stdin(file) { Path::new(STDIN).display() } else { file.display() }
}
