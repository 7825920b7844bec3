//! `wva decide`: runs the decision pipeline on a snapshot file.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};
use wva_crds::envelope::FileKind;
use wva_scaling::snapshot::SnapshotFile;
use wva_scaling::{decide as decide_snapshot, trace};

use crate::arguments::{file_option, output_format, output_option, path_value};
use crate::input::{self, STDIN, is_stdin};
use crate::output::{self, UnreadableFile, object_name, print, print_warning};
use crate::recording::FileWarnings;

const LIMIT: u64 = 256 << 20;

pub(crate) fn command() -> Command {
    Command::new("decide")
        .about("Recompute the decisions of a snapshot, with other settings too")
        .after_help(
            "Examples:\n  wva explain --snapshot cycle.json && wva decide -f cycle.json\n  wva decide -f snapshot.yaml -o json\n\n\
             Exit code: 0 decided, 1 the file is not a snapshot, 2 wrong usage or an\nunreadable file.",
        )
        .arg(
            file_option("file", "Snapshot file (YAML or JSON); - reads standard input")
                .short('f')
                .value_name("SNAPSHOT")
                .required(true),
        )
        .arg(output_option(&["text", "wide", "json", "yaml", "name"]))
}

pub(crate) fn decide(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let file = path_value(arguments, "file").context("no snapshot file")?;
    let format = output_format(arguments);
    let text = read(file)?;
    let mut warnings = FileWarnings::default();
    let snapshot =
        SnapshotFile::parse(&text).with_context(|| format!("{} is not a snapshot", display(file)))?;
    let snapshot = warnings.add(snapshot);
    warnings.print(&display(file).to_string());
    let outcome = decide_snapshot(&snapshot);
    let text = match format {
        "json" | "yaml" => output::report(FileKind::Decisions, &outcome, format)?,
        "name" => outcome.decisions.iter().map(|decision| object_name(&decision.key.name)).collect(),
        _ if outcome.decisions.is_empty() => "the snapshot has no variants; nothing to decide".to_owned(),
        _ => trace::render_with_signals(&snapshot, &outcome),
    };
    print(&format!("{}\n", text.trim_end_matches('\n')))?;
    if !matches!(format, "text" | "wide") {
        for warning in &outcome.warnings {
            print_warning(&warning.to_string());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let reader = input::open(file).map_err(|error| UnreadableFile::new(file, error))?;
    let read = reader.take(LIMIT + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {} as UTF-8 text", display(file)))?;
    anyhow::ensure!(text.len() as u64 <= LIMIT, "{} is longer than {LIMIT} bytes", display(file));
    // Empty input is a failed command in a pipe.
    anyhow::ensure!(
        !text.trim().is_empty(),
        "{} is empty: pass a file written by `wva explain --snapshot FILE`",
        display(file)
    );
    Ok(text)
}

fn display(file: &Path) -> std::path::Display<'_> {
    if is_stdin(file) { Path::new(STDIN).display() } else { file.display() }
}
