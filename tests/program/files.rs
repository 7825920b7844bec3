//! Files and outputs: their schemas, files of other releases, and recordings of releases.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wva_crds::envelope::{API_VERSION, FileKind, WVA_VERSION};

use crate::{RunResult, Scratch, assert_contains, run};

const SNAPSHOT: &str =
    r#"{"models":[{"modelID":"m","namespace":"prod","variants":[{"name":"a","current":1}]}]}"#;

/// Errors of an output against the schema of its kind in `docs/reference`.
fn schema_errors(kind: FileKind, output: &Value) -> Vec<String> {
    let path = Path::new("docs/reference").join(kind.schema_file());
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    validator.iter_errors(output).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[track_caller]
fn assert_schema(kind: FileKind, output: &Value) {
    assert_eq!((&output["apiVersion"], &output["kind"]), (&json!(API_VERSION), &json!(kind.to_string())));
    assert_eq!(schema_errors(kind, output), Vec::<String>::new(), "{output:#}");
}

fn decide(snapshot: &str) -> RunResult {
    run(&["decide", "-f", "-", "-o", "json"], snapshot).ends(0)
}

#[test]
fn outputs_match_their_schemas() {
    let decisions = decide(SNAPSHOT).json();
    assert_schema(FileKind::Decisions, &decisions);
    assert_schema(FileKind::VersionReport, &run(&["version", "--client", "-o", "json"], "").json());
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios/cold-morning.yaml");
    assert_schema(FileKind::SimulationReport, &run(&["simulate", scenario, "-o", "json"], "").json());
    let object = "kind: VariantAutoscaling\napiVersion: llmd.ai/v1alpha1\nmetadata: {name: a}\nspec: {}\n";
    for text in [object, "a: ["] {
        let report = run(&["validate", "-", "-o", "json"], text);
        assert_schema(FileKind::ValidationReport, &report.json());
    }
    // A schema that accepts everything would show nothing.
    for (pointer, wrong) in [
        ("/kind", json!("Snapshot")),
        ("/apiVersion", json!("v1")),
        ("/decisions/0/target", json!("one")),
        ("/decisions/0/steps/0/stage", json!("guess")),
    ] {
        let mut changed = decisions.clone();
        *changed.pointer_mut(pointer).unwrap() = wrong;
        assert!(!schema_errors(FileKind::Decisions, &changed).is_empty(), "{pointer}");
    }
    let mut newer = decisions;
    newer["decisions"][0]["newField"] = json!(1);
    assert_eq!(schema_errors(FileKind::Decisions, &newer), Vec::<String>::new());
}

#[test]
fn every_schema_is_linked_from_the_page_of_files() {
    let page = include_str!("../../docs/reference/files.md");
    for (kind, _) in wva_cli::schemas() {
        let row = format!("| [`{kind}`]({}) |", kind.schema_file());
        assert!(page.contains(&row), "docs/reference/files.md lacks {row:?}");
    }
}

#[test]
fn doctor_reports_that_nothing_answers() {
    let scratch = Scratch::new("files-doctor");
    let config = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:9\"}}]\nusers: [{name: c, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: c}}]\n";
    let kubeconfig = scratch.file("config", config);
    let report = run(&["doctor", "--kubeconfig", &kubeconfig, "-o", "json"], "").ends(3).json();
    assert_schema(FileKind::DoctorReport, &report);
    let check = &report["cluster"][0];
    assert_eq!((&check["check"], &check["state"]), (&json!("cluster"), &json!("unknown")));
    assert_contains(check["message"].as_str().unwrap(), &["no variant was checked", "http://127.0.0.1:9"]);
    assert_eq!(run(&["doctor", "--kubeconfig", &kubeconfig], "").ends(3).stdout, "");
}

#[test]
fn another_kind_is_refused() {
    let decisions = decide(SNAPSHOT).stdout;
    let remedy = "pass a file of `wva explain --snapshot` or `--record`";
    run(&["decide", "-f", "-"], &decisions)
        .ends(1)
        .reports(&[r#"kind: "Decisions" is not Snapshot"#, remedy]);
    run(&["report", "-"], &decisions).ends(1).reports(&["line 1", r#"kind: "Decisions""#, remedy]);
    let object = "apiVersion: llmd.ai/v1alpha1\nkind: VariantAutoscaling\nspec: {modelID: m}\n";
    let group = format!("apiVersion: \"llmd.ai/v1alpha1\" is not {API_VERSION}");
    run(&["decide", "-f", "-"], object).ends(1).reports(&[&group, remedy]);
}

#[test]
fn unknown_fields_are_named_in_one_line() {
    let typing_error = SNAPSHOT.replace(r#""current":1"#, r#""current":1,"raedy":1"#);
    let run = decide(&typing_error);
    let line = "warning: <stdin>: unknown fields are ignored: models[0].variants[0].raedy\n";
    assert_eq!(run.stderr, line);
    assert_eq!(run.stdout, decide(SNAPSHOT).stdout);
    assert_eq!(decide(SNAPSHOT).stderr, "");
}

/// Everything that a newer release may add: fields, and a version of the format.
fn of_newer_release() -> String {
    let mut newer: Value = serde_json::from_str(SNAPSHOT).unwrap();
    for (pointer, field, value) in [
        ("", "apiVersion", json!("wva.llmd.ai/v9")),
        ("", "kind", json!("Snapshot")),
        ("", "wvaVersion", json!("999.0.0")),
        ("", "mood", json!({"good": true})),
        ("/models/0/variants/0", "colour", json!("blue")),
        ("", "config", json!({"saturation": {"default": {"patience": "5m"}}})),
    ] {
        newer.pointer_mut(pointer).unwrap()[field] = value;
    }
    newer.to_string()
}

#[test]
fn file_of_newer_release_is_read_with_one_warning() {
    let warning = |file: &str| {
        format!(
            "warning: {file} was written by wva 999.0.0, newer than this wva {WVA_VERSION}, which ignores fields it does not know: update wva\n"
        )
    };
    let newer = of_newer_release();
    let decided = decide(&newer);
    assert_eq!(decided.stdout, decide(SNAPSHOT).stdout);
    assert_eq!(decided.stderr, warning("<stdin>"));
    let value = newer.replace(r#""colour":"blue""#, r#""mode":"guess""#);
    let error = run(&["decide", "-f", "-"], value).ends(1);
    error.reports(&["models[0].variants[0].mode: ", "the file is of wva 999.0.0", "update wva"]);
    let recording = format!("{SNAPSHOT}\n{newer}\n{newer}\n");
    assert_eq!(run(&["report", "-"], &recording).ends(0).stderr, warning("<stdin>"));
    let scratch = Scratch::new("files-newer");
    let (day, config) = (scratch.file("day.jsonl", &recording), scratch.file("c.yaml", "limitedMode: true"));
    let replayed = run(&["simulate", "--replay", &day, "--config", &config, "-o", "json"], "").ends(0);
    assert_eq!(replayed.stderr, warning(&day));
    let report = replayed.json();
    assert_schema(FileKind::ReplayReport, &report);
    assert_eq!(report["cycles"], 3);
}

/// Debug address of a controller that answers each request with the same body. The cycle never changes.
fn controller(version: &'static str, body: String) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = BufReader::new(&stream).lines();
            while request.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\nwva-cycle: 1\r\nwva-version: {version}");
            let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
    });
    address
}

#[test]
fn newer_controller_is_named_once() {
    let scratch = Scratch::new("files-controller");
    let explain = |version: &'static str| {
        let address = controller(version, of_newer_release());
        let file = scratch.path("cycle.json");
        (run(&["explain", "--address", &address, "a", "b", "--snapshot", &file], "").ends(0).stderr, address)
    };
    let (errors, address) = explain("999.0.0");
    assert_eq!(
        errors,
        format!(
            "warning: {address} runs wva 999.0.0, newer than this wva {WVA_VERSION}, which ignores fields it does not know: update wva\n"
        )
    );
    for same_or_older in [WVA_VERSION, "0.0.1"] {
        assert_eq!(explain(same_or_older).0, "");
    }
}

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

#[test]
fn recording_of_this_release_matches_its_schema() {
    let next = std::fs::read_to_string("tests/fixtures/recordings/next/recording.jsonl").unwrap();
    for cycle in next.lines() {
        assert_schema(FileKind::Snapshot, &serde_json::from_str(cycle).unwrap());
    }
}

#[test]
fn recordings_of_releases_replay() {
    let all = recordings();
    assert!(all.len() >= 2, "{all:?}");
    for folder in all {
        let name = folder.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().to_str().unwrap().to_owned();
        let recording = std::fs::read_to_string(folder.join("recording.jsonl")).unwrap();
        let mut decisions = String::new();
        for (line, cycle) in (1..).zip(recording.lines()) {
            let decided = decide(cycle);
            assert!(!decided.stderr.contains("unknown fields"), "{name}, line {line}: {}", decided.stderr);
            for one in decided.json()["decisions"].as_array().unwrap() {
                let [namespace, variant, reason] =
                    ["namespace", "variant", "reason"].map(|key| one[key].as_str().unwrap());
                let _ = writeln!(decisions, "{line} {namespace}/{variant} {} {reason}", one["target"]);
            }
        }
        assert_eq!(decisions, std::fs::read_to_string(folder.join("decisions.txt")).unwrap(), "{name}");
        let page = run(&["report", &format!("{name}/recording.jsonl"), "--file=-"], "").ends(0);
        assert_eq!(page.stderr, "", "{name}");
        page.prints(&["<!doctype html>"]);
    }
}
