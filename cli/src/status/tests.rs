//! Frames of a terminal, and rows that change in a pipe.

use std::time::Duration;

use serde_json::{Value, json};

use super::changes::ChangedRows;
use super::frame::Frame;
use super::rows::ClusterState;
use super::*;
use crate::leader::LeaderSnapshot;

/// A variant, its target, and the KV cache use of its replica.
type State<'a> = (&'a str, u32, f64);

fn object((name, target, _): &State<'_>) -> Value {
    json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": name, "namespace": "prod", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"scaleTargetRef": {"name": name}, "modelID": "m"},
        "status": {
            "desiredOptimizedAlloc": {"numReplicas": target, "lastRunTime": "2026-01-01T00:59:00Z"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
        },
    })
}

fn reading(variants: &[State<'_>], notes: &[&str]) -> Reading {
    reading_of(variants.iter().map(object).collect(), variants, notes)
}

fn reading_of(objects: Vec<Value>, variants: &[State<'_>], notes: &[&str]) -> Reading {
    let in_snapshot = |(name, _, kv): &State<'_>| json!({"name": name, "current": 1, "replicas": [{"pod": "p", "kv": kv, "queue": 0}]});
    let models: Vec<Value> = variants.iter().map(in_snapshot).collect();
    let snapshot = json!({"models": [{"modelID": "m", "namespace": "prod", "variants": models}]});
    let snapshot = wva_scaling::Snapshot::parse(&snapshot.to_string()).unwrap();
    let now = "2026-01-01T01:00:00Z".parse().unwrap();
    let state = ClusterState {
        variants: objects,
        workloads: Workloads::default(),
        namespaces: Vec::new(),
        leader_snapshots: &[LeaderSnapshot { controller: "pod wva/wva-0".to_owned(), answer: snapshot }],
        now,
    };
    let notes = notes.iter().map(|note| (*note).to_owned()).collect();
    Reading { rows: state.rows(), gpus: Vec::new(), notes, scope: "in namespace prod".to_owned(), now }
}

fn frame(reading: &Reading) -> Frame<'_> {
    Frame {
        reading,
        wide: false,
        interval: Duration::from_secs(2),
        error: None,
        coloured: false,
        height: None,
        width: None,
    }
}

#[test]
fn frame_has_a_bar_for_the_load() {
    // The threshold of the KV cache use is 0.8.
    let reading = reading(&[("a", 1, 0.4), ("b", 2, 0.79), ("c", 3, 1.0), ("d", 1, 0.0)], &[]);
    let lines = frame(&reading).lines();
    let want = [
        "wva status at 2026-01-01T01:00:00Z, every 2 s, Ctrl-C ends it",
        "",
        "NAMESPACE   NAME   DESIRED   CURRENT   READY   SATURATION        TTFT   ITL   CONDITION",
        "prod        a      1         -         -       █████       50%   -      -     Ready",
        "prod        b      2         -         -       █████████▉  99%   -      -     Ready",
        "prod        c      3         -         -       ██████████ 125%   -      -     Ready",
        "prod        d      1         -         -                    0%   -      -     Ready",
    ];
    assert_eq!(lines, want, "{}", lines.join("\n"));
    let coloured = Frame { coloured: true, ..frame(&reading) }.lines().join("\n");
    for bar in ["\x1b[32m█████\x1b[0m ", "\x1b[33m█████████▉\x1b[0m ", "\x1b[31m██████████\x1b[0m 125%"]
    {
        assert!(coloured.contains(bar), "{bar:?} is not in {coloured:?}");
    }
}

#[test]
fn frame_fits_the_terminal() {
    let names: Vec<String> = (0..50).map(|i| format!("v{i:02}")).collect();
    let states: Vec<State<'_>> = names.iter().map(|name| (name.as_str(), 1, 0.1)).collect();
    let reading = reading(&states, &["no leader"]);
    for rows in [1, 5, 24] {
        let lines = Frame { height: Some(rows), error: Some("timeout"), ..frame(&reading) }.lines();
        assert!(lines.len() <= rows, "{} lines of {rows}", lines.len());
    }
    let lines =
        Frame { height: Some(24), error: Some("timeout; next try in 4 s"), ..frame(&reading) }.lines();
    assert_eq!(
        lines[20..],
        ["... 33 more: choose with -n, -l or names", "", "error: timeout; next try in 4 s", "no leader"],
        "{lines:#?}"
    );
}

#[test]
fn frame_never_cuts_a_reason() {
    let states: Vec<State<'_>> =
        vec![("a-variant-of-a-large-model-on-h100-in-zone-b", 1, 0.4), ("b", 12, 0.4)];
    let mut first = object(&states[0]);
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "False", "reason": reason});
    first["status"]["conditions"] = json!([
        condition("Ready", "ServiceMonitorNotFound"),
        condition("SignalFollowed", "AnotherAutoscaler"),
        condition("NeedMet", "WaitingForQuota"),
    ]);
    let reading =
        reading_of(vec![first, object(&states[1])], &states, &["no leader: the port-forward ended"]);
    let words = |lines: &[String]| {
        lines.join(" ").split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    for wide in [false, true] {
        let whole = words(&Frame { wide, ..frame(&reading) }.lines());
        assert!(
            whole.contains("not ready: ServiceMonitorNotFound, not followed: AnotherAutoscaler"),
            "{whole}"
        );
        for width in [60, 80, 119, 120, 200] {
            let lines = Frame { wide, width: Some(width), ..frame(&reading) }.lines();
            assert_eq!(words(&lines), whole);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
        }
    }
    let narrow = Frame { width: Some(119), ..frame(&reading) };
    let lines = narrow.lines();
    assert!(lines[4].starts_with("prod        a-variant-of") && lines[4].ends_with('-'), "{lines:#?}");
    assert!(lines[5].starts_with("    not ready: ServiceMonitorNotFound, not followed:"), "{lines:#?}");
    // Lines that continue count towards the height, and a variant is shown whole or not at all.
    let lines = Frame { height: Some(9), ..narrow }.lines();
    assert_eq!(
        (lines.len(), lines[6].as_str()),
        (9, "... 1 more: choose with -n, -l or names"),
        "{lines:#?}"
    );
}

#[test]
fn wide_frame_lists_the_gpus() {
    let mut reading = reading(&[("a", 1, 0.4)], &[]);
    let inventory = json!({"models": [], "config": {"inventory": {"H100": {"limit": 8, "used": 5}}}});
    let answer = wva_scaling::Snapshot::parse(&inventory.to_string()).unwrap();
    reading.gpus = rows::gpu_rows(&[LeaderSnapshot { controller: "pod wva/wva-0".to_owned(), answer }]);
    let has_gpus = |wide| {
        Frame { wide, ..frame(&reading) }.lines().contains(&"H100          8          5      3".to_owned())
    };
    assert!(has_gpus(true) && !has_gpus(false), "{:#?}", Frame { wide: true, ..frame(&reading) }.lines());
}

#[test]
fn pipe_gets_only_rows_that_change() {
    let mut changes = ChangedRows::new("text");
    let mut update = |states: &[State<'_>]| changes.update(reading(states, &[])).unwrap();
    let first = update(&[("a", 1, 0.4), ("long-name", 2, 0.4)]);
    assert_eq!(first.lines().count(), 3, "{first}");
    assert_eq!(update(&[("a", 1, 0.4), ("long-name", 2, 0.4)]), "");
    let a = "prod        a           2         -         -       50%          -      -     Ready\n";
    assert_eq!(update(&[("a", 2, 0.4), ("long-name", 2, 0.4)]), a);
    assert!(update(&[("a", 2, 0.4), ("b", 1, 0.4), ("long-name", 2, 0.4)]).starts_with("prod        b "));
    let gone = update(&[("b", 1, 0.4), ("long-name", 2, 0.4)]);
    assert!(gone.starts_with("prod        a ") && gone.ends_with("Deleted\n"), "{gone}");
}

#[test]
fn heading_comes_with_the_first_rows() {
    let mut changes = ChangedRows::new("text");
    assert_eq!(changes.update(reading(&[], &[])).unwrap(), "no VariantAutoscalings in namespace prod\n");
    assert!(changes.update(reading(&[("a", 1, 0.4)], &[])).unwrap().starts_with("NAMESPACE "));
}

#[test]
fn pipe_of_json_has_a_document_for_each_change() {
    let mut changes = ChangedRows::new("json");
    changes.update(reading(&[("a", 1, 0.4), ("b", 1, 0.4)], &[])).unwrap();
    let text = changes.update(reading(&[("a", 1, 0.4), ("b", 3, 0.4)], &[])).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["variants"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&document["variants"][0]["name"], &document["variants"][0]["desired"]),
        (&json!("b"), &json!(3))
    );
}

#[test]
fn interval_has_a_minimum() {
    assert!(parse_interval("2s").is_ok() && parse_interval("500ms").is_ok());
    assert!(parse_interval("10ms").is_err() && parse_interval("soon").is_err());
}

#[test]
fn json_matches_its_schema() {
    let mut reading = reading(&[("a", 1, 0.4)], &[]);
    crate::assert_schema(FileKind::StatusReport, &reading.render("json").unwrap());
    reading.rows[0] = reading.rows[0].deleted();
    crate::assert_schema(FileKind::StatusReport, &reading.render("json").unwrap());
}
