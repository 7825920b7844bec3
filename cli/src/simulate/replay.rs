//! `wva simulate --replay FILE --config FILE`: decides recorded cycles again.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches};
use wva_crds::envelope::FileKind;
use wva_simulator::replay::{Change, Replay};

use crate::arguments::{file_option, output_format, path_value};
use crate::output::{self, print};
use crate::recording::read_cycles;

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
    let mut replay = Replay::default();
    read_cycles(recording, |cycle| replay.add_cycle(cycle, &change))?;
    print(&match output_format(arguments) {
        format @ ("json" | "yaml") => output::report(FileKind::ReplayReport, replay.report(), format)?,
        _ => replay.text(),
    })?;
    Ok(ExitCode::SUCCESS)
}
