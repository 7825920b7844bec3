//! `wva decide`: one pass of the decision pipeline over a snapshot file, the same function that runs in the cluster.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::ArgMatches;
use wva_scaling::{Snapshot, decide as decide_snapshot, trace};

/// Snapshots of the largest installs are a few megabytes.
const LIMIT: u64 = 256 << 20;

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "decisions go to stdout, what else is to be known to stderr"
)]
pub(crate) fn decide(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = arguments.get_one::<std::path::PathBuf>("file").context("no snapshot file")?;
    let text = read(file)?;
    let snapshot = Snapshot::parse(&text).with_context(|| format!("{} is no snapshot", file.display()))?;
    let outcome = decide_snapshot(&snapshot);
    match arguments.get_one::<String>("format").map(String::as_str) {
        Some("json") => println!("{}", serde_json::to_string(&outcome)?),
        Some("yaml") => println!("{}", serde_saphyr::to_string(&outcome)?),
        _ => println!("{}", trace::report(&snapshot, &outcome).trim_end_matches('\n')),
    }
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
    read.with_context(|| format!("cannot read {} as UTF-8 text", file.display()))?;
    anyhow::ensure!(text.len() as u64 <= LIMIT, "{} is longer than {LIMIT} bytes", file.display());
    Ok(text)
}
