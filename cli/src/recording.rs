//! Reads recordings of `wva explain --record`: one snapshot a line.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use wva_crds::unknown_fields::UnknownFields;
use wva_scaling::Snapshot;
use wva_scaling::snapshot::SnapshotFile;

use crate::input::{self, STDIN, is_stdin};
use crate::output::{UnreadableFile, newer_writer_note, print_warning};

/// Snapshots of large installs have a few megabytes.
const MAX_LINE: u64 = 256 << 20;

/// Name in messages.
pub(crate) fn name(recording: &Path) -> std::path::Display<'_> {
    if is_stdin(recording) { Path::new(STDIN).display() } else { recording.display() }
}

/// What to tell about the snapshots of a file.
#[derive(Debug, Default)]
pub(crate) struct FileWarnings {
    newer_writer: Option<String>,
    unknown: UnknownFields,
}

impl FileWarnings {
    /// Notes what the file has beyond its snapshot.
    pub(crate) fn add(&mut self, file: SnapshotFile) -> Snapshot {
        self.newer_writer = self.newer_writer.take().or_else(|| file.header.newer_writer());
        self.unknown.merge(file.unknown);
        file.snapshot
    }

    /// Prints at most one line. The unknown fields of a newer wva are no news, those of others are typing errors.
    pub(crate) fn print(&self, file: &str) {
        if let Some(writer) = &self.newer_writer {
            print_warning(&newer_writer_note(file, "was written by", writer));
        } else if self.unknown.first().is_some() {
            print_warning(&format!("{file}: unknown fields are ignored: {}", self.unknown));
        }
    }
}

/// Line by line: the recording of a week may not fit into memory.
///
/// # Errors
/// The file cannot be read, a line is not a snapshot (with its number), or the recording is empty.
pub(crate) fn read_cycles(recording: &Path, mut add: impl FnMut(Snapshot)) -> anyhow::Result<()> {
    let opened = input::open(recording).map_err(|error| UnreadableFile::new(recording, error))?;
    let (mut lines, mut line, mut cycles) = (BufReader::new(opened), String::new(), 0_u64);
    let mut warnings = FileWarnings::default();
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
        let cycle = SnapshotFile::parse(&line).with_context(|| format!("{} is not a snapshot", place()))?;
        add(warnings.add(cycle));
        cycles += 1;
    }
    anyhow::ensure!(
        cycles > 0,
        "{}: the recording has no cycles; `wva explain --record FILE` writes them",
        name(recording)
    );
    warnings.print(&name(recording).to_string());
    Ok(())
}
