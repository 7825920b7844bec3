//! `wva simulate`: included scenarios, outputs, and errors of invalid files.

use crate::{RunResult, Scratch, assert_contains, run};

fn simulate(arguments: &[&str]) -> RunResult {
    run(&[&["simulate"], arguments].concat(), "")
}

fn scenario(name: &str) -> String {
    format!("{}/tests/scenarios/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn included_scenarios_run_and_are_deterministic() {
    for name in ["ladder", "prefill-heavy", "bursts", "ramp", "two-classes", "stock-out", "cold-morning"] {
        let file = scenario(&format!("{name}.yaml"));
        let run = || simulate(&[&file]);
        let (first, second) = (run().ends(0), run());
        assert_eq!(first.stdout, second.stdout, "{name}");
        assert!(first.stdout.lines().any(|l| l.starts_with("oracle ")), "{name}");
        assert!(first.stdout.lines().all(|line| line.chars().count() <= 100), "{}", first.stdout);
    }
}

#[test]
fn included_scenarios_are_found_by_name() {
    let listed = simulate(&["--list"]).ends(0).stdout;
    assert!(listed.lines().any(|line| line.starts_with("ladder ")), "{listed}");
    let file = scenario("cold-morning.yaml");
    assert_eq!(
        simulate(&["--print", "cold-morning"]).ends(0).stdout,
        std::fs::read_to_string(&file).unwrap()
    );
    assert_eq!(simulate(&["cold-morning"]).ends(0).stdout, simulate(&[&file]).stdout);
    simulate(&["cold-morning", "-o", "wide"]).ends(0).prints(&["TTFT p50 s", "recovery s"]);
    simulate(&["--print", "no-such"]).ends(2).reports(&["--list"]);
    simulate(&["no-such"]).ends(2).reports(&["cannot read no-such"]);
}

#[test]
fn writes_json_report_and_sweep() {
    let scratch = Scratch::new("simulate-outputs");
    let report = scratch.path("report.html");
    let file = scenario("cold-morning.yaml");
    let simulate = |more: &[&str]| simulate(&[&[file.as_str()], more].concat());
    simulate(&["--sweep=policies.0.wva.saturation.kvSpareTrigger=0.1..0.3/2"])
        .prints(&["kvSpareTrigger = 0.3"]);
    // A sweep sets numbers, but an interval is a duration.
    simulate(&["--seeds=2", "--sweep=policies.0.wva.interval=30..60/2", "--format=json"]).ends(1);
    let written = format!("--report={report}");
    let json = simulate(&["--seeds=2", "--sweep=cost=20..40/2", "--format=json", &written]).ends(0).json();
    assert_eq!(json["scenarios"][1]["title"], "cold morning, cost = 40");
    let cost = |i: usize| json["scenarios"][i]["policies"][0]["figures"]["cost"]["mean"].as_f64().unwrap();
    assert!((cost(1) / cost(0) - 2.0).abs() < 1e-9);
    let page = std::fs::read_to_string(report).unwrap();
    assert_contains(&page, &["\"kind\":\"charts\"", "cold morning, cost = 20"]);
}

#[test]
fn trace_path_is_relative_to_the_scenario() {
    let scratch = Scratch::new("simulate-trace");
    let row = |i: u32| format!("2023-11-16 18:{:02}:{:02}.5,800,50", i / 60, i % 60);
    let header = "TIMESTAMP,ContextTokens,GeneratedTokens".to_owned();
    let rows: Vec<String> = std::iter::once(header).chain((0..600).map(row)).collect();
    scratch.file("azure.csv", &rows.join("\n"));
    let scenario = "
name: recorded
objectives: {ttft: 1s, itl: 100ms}
traffic: {trace: {file: azure.csv, layout: azure}}
variants: [{name: a, accelerator: H100, engine: {}}]
policies: [{name: one, fixed: {a: 1}}]
";
    let file = scratch.file("scenario.yaml", scenario);
    let output = simulate(&[&file]).ends(0).stdout;
    assert!(output.lines().any(|l| l.starts_with("one  ") && l.contains(" 100.00 ")), "{output}");
    scratch.file("scenario.yaml", &scenario.replace("azure.csv", "none.csv"));
    simulate(&[&file]).ends(1).reports(&["traffic.trace.file: "]);
}

#[test]
fn compares_two_scenarios() {
    let (a, b) = (scenario("cold-morning.yaml"), scenario("prefill-heavy.yaml"));
    simulate(&["--compare", &a, &b]).prints(&["cold morning (1 seed)", "prefill-heavy step (1 seed)"]);
    // A scenario is required, and --config needs --replay.
    simulate(&[]).ends(2);
    simulate(&[&a, "--config=changed.yaml"]).ends(2);
}

#[test]
fn similar_names_of_scenarios_are_suggested() {
    let error = "no included scenario laddr; similar: ladder. `wva simulate --list` lists them\n";
    assert_eq!(simulate(&["--print", "laddr"]).ends(2).stderr, format!("wva: {error}"));
    for arguments in [&["laddr"][..], &["--compare", "ladder", "laddr"]] {
        let error = format!("wva: cannot read laddr: no such file, and {error}");
        assert_eq!(simulate(arguments).ends(2).stderr, error);
    }
    simulate(&["other.yaml"]).ends(2).reports(&["cannot read other.yaml"]);
}

#[test]
fn empty_scenario_is_named() {
    let scratch = Scratch::new("simulate-empty");
    let error = simulate(&[&scratch.file("empty.yaml", "\n")]).ends(1).stderr;
    assert!(error.ends_with("empty.yaml: the file is empty\n"), "{error}");
}

#[test]
fn prints_figures_even_if_the_report_cannot_be_written() {
    let report = Scratch::new("simulate-unwritable").path("no-such-folder/report.html");
    simulate(&[&scenario("cold-morning.yaml"), "--report", &report])
        .ends(1)
        .reports(&["cannot write"])
        .prints(&["cold morning (1 seed)"]);
}

#[test]
fn replays_recorded_cycles_with_other_settings() {
    let scratch = Scratch::new("simulate-replay");
    let line = |minute: u32| {
        format!(
            r#"{{"now":"2026-01-01T00:{minute:02}:00Z","models":[{{"modelID":"m","namespace":"prod","variants":[{{"name":"a","cost":"40.0","current":1,"replicas":[{{"pod":"p","kv":0.65,"queue":0}}]}}]}}]}}"#
        )
    };
    let recording = |text: &str| scratch.file("day.jsonl", text);
    let config = |text: &str| scratch.file("changed.yaml", text);
    let files = [
        format!("--replay={}", recording(&format!("{}\n{}\n", line(0), line(1)))),
        format!("--config={}", config("saturation: {default: {kvSpareTrigger: 0.3}}")),
    ];
    let run = |more: &[&str]| {
        simulate(&files.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>())
    };
    run(&[]).ends(0).prints(&["Open loop", "changed   -> 2  SpareBelowTarget"]);
    assert_eq!(run(&["--format=json"]).json()["differences"][0]["cycles"], 2);

    // Errors name file and line, or the field.
    recording(&format!("{}\n{{\"models\": 3}}\n", line(0)));
    run(&[]).reports(&["day.jsonl, line 2", "models"]);
    config("saturation: {default: {kvSpareTriger: 0.3}}");
    run(&[]).reports(&["changed.yaml", "config.saturation.default"]);
    config("limitedMode: true");
    recording("");
    run(&[]).reports(&["the recording has no cycles"]);
    // --config is missing.
    simulate(&["--replay=day.jsonl"]).ends(2);
}
