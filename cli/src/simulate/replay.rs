//! `wva simulate --replay FILE --config FILE`: recorded cycles, decided again under other settings.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches};
use wva_scaling::Snapshot;
use wva_simulator::replay::{Change, Replay};

use crate::arguments::{file, file_option, word};
use crate::output::print;

/// Snapshots of the largest installs are a few megabytes.
const LONGEST_LINE: u64 = 256 << 20;

pub(super) fn arguments() -> [Arg; 2] {
    let replay = "Cycles that `wva explain --record` recorded, decided again under --config (open loop)";
    let config = "Settings for --replay: fields of a snapshot's config, each in place of the recorded one";
    let replay = file_option("replay", replay).requires("config");
    // Beside a scenario, which forbids --replay, --config would not be asked for.
    let config = file_option("config", config).requires("replay").conflicts_with("scenario");
    [replay.conflicts_with_all(["compare", "seeds", "sweep", "report"]), config]
}

pub(super) fn replay(recorded: &Path, arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = file(arguments, "config").context("no --config")?;
    let change = super::text(config).with_context(|| format!("{} cannot be applied", config.display()))?;
    let change = Change::read(&change).with_context(|| format!("{} cannot be applied", config.display()))?;
    let replay = decide_again(recorded, &change)?;
    anyhow::ensure!(replay.cycles > 0, "{}: no cycle is recorded in it", recorded.display());
    print(&match word(arguments, "format") {
        Some("json") => format!("{}\n", replay.json()),
        _ => replay.text(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// One line after the other: a recording of a week need not fit into memory.
fn decide_again(recorded: &Path, change: &Change) -> anyhow::Result<Replay> {
    let opened = File::open(recorded).with_context(|| format!("cannot open {}", recorded.display()))?;
    let mut lines = BufReader::new(opened);
    let (mut replay, mut line) = (Replay::default(), String::new());
    for number in 1_u64.. {
        let place = || format!("{}, line {number}", recorded.display());
        line.clear();
        let read = lines.by_ref().take(LONGEST_LINE + 1).read_line(&mut line).with_context(place)?;
        if read == 0 {
            break;
        }
        anyhow::ensure!(read as u64 <= LONGEST_LINE, "{}: it is longer than {LONGEST_LINE} bytes", place());
        if line.trim().is_empty() {
            continue;
        }
        let snapshot = Snapshot::parse(&line).with_context(|| format!("{} is no snapshot", place()))?;
        replay.take(snapshot, change);
    }
    Ok(replay)
}
