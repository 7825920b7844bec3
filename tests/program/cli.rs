//! The command line as a user meets it: exit codes, messages, and what goes to which stream.
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself does")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};

use crate::wrong_settings;

fn wva(args: &[&str], env: &[(&str, &str)], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wva"))
        .args(args)
        .env_remove("PROMETHEUS_BASE_URL")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that has ended does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn kubeconfig_of(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: c, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
    )
}

const TWO_SATURATED: &str = "models:
- modelID: m
  namespace: prod
  variants:
  - name: a
    current: 2
    replicas:
    - {pod: a-0, kv: 0.75}
    - {pod: a-1, kv: 0.76}
";

#[test]
fn decide_gives_target_and_trace() {
    let out = wva(&["decide", "-f", "-", "--format", "json"], &[], TWO_SATURATED);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let decision = &json["decisions"][0];
    assert_eq!(decision["current"], 2);
    assert_eq!(decision["target"], 3);
    assert_eq!(decision["action"], "up");
    assert_eq!(decision["reason"], "SpareBelowTarget");
    assert_eq!(decision["steps"][0]["stage"], "analyze");
    let told = text(&wva(&["decide", "-f", "-"], &[], TWO_SATURATED).stdout);
    assert!(told.contains("2 -> 3") && told.contains("SpareBelowTarget"), "{told}");
}

/// What stands between the first of one text and the next of another.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    text.split_once(begin).unwrap().1.split_once(end).unwrap().0
}

#[test]
fn the_example_of_the_page_on_scaling_is_what_decide_prints() {
    let page = include_str!("../../docs/scaling.md");
    let out = wva(&["decide", "-f", "-"], &[], between(page, "<<'END'\n", "END\n"));
    let shown = between(between(page, "<<'END'", "## "), "```text\n", "```");
    assert_eq!(text(&out.stdout), shown);
}

#[test]
fn decide_is_the_same_whatever_the_order_of_its_input() {
    let json = |input: &str| text(&wva(&["decide", "-f", "-", "--format", "json"], &[], input).stdout);
    let swapped = TWO_SATURATED
        .replace("{pod: a-0, kv: 0.75}", "X")
        .replace("{pod: a-1, kv: 0.76}", "{pod: a-0, kv: 0.75}")
        .replace('X', "{pod: a-1, kv: 0.76}");
    assert_eq!(json(TWO_SATURATED), json(&swapped));
}

#[test]
fn a_snapshot_that_is_wrong_is_refused_with_its_path() {
    let out = wva(&["decide", "-f", "-"], &[], &TWO_SATURATED.replace("kv: 0.75", "kw: 0.75"));
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(said.contains("models[0].variants[0].replicas[0]") && said.contains("kw"), "{said}");
    assert_eq!(wva(&["decide", "-f", "/no/such/file"], &[], "").status.code(), Some(1));
}

#[test]
fn an_empty_snapshot_is_a_command_that_failed_and_no_fleet() {
    for nothing in ["", " \n"] {
        let out = wva(&["decide", "-f", "-"], &[], nothing);
        assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), String::new()));
        let said = text(&out.stderr);
        assert!(said.contains("<stdin> is empty") && said.contains("wva explain --snapshot"), "{said}");
    }
    let out = wva(&["decide", "-f", "-"], &[], "models: []");
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(text(&out.stdout), "no variant in it, so nothing is decided\n");
}

#[test]
fn every_wrong_setting_is_named_with_its_source_and_the_process_ends_with_1() {
    let out = wva(&["run", "--metrics-secure=perhaps"], &[("GLOBAL_OPT_INTERVAL", "sixty")], "");
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    for part in
        ["METRICS_SECURE (flag --metrics-secure)", "GLOBAL_OPT_INTERVAL (environment", "PROMETHEUS_BASE_URL"]
    {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
}

#[test]
fn five_wrong_settings_are_one_message() {
    let said = wrong_settings::said();
    for part in [
        "5 settings are wrong:\n",
        "METRICS_SECURE (flag --metrics-secure): found \"perhaps\": write true or false",
        "GLOBAL_OPT_INTERVAL (environment GLOBAL_OPT_INTERVAL): \"60\" lacks a unit",
        "PROMETHEUS_BASE_URL (environment PROMETHEUS_BASE_URL): found \"ftp://user:***@prometheus\"",
        "LEADER_ELECTION_LEASE_DURATION (environment LEADER_ELECTION_LEASE_DURATION): found LEADER_ELECTION_LEASE_DURATION=10s",
        "CONFIG_FILE (environment CONFIG_FILE): found \"/no/such/file\"",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}

#[test]
fn the_settings_are_printed_without_a_cluster_too() {
    let env = [("PROMETHEUS_BASE_URL", "http://p"), ("KUBECONFIG", "/no/such/file")];
    let out = wva(&["run", "--print-config", "-v=4"], &env, "");
    let printed = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(printed.lines().next().unwrap().contains("not read, so its keys are missing here"), "{printed}");
    assert!(printed.lines().any(|line| line.starts_with("V=4 ") && line.ends_with("# flag -v")), "{printed}");
    let out = wva(&["--print-config"], &env[1..], "");
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(1), ""));
    assert!(
        text(&out.stderr).contains("PROMETHEUS_BASE_URL (default): is required"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn wrong_usage_ends_with_2() {
    assert_eq!(wva(&["decide"], &[], "").status.code(), Some(2));
    assert_eq!(wva(&["no-such-command"], &[], "").status.code(), Some(2));
    for address in ["http://127.0.0.1:8082", "127.0.0.1", ":8082", "localhost:x"] {
        let out = wva(&["explain", "--address", address], &[], "");
        assert_eq!(out.status.code(), Some(2), "{address}");
        assert!(text(&out.stderr).contains("such as 127.0.0.1:8082"), "{address}: {}", text(&out.stderr));
    }
}

#[test]
fn a_kubeconfig_that_is_not_there_is_said_once() {
    let out = wva(&["status"], &[("KUBECONFIG", "/no/such/kubeconfig")], "");
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(said.starts_with("wva: no way to the API server"), "{said}");
    assert_eq!(said.matches("/no/such/kubeconfig").count(), 1, "{said}");
}

#[test]
fn an_api_server_that_does_not_answer_is_named() {
    let server = "http://127.0.0.1:9";
    let kubeconfig = std::env::temp_dir().join(format!("wva-cli-nobody-{}", std::process::id()));
    std::fs::write(&kubeconfig, kubeconfig_of(server)).unwrap();
    for command in ["status", "explain", "doctor", "migrate"] {
        let out = wva(&[command], &[("KUBECONFIG", kubeconfig.to_str().unwrap())], "");
        assert_eq!(out.status.code(), Some(1), "{command}");
        let said = text(&out.stderr);
        assert!(said.contains(server) && said.contains("check KUBECONFIG"), "{command}: {said}");
        assert!(!said.contains("--controller-namespace"), "that helps nobody here: {said}");
    }
    std::fs::remove_file(&kubeconfig).unwrap();
}

#[test]
fn the_crd_goes_to_stdout_as_it_is_checked_in() {
    let out = wva(&["crd"], &[], "");
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(text(&out.stdout), include_str!("../../crds/llmd.ai_variantautoscalings.yaml"));
}

#[test]
fn explain_says_where_it_asked_when_nobody_answers() {
    let out = wva(&["explain", "--address", "127.0.0.1:9"], &[], "");
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(said.contains("127.0.0.1:9") && said.contains("--address"), "{said}");
}

#[test]
fn what_another_server_answers_is_no_explanation_and_no_snapshot() {
    // As the health address does, which is easily taken for the debug address.
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = held.accept() {
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let file = std::env::temp_dir().join(format!("wva-cli-snapshot-{}", std::process::id()));
    let out = wva(&["explain", "--address", &address, "--snapshot", file.to_str().unwrap()], &[], "");
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), String::new()));
    let said = text(&out.stderr);
    assert!(said.contains(&address) && said.contains("WVA_DEBUG_BIND_ADDRESS"), "{said}");
    assert!(!file.exists(), "something was written");
}

#[test]
fn a_start_that_waits_for_its_map_says_so() {
    // Bound, and nobody answers.
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = std::env::temp_dir().join(format!("wva-cli-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let kubeconfig = directory.join("config");
    let server = format!("http://{}", held.local_addr().unwrap());
    std::fs::write(&kubeconfig, kubeconfig_of(&server)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_wva"))
        .args(["--log-format=json"])
        .env("KUBECONFIG", &kubeconfig)
        .env_remove("PROMETHEUS_BASE_URL")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let line: serde_json::Value = serde_json::from_str(&first).unwrap_or_else(|e| panic!("{e}: {first}"));
    assert_eq!(line["level"], "warn", "{first}");
    let said = line["msg"].as_str().unwrap();
    assert!(said.contains("cannot read the ConfigMap workload-variant-autoscaler-system/"), "{first}");
}

#[test]
fn every_command_shows_an_example_and_ends_with_2_on_wrong_usage() {
    let commands = [
        "run", "validate", "decide", "explain", "status", "doctor", "migrate", "simulate", "certs", "crd",
        "webhook-config",
    ];
    for command in commands {
        let help = wva(&[command, "--help"], &[], "");
        assert_eq!(help.status.code(), Some(0), "{command}");
        assert!(text(&help.stdout).contains("Example"), "{command}: {}", text(&help.stdout));
        assert_eq!(wva(&[command, "--no-such-flag"], &[], "").status.code(), Some(2), "{command}");
    }
    assert_eq!(wva(&["doctor", "--compare"], &[], "").status.code(), Some(2), "it needs --prometheus");
}

#[test]
fn webhook_configurations_are_printed_whole_or_as_the_chart_has_them() {
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/config/base/webhook.yaml");
    let wanted: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(&std::fs::read_to_string(base).unwrap()).unwrap();
    let printed = |args: &[&str]| -> Vec<serde_json::Value> {
        let out = wva(&[&["webhook-config"], args].concat(), &[], "");
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        serde_saphyr::from_multiple(&text(&out.stdout)).unwrap()
    };
    assert_eq!(printed(&["--without-rules"]), wanted);
    let whole = printed(&["--external-metrics", "--namespace", "wva", "--webhook-service", "x-service"]);
    assert_eq!(whole.len(), 3);
    assert_eq!(whole[0]["metadata"]["name"], "wva-x");
    assert_eq!(whole[1]["webhooks"][0]["rules"][0]["resources"][0], "variantautoscalings");
    assert_eq!(
        whole[2]["spec"]["service"],
        serde_json::json!({"name": "x-service", "namespace": "wva", "port": 6443})
    );
    let out = wva(&["webhook-config", "--ca-file", base], &[], "");
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("found no certificate"), "{}", text(&out.stderr));
}

#[test]
fn webhook_configurations_of_names_that_nothing_can_have_are_not_printed() {
    for (option, value) in [
        ("--namespace", "A B"),
        ("--namespace", ""),
        ("--webhook-service", "a.b"),
        ("--webhook-configuration", "a_b"),
        ("--controller-instance", "a b"),
        ("--watch-namespace", "a,b"),
        ("--config-map-name", "a/b"),
        ("--saturation-config-map-name", "'"),
        ("--service-class-config-map-name", "A"),
    ] {
        let out = wva(&["webhook-config", option, value], &[], "");
        assert_eq!((out.status.code(), text(&out.stdout)), (Some(2), String::new()), "{option} {value:?}");
        assert!(text(&out.stderr).contains(option), "{option}: {}", text(&out.stderr));
    }
}

#[test]
fn objects_of_the_original_are_migrated_to_what_validate_takes() {
    let file = |name: &str| format!("{}/tests/fixtures/migrate/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    for (name, steps) in [("first-releases", 2), ("v0.8", 1), ("v0.9", 4)] {
        let out = wva(&["migrate", &file(name)], &[], "");
        let (printed, said) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(out.status.code(), Some(0), "{said}");
        assert!(
            said.contains(&format!("{steps} to apply")) && said.contains("Nothing was changed"),
            "{said}"
        );
        let judged = wva(&["validate", "--strict", "-"], &[], &printed);
        assert_eq!(judged.status.code(), Some(0), "{name}: {}\n{printed}", text(&judged.stdout));
        assert!(text(&judged.stdout).contains(": 0 denied, 0 warnings"), "{}", text(&judged.stdout));
    }
    let broken =
        wva(&["migrate", "-"], &[], "kind: VariantAutoscaling\napiVersion: llmd.ai/v1alpha1\nspec: {}\n");
    assert_eq!(broken.status.code(), Some(1), "a person has to settle something");
    assert!(text(&broken.stderr).contains("<stdin>:1: spec.modelID"), "{}", text(&broken.stderr));
    assert_eq!(wva(&["migrate", "/no/such/file"], &[], "").status.code(), Some(2));
}
