//! `wva report`: the page of a recording, and errors of invalid recordings.

use crate::{RunResult, Scratch, assert_contains, run};

fn report(arguments: &[&str]) -> RunResult {
    run(&[&["report"], arguments].concat(), "")
}

fn line(minute: u32) -> String {
    format!(
        r#"{{"now":"2026-01-01T00:{minute:02}:00Z","config":{{"saturation":{{"default":{{"kvSpareTrigger":0.1}}}}}},"models":[{{"modelID":"m","namespace":"prod","variants":[{{"name":"a","cost":"40.0","current":1,"replicas":[{{"pod":"p","kv":0.75,"queue":0}}]}},{{"name":"b","cost":"80.0","current":0}}]}}]}}"#
    )
}

fn recording(scratch: &Scratch) -> String {
    scratch.file("day.jsonl", &(0..10).map(|minute| line(minute) + "\n").collect::<String>())
}

#[test]
fn writes_the_page_next_to_the_recording() {
    let scratch = Scratch::new("report");
    let day = recording(&scratch);
    let page = scratch.path("day.html");
    report(&[&day]).ends(0).prints(&[&format!("{page}: 10 cycles of 2 variants\n")]);
    let page = std::fs::read_to_string(page).unwrap();
    assert_contains(
        &page,
        &[
            "<!doctype html>",
            "\"kind\":\"charts\"",
            "\"id\":\"prod/b\"",
            "2026-01-01T00:09:00Z: 1 -> 2\\nSpareBelowTarget: too little spare",
        ],
    );
}

#[test]
fn options_choose_file_and_variants() {
    let scratch = Scratch::new("report-options");
    let day = recording(&scratch);
    let other = scratch.path("other.html");
    report(&[&day, "a", "-n", "prod", "--file", &other]).ends(0).prints(&["10 cycles of 1 variant\n"]);
    assert!(!std::fs::read_to_string(&other).unwrap().contains("prod/b"));
    // Without a file for the page, standard input is written to standard output.
    run(&["report", "-"], std::fs::read(&day).unwrap()).ends(0).prints(&["<!doctype html>", "\\u003cstdin>"]);
    report(&[&day, "--file=-"]).ends(0).prints(&["<!doctype html>"]);
    report(&[&day, "a", "c"]).ends(1).reports(&["day.jsonl: no variant c in the recording"]);
    report(&[&day, "-n", "test"]).ends(1).reports(&["no variant in namespace test in the recording"]);
}

#[test]
fn invalid_recordings_are_named_with_their_line() {
    let scratch = Scratch::new("report-errors");
    let file = |text: &str| scratch.file("bad.jsonl", text);
    report(&[&file("")]).ends(1).reports(&["bad.jsonl: the recording has no cycles", "wva explain --record"]);
    report(&[&file(&format!("{}\n\n{{\"models\": 3}}\n", line(0)))])
        .ends(1)
        .reports(&["bad.jsonl, line 3 is not a snapshot: ", "models"]);
    report(&[&file("{\"models\": [")]).ends(1).reports(&["bad.jsonl, line 1 is not a snapshot"]);
    assert!(!std::path::Path::new(&scratch.path("bad.html")).exists());
    report(&[&scratch.path("none.jsonl")]).ends(2).reports(&["cannot read", "none.jsonl"]);
    report(&[]).ends(2);
}

#[test]
fn never_replaces_the_recording() {
    let scratch = Scratch::new("report-same");
    let file = scratch.file("day.html", &line(0));
    report(&[&file]).ends(2).reports(&["--file"]);
    report(&[&file, "--file", &file]).ends(2);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), line(0));
    report(&[&file, "--file", &scratch.path("none/page.html")]).ends(1).reports(&["cannot write"]);
}
