//! `wva simulate` as a person runs it: the scenarios that come with it, its outputs, and what it says of a bad file.

#![expect(clippy::unwrap_used, reason = "a test's own input")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wva")).arg("simulate").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios").join(name)
}

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulate").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_scenarios_that_come_with_it_run_and_repeat() {
    for name in ["ladder", "prefill-heavy", "bursts", "ramp", "two-classes", "stock-out", "cold-morning"] {
        let file = scenario(&format!("{name}.yaml"));
        let run = || simulate(&[file.to_str().unwrap()]);
        let (first, second) = (run(), run());
        assert!(first.status.success(), "{name}: {}", text(&first.stderr));
        assert_eq!(first.stdout, second.stdout, "{name}");
        assert!(text(&first.stdout).lines().any(|l| l.starts_with("oracle ")), "{name}");
    }
}

#[test]
fn json_a_report_and_a_sweep() {
    let folder = folder("outputs");
    let report = folder.join("report.html");
    let file = scenario("cold-morning.yaml");
    let output =
        simulate(&[file.to_str().unwrap(), "--sweep=policies.0.wva.saturation.kvSpareTrigger=0.1..0.3/2"]);
    assert!(text(&output.stdout).contains("kvSpareTrigger = 0.3"), "{}", text(&output.stderr));
    let output = simulate(&[
        file.to_str().unwrap(),
        "--seeds=2",
        "--sweep=policies.0.wva.interval=30..60/2",
        "--format=json",
    ]);
    assert!(!output.status.success(), "an interval is a duration, and a sweep sets numbers");
    let output = simulate(&[
        file.to_str().unwrap(),
        "--seeds=2",
        "--sweep=cost=20..40/2",
        "--format=json",
        &format!("--report={}", report.display()),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["scenarios"][1]["title"], "cold morning, cost = 40");
    let cost = |i: usize| json["scenarios"][i]["policies"][0]["figures"]["cost"]["mean"].as_f64().unwrap();
    assert!((cost(1) / cost(0) - 2.0).abs() < 1e-9);
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.contains("<svg") && page.contains("cold morning, cost = 20"));
}

#[test]
fn a_trace_is_read_from_beside_its_scenario() {
    let folder = folder("trace");
    let row = |i: u32| format!("2023-11-16 18:{:02}:{:02}.5,800,50", i / 60, i % 60);
    let header = "TIMESTAMP,ContextTokens,GeneratedTokens".to_owned();
    let rows: Vec<String> = std::iter::once(header).chain((0..600).map(row)).collect();
    std::fs::write(folder.join("azure.csv"), rows.join("\n")).unwrap();
    let scenario = "
name: recorded
objectives: {ttft: 1s, itl: 100ms}
traffic: {trace: {file: azure.csv, layout: azure}}
variants: [{name: a, accelerator: H100, engine: {}}]
policies: [{name: one, fixed: {a: 1}}]
";
    let file = folder.join("scenario.yaml");
    std::fs::write(&file, scenario).unwrap();
    let output = simulate(&[file.to_str().unwrap()]);
    assert!(
        text(&output.stdout).lines().any(|l| l.starts_with("one  ") && l.contains(" 100.00 ")),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    std::fs::write(&file, scenario.replace("azure.csv", "none.csv")).unwrap();
    let output = simulate(&[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("traffic.trace.file: "), "{}", text(&output.stderr));
}

#[test]
fn two_scenarios_are_compared() {
    let (a, b) = (scenario("cold-morning.yaml"), scenario("prefill-heavy.yaml"));
    let output = simulate(&["--compare", a.to_str().unwrap(), b.to_str().unwrap()]);
    let shown = text(&output.stdout);
    assert!(
        shown.contains("cold morning (1 seed)") && shown.contains("prefill-heavy step (1 seed)"),
        "{shown}"
    );
    assert_eq!(simulate(&[]).status.code(), Some(2), "no scenario at all is wrong usage");
    let settings = simulate(&[a.to_str().unwrap(), "--config=changed.yaml"]);
    assert_eq!(settings.status.code(), Some(2), "they are for --replay alone");
}

#[test]
fn an_empty_scenario_is_called_empty() {
    let empty = folder("empty").join("empty.yaml");
    std::fs::write(&empty, "\n").unwrap();
    let output = simulate(&[empty.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.ends_with("empty.yaml cannot be simulated: it is empty\n"), "{said}");
}

#[test]
fn a_report_that_cannot_be_written_costs_no_figures() {
    let report = folder("unwritable").join("no-such-folder/report.html");
    let scenario = scenario("cold-morning.yaml");
    let output = simulate(&[scenario.to_str().unwrap(), "--report", report.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("cold morning (1 seed)"), "{}", text(&output.stdout));
}

#[test]
fn recorded_cycles_are_decided_again_under_other_settings() {
    let folder = folder("replay");
    let line = |minute: u32| {
        format!(
            r#"{{"now":"2026-01-01T00:{minute:02}:00Z","models":[{{"modelID":"m","namespace":"prod","variants":[{{"name":"a","cost":"40.0","current":1,"replicas":[{{"pod":"p","kv":0.65,"queue":0}}]}}]}}]}}"#
        )
    };
    let (recorded, config) = (folder.join("day.jsonl"), folder.join("changed.yaml"));
    std::fs::write(&recorded, format!("{}\n{}\n", line(0), line(1))).unwrap();
    std::fs::write(&config, "saturation: {default: {kvSpareTrigger: 0.3}}").unwrap();
    let run = |more: &[&str]| {
        let files = [&format!("--replay={}", recorded.display()), &format!("--config={}", config.display())];
        simulate(&files.iter().map(|f| f.as_str()).chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let output = run(&[]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("Open loop") && said.contains("changed   -> 2  SpareBelowTarget"), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&run(&["--format=json"]).stdout).unwrap();
    assert_eq!(json["differences"][0]["cycles"], 2);

    // What is wrong is named by file and line, or by field.
    std::fs::write(&recorded, format!("{}\n{{\"models\": 3}}\n", line(0))).unwrap();
    let said = text(&run(&[]).stderr);
    assert!(said.contains("day.jsonl, line 2") && said.contains("models"), "{said}");
    std::fs::write(&config, "saturation: {default: {kvSpareTriger: 0.3}}").unwrap();
    let said = text(&run(&[]).stderr);
    assert!(said.contains("changed.yaml") && said.contains("config.saturation.default"), "{said}");
    std::fs::write(&config, "limitedMode: true").unwrap();
    std::fs::write(&recorded, "").unwrap();
    assert!(text(&run(&[]).stderr).contains("no cycle is recorded"));
    assert_eq!(simulate(&["--replay=day.jsonl"]).status.code(), Some(2), "nothing is to be changed");
}
