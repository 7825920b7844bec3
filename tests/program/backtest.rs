//! `wva backtest` on a file that an export would write, and its errors. `make bench-backtest` runs it on a real
//! Prometheus.

use serde_json::json;

use crate::history::calm_hours;
use crate::{RunResult, Scratch, assert_contains, run};

fn backtest(arguments: &[&str]) -> RunResult {
    run(&[&["backtest"], arguments].concat(), "")
}

/// Two calm hours: two requests a minute at one replica, which take 20 ms for a token.
fn lines(ttft: [u32; 6]) -> String {
    calm_hours(2, ttft)
}

#[test]
fn judges_an_export() {
    let scratch = Scratch::new("backtest-judges");
    let file = scratch.file("week.jsonl", &lines([0, 10, 0, 0, 0, 0]));
    let page = scratch.path("page.html");
    let text = backtest(&["--from", &file, "--report", &page]).ends(0);
    text.prints(&[
        "prod/acme/secret: 240 requests in 2 h; 2 h judged",
        "wva, default",
        "best fixed fleet, 1",
        "oracle",
    ]);
    let json = backtest(&["--from", &file, "-o", "json", "--cost", "2.5"]).ends(0).json();
    let policies = json["models"][0]["policies"].as_array().unwrap();
    assert_eq!((policies[0]["name"].as_str(), policies.len()), (Some("what ran"), 10));
    let cost = policies[0]["cost"].as_f64().unwrap();
    assert!((cost - 5.0).abs() < 0.1, "{cost}");
    let page = std::fs::read_to_string(page).unwrap();
    assert_contains(
        &page,
        &["\"kind\":\"charts\"", "\"kind\":\"points\"", "Calibration", "\"best fixed fleet\""],
    );
    assert!(!page.contains("[null") && !page.contains(",null"), "every point is known");
}

/// A tenth of the first tokens took over a second, which no engine with this load shows.
#[test]
fn refuses_hours_that_the_simulation_does_not_show() {
    let scratch = Scratch::new("backtest-refuses");
    let file = scratch.file("week.jsonl", &lines([0, 8, 0, 0, 0, 2]));
    backtest(&["--from", &file])
        .ends(1)
        .prints(&["no verdict", "not judged: 2027-01-15T08:00Z: 80.0 % of the first tokens"]);
}

#[test]
fn an_anonymous_export_has_no_names_and_the_same_verdict() {
    let scratch = Scratch::new("backtest-anonymous");
    let file = scratch.file("week.jsonl", &lines([0, 10, 0, 0, 0, 0]));
    let export = scratch.path("anonymous.jsonl");
    let named = backtest(&["--from", &file, "--export", &export, "--anonymous", "-o", "json"]).ends(0).json();
    let text = std::fs::read_to_string(&export).unwrap();
    assert!(!text.contains("secret") && !text.contains("prod"), "{text}");
    let anonymous = backtest(&["--from", &export, "-o", "json"]).ends(0).json();
    assert_eq!(anonymous["models"][0]["policies"], named["models"][0]["policies"]);
    assert_eq!(anonymous["models"][0]["model"], "model-1");
}

#[test]
fn tuned_settings_are_an_entry_that_validate_accepts() {
    let scratch = Scratch::new("backtest-tuned");
    let file = scratch.file("day.jsonl", &calm_hours(6, [0, 10, 0, 0, 0, 0]));
    let tuned = backtest(&["--from", &file, "--tune", "-o", "json"]).ends(0).json();
    let tuned = &tuned["models"][0]["tuned"];
    assert_eq!((&tuned["chosenOn"]["hours"], &tuned["shownOn"]["hours"]), (&json!(4), &json!(2)), "{tuned}");
    let map = scratch.file("tuned.yaml", tuned["configMap"].as_str().unwrap());
    run(&["validate", &map], "").ends(0);
    // Hours that cannot be judged are not tuned on, and an entry is proposed only on top of a sound calibration.
    let late = scratch.file("late.jsonl", &calm_hours(6, [0, 8, 0, 0, 0, 2]));
    let refused = backtest(&["--from", &late, "--tune", "-o", "json"]).ends(1).json();
    let model = &refused["models"][0];
    assert!(model["tuned"].is_null() && model["tuningRefused"].is_string(), "{model}");
    backtest(&["--from", &late, "--tune"]).ends(1).prints(&["no settings proposed: "]);
    let few = scratch.file("hours.jsonl", &lines([0, 10, 0, 0, 0, 0]));
    backtest(&["--from", &few, "--tune"]).ends(0).prints(&["fewer than four hours are judged"]);
}

/// A file of an export with the GPUs that NVIDIA's exporter counted.
#[test]
fn costs_are_of_gpus_that_were_counted() {
    let scratch = Scratch::new("backtest-gpus");
    let gpus = "\"gpus\":{\"name\":\"H100\",\"count\":4.0},\"engine\"";
    let file = scratch.file("week.jsonl", &lines([0, 10, 0, 0, 0, 0]).replacen("\"engine\"", gpus, 1));
    let json = backtest(&["--from", &file, "-o", "json", "--cost", "nvidia-h100=2.5"]).ends(0).json();
    let cost = json["models"][0]["policies"][0]["cost"].as_f64().unwrap();
    assert!((cost - 20.0).abs() < 0.1, "{cost}");
    backtest(&["--from", &file, "--cost", "H100=2.5"]).ends(0).prints(&["a replica has 4 H100"]);
    backtest(&["--from", &file, "--cost", "H200=3"]).ends(2).reports(&[
        "--cost: \"H200\" is neither a model nor a GPU",
        "acme/secret",
        "H100",
    ]);
}

#[test]
fn errors_name_file_line_and_option() {
    let scratch = Scratch::new("backtest-errors");
    let header = ["--prometheus", "http://127.0.0.1:1", "--header", "hunter2"];
    backtest(&header).ends(2).reports(&["--header: no = after the name"]);
    backtest(&[]).ends(2).reports(&["--prometheus"]);
    backtest(&["--from", &scratch.path("none.jsonl")]).ends(2).reports(&["cannot read"]);
    backtest(&["--prometheus", "ftp://p"]).ends(2).reports(&["--prometheus: \"ftp://p\""]);
    backtest(&["--prometheus", "http://127.0.0.1:1"]).ends(3).reports(&["check --prometheus"]);
    let file = scratch.file("bad.jsonl", &lines([0, 10, 0, 0, 0, 0]).replace("\"cells\"", "\"cell\""));
    backtest(&["--from", &file]).ends(1).reports(&["bad.jsonl line 2", "cells"]);
    let file = scratch
        .file("snapshot.jsonl", "{\"apiVersion\": \"wva.llmd.ai/v1alpha1\", \"kind\": \"Snapshot\"}\n");
    backtest(&["--from", &file]).ends(1).reports(&["Snapshot", "BacktestHistory", "--export"]);
    let file = scratch.file("week.jsonl", &lines([0, 10, 0, 0, 0, 0]));
    backtest(&["--from", &file, "-n", "other"])
        .ends(1)
        .reports(&["week.jsonl has no such model: correct -n or --model; it has prod/acme/secret"]);
}
