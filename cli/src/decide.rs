//! `wva decide`: one pass of the decision pipeline over a snapshot file, the same function that runs in the cluster.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use wva_scaling::{Snapshot, decide as decide_snapshot, trace};

use crate::format_arg;
use crate::output::print;

/// Snapshots of the largest installs are a few megabytes.
const LIMIT: u64 = 256 << 20;

/// The command line.
pub(crate) fn command() -> Command {
    Command::new("decide")
        .about("One pass of the decision pipeline over a snapshot file: targets and the trace that leads to them")
        .after_help("Examples:\n  wva explain --snapshot cycle.json && wva decide -f cycle.json\n  wva decide -f snapshot.yaml --format json")
        .arg(
            Arg::new("file")
                .short('f')
                .long("file")
                .value_name("SNAPSHOT")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Snapshot file, YAML or JSON; - reads standard input"),
        )
        .arg(format_arg(&["text", "json", "yaml"]))
}

#[expect(clippy::print_stderr, reason = "decisions go to stdout, what else is to be known to stderr")]
pub(crate) fn decide(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = arguments.get_one::<PathBuf>("file").context("no snapshot file")?;
    let text = read(file)?;
    let snapshot = Snapshot::parse(&text).with_context(|| format!("{} is no snapshot", shown(file)))?;
    let outcome = decide_snapshot(&snapshot);
    let told = match arguments.get_one::<String>("format").map(String::as_str) {
        Some("json") => serde_json::to_string(&outcome)?,
        Some("yaml") => serde_saphyr::to_string(&outcome)?,
        _ if outcome.decisions.is_empty() => "no variant in it, so nothing is decided".to_owned(),
        _ => trace::report(&snapshot, &outcome),
    };
    print(&format!("{}\n", told.trim_end_matches('\n')))?;
    if arguments.get_one::<String>("format").is_some_and(|f| f != "text") {
        for warning in &outcome.warnings {
            eprintln!("warning: {warning}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(LIMIT + 1).read_to_string(&mut text)
    } else {
        let opened = std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        opened.take(LIMIT + 1).read_to_string(&mut text)
    };
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
    if file == Path::new("-") { Path::new("<stdin>").display() } else { file.display() }
}
