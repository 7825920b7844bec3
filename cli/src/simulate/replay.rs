//! `wva simulate --replay FILE --config FILE`: decides recorded cycles again.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches};
use wva_scaling::Snapshot;
use wva_simulator::replay::{Change, Replay};

use crate::arguments::{file_option, output_format, path_value};
use crate::output::{UnreadableFile, print, structured};

/// Snapshots of large installs have a few megabytes.
const MAX_LINE: u64 = 256 << 20;

pub(super) fn arguments() -> [Arg; 2] {
    let replay = "Decide the cycles of a recording (`wva explain --record`) again with --config (open loop)";
    let config = "Settings for --replay: fields of a snapshot's config, which replace the recorded ones";
    let replay = file_option("replay", replay).requires("config");
    // `requires` has no effect next to a scenario, which conflicts with --replay.
    let config = file_option("config", config).requires("replay").conflicts_with("scenario");
    [replay.conflicts_with_all(["compare", "seeds", "sweep", "report"]), config]
}

pub(super) fn replay(recording: &Path, arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = path_value(arguments, "config").context("no --config")?;
    let context = || format!("cannot apply {}", config.display());
    let change = super::read_text(config).with_context(context)?;
    let change = Change::read(&change).with_context(context)?;
    let replay = decide_again(recording, &change)?;
    anyhow::ensure!(replay.cycles > 0, "{}: the recording has no cycles", recording.display());
    print(&match output_format(arguments) {
        format @ ("json" | "yaml") => structured(&replay.json(), format)?,
        _ => replay.text(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Line by line: a week's recording may not fit into memory.
fn decide_again(recording: &Path, change: &Change) -> anyhow::Result<Replay> {
    let opened = File::open(recording).map_err(|error| UnreadableFile::new(recording, error))?;
    let mut lines = BufReader::new(opened);
    let (mut replay, mut line) = (Replay::default(), String::new());
    for number in 1_u64.. {
        let place = || format!("{}, line {number}", recording.display());
        line.clear();
        let read = lines.by_ref().take(MAX_LINE + 1).read_line(&mut line).with_context(place)?;
        if read == 0 {
            break;
        }
        anyhow::ensure!(read as u64 <= MAX_LINE, "{}: longer than {MAX_LINE} bytes", place());
        if line.trim().is_empty() {
            continue;
        }
        let snapshot = Snapshot::parse(&line).with_context(|| format!("{} is not a snapshot", place()))?;
        replay.add_cycle(snapshot, change);
    }
    Ok(replay)
}
