//! Reads recordings of `wva explain --record`: one snapshot a line.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use wva_scaling::Snapshot;

use crate::input::{self, STDIN, is_stdin};
use crate::output::UnreadableFile;

/// Snapshots of large installs have a few megabytes.
const MAX_LINE: u64 = 256 << 20;

/// Name in messages.
pub(crate) fn name(recording: &Path) -> std::path::Display<'_> {
    if is_stdin(recording) { Path::new(STDIN).display() } else { recording.display() }
}

/// Line by line: the recording of a week may not fit into memory.
///
/// # Errors
/// The file cannot be read, a line is not a snapshot (with its number), or the recording is empty.
pub(crate) fn read_cycles(recording: &Path, mut add: impl FnMut(Snapshot)) -> anyhow::Result<()> {
    let opened = input::open(recording).map_err(|error| UnreadableFile::new(recording, error))?;
    let (mut lines, mut line, mut cycles) = (BufReader::new(opened), String::new(), 0_u64);
    for number in 1_u64.. {
        let place = || format!("{}, line {number}", name(recording));
        line.clear();
        let read = lines.by_ref().take(MAX_LINE + 1).read_line(&mut line).with_context(place)?;
        if read == 0 {
            break;
        }
        anyhow::ensure!(read as u64 <= MAX_LINE, "{}: longer than {MAX_LINE} bytes", place());
        if line.trim().is_empty() {
            continue;
        }
        add(Snapshot::parse(&line).with_context(|| format!("{} is not a snapshot", place()))?);
        cycles += 1;
    }
    anyhow::ensure!(
        cycles > 0,
        "{}: the recording has no cycles; `wva explain --record FILE` writes them",
        name(recording)
    );
    Ok(())
}
