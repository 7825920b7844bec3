//! `wva report`: recorded cycles as one HTML page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use wva_simulator::report::recording::{History, MAX_ROWS, Selection};

use crate::arguments::{file_option, names_argument, namespace_option, path_value, value, values};
use crate::input::is_stdin;
use crate::output::{count, print, wrong_usage};
use crate::recording::{name, read_cycles};

const HELP: &str = "\
The page shows load, forecast, targets, ready replicas, KV cache use, queues and
cost over time. Point at a plot to read the decision of that time. The page
loads nothing from a network.

The decisions are computed again from the recorded input by this release of wva.
Of more than 50 variants the page has only sums and a table: choose some.

Examples:
  wva explain --record day.jsonl --for 24h
  wva report day.jsonl
  wva report day.jsonl -n prod llama-h100 --file llama.html

Exit code: 0 written, 1 a line is not a snapshot, a variant is missing or the
page cannot be written, 2 wrong usage or an unreadable file.";

pub(crate) fn command() -> Command {
    Command::new("report")
        .about("Draw recorded cycles: load, replicas, cost, and each reason")
        .after_help(HELP)
        .arg(
            Arg::new("recording")
                .value_name("RECORDING")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("File of `wva explain --record`; - reads standard input"),
        )
        .arg(names_argument())
        .arg(namespace_option("Namespace of the VariantAutoscalings; default: all"))
        .arg(file_option("file", "Page to write, - for standard output; default: RECORDING with .html"))
}

#[expect(clippy::print_stderr, reason = "a note about the page, which may be standard output")]
pub(crate) fn report(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let recording = path_value(arguments, "recording").context("no recording")?;
    let page = match path_value(arguments, "file") {
        Some(file) => file.to_owned(),
        None if is_stdin(recording) => recording.to_owned(),
        None => recording.with_extension("html"),
    };
    if page == recording && !is_stdin(&page) {
        return Ok(wrong_usage(anyhow::anyhow!(
            "the page would replace the recording {}: name another file with --file",
            recording.display()
        )));
    }
    let history = read(recording, arguments)?;
    let html = history.document(&title(recording)).html()?;
    if is_stdin(&page) {
        print(&html)?;
    } else {
        std::fs::write(&page, html).with_context(|| format!("cannot write {}", page.display()))?;
        let (cycles, variants) = (history.cycles() as usize, history.variants());
        let size = format!("{} of {}", count(cycles, "cycle"), count(variants, "variant"));
        print(&format!("{}: {size}\n", page.display()))?;
    }
    if history.variants() > MAX_ROWS {
        eprintln!(
            "note: of {} variants the page has sums and a table; choose at most {MAX_ROWS} by name or with -n to see each",
            history.variants()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Decides the cycles of a recording again, for a page or a timeline.
///
/// # Errors
/// The file cannot be read, a line is not a snapshot (with its number), or the recording is empty.
pub fn read_recording(recording: &Path, selection: Selection) -> anyhow::Result<History> {
    let mut history = History::new(selection);
    read_cycles(recording, |cycle| history.add_cycle(&cycle))?;
    Ok(history)
}

fn read(recording: &Path, arguments: &ArgMatches) -> anyhow::Result<History> {
    let namespace = value(arguments, "namespace");
    let names = values(arguments, "name").into_iter().map(str::to_owned).collect();
    let history = read_recording(recording, Selection { namespace: namespace.map(str::to_owned), names })?;
    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let missing = history.missing_names();
    anyhow::ensure!(
        missing.is_empty(),
        "{}: no variant {}{place} in the recording",
        name(recording),
        missing.join(", ")
    );
    anyhow::ensure!(history.variants() > 0, "{}: no variant{place} in the recording", name(recording));
    Ok(history)
}

/// The page may be passed on, so it has no folder of this machine.
fn title(recording: &Path) -> String {
    let file = recording.file_name().filter(|_| !is_stdin(recording));
    file.map_or_else(|| name(recording).to_string(), |file| file.to_string_lossy().into_owned())
}
