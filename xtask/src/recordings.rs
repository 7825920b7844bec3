//! Recordings of releases in `tests/fixtures/recordings`: the oldest one as this commit writes it, and the decisions of each.

use std::fmt::Write as _;
use std::path::Path;

use wva_crds::envelope::{Envelope, FileKind};
use wva_scaling::snapshot::SnapshotFile;

use crate::ROOT;
use crate::files::Files;

const FOLDER: &str = "tests/fixtures/recordings";
/// The recording of this commit.
const NEXT: &str = "next";

pub(crate) fn recordings(files: &mut Files) {
    let folder = Path::new(ROOT).join(FOLDER);
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut releases: Vec<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    releases.retain(|release| release != NEXT);
    releases.sort();
    let read =
        |release: &String| std::fs::read_to_string(folder.join(release).join("recording.jsonl")).unwrap();
    for release in &releases {
        files.add(&format!("{FOLDER}/{release}/decisions.txt"), &decisions(&read(release)));
    }
    let next: String = read(&releases[0]).lines().map(rewrite).collect();
    files.add(&format!("{FOLDER}/{NEXT}/recording.jsonl"), &next);
    files.add(&format!("{FOLDER}/{NEXT}/decisions.txt"), &decisions(&next));
}

/// A cycle as the controller now writes it.
fn rewrite(cycle: &str) -> String {
    let snapshot = SnapshotFile::parse(cycle).unwrap().snapshot;
    serde_json::to_string(&Envelope::new(FileKind::Snapshot, &snapshot)).unwrap() + "\n"
}

/// The decisions of each cycle.
fn decisions(recording: &str) -> String {
    let mut text = String::new();
    for (line, cycle) in (1..).zip(recording.lines()) {
        let outcome = wva_scaling::decide(&SnapshotFile::parse(cycle).unwrap().snapshot);
        let outcome = serde_json::to_value(outcome).unwrap();
        for one in outcome["decisions"].as_array().unwrap() {
            let [namespace, variant, reason] =
                ["namespace", "variant", "reason"].map(|key| one[key].as_str().unwrap());
            let _ = writeln!(text, "{line} {namespace}/{variant} {} {reason}", one["target"]);
        }
    }
    text
}
