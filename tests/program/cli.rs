//! Command line: exit codes, messages and output streams.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::{RunResult, Scratch, finish, run, wva};

pub(super) fn kubeconfig_of(server: &str) -> String {
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

fn decide(input: &str) -> RunResult {
    run(&["decide", "-f", "-"], input)
}

#[test]
fn decide_prints_target_and_trace() {
    let json = run(&["decide", "-f", "-", "--format", "json"], TWO_SATURATED).ends(0).json();
    let decision = &json["decisions"][0];
    assert_eq!(decision["current"], 2);
    assert_eq!(decision["target"], 3);
    assert_eq!(decision["action"], "up");
    assert_eq!(decision["reason"], "SpareBelowTarget");
    assert_eq!(decision["steps"][0]["stage"], "analyze");
    decide(TWO_SATURATED).prints(&["2 -> 3", "SpareBelowTarget"]);
}

/// Text between the first `begin` and the next `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    text.split_once(begin).unwrap().1.split_once(end).unwrap().0
}

#[test]
fn example_in_scaling_page_equals_output_of_decide() {
    let page = include_str!("../../docs/concepts/analyzers.md");
    let shown = between(between(page, "<<'END'", "## "), "```text\n", "```");
    assert_eq!(decide(between(page, "<<'END'\n", "END\n")).stdout, shown);
}

#[test]
fn invalid_snapshot_is_refused_with_its_path() {
    let invalid = TWO_SATURATED.replace("kv: 0.75", "kv: 1.75");
    decide(&invalid).ends(1).reports(&["models[0].variants[0].replicas[0].kv", "1.75"]);
    run(&["decide", "-f", "/no/such/file"], "").ends(2).reports(&["cannot read /no/such/file"]);
}

#[test]
fn empty_snapshot_file_is_an_error() {
    for empty in ["", " \n"] {
        let out = decide(empty).ends(1).reports(&["<stdin> is empty", "wva explain --snapshot"]);
        assert_eq!(out.stdout, "");
    }
    assert_eq!(decide("models: []").ends(0).stdout, "the snapshot has no variants; nothing to decide\n");
}

#[test]
fn print_config_works_without_a_cluster() {
    let without_cluster = |args: &[&str]| {
        let mut command = wva(args);
        command.env("KUBECONFIG", "/no/such/file");
        command
    };
    let mut valid = without_cluster(&["run", "--print-config", "-v=4"]);
    let printed = finish(valid.env("PROMETHEUS_BASE_URL", "http://p"), "").ends(0).stdout;
    assert!(printed.lines().next().unwrap().contains("not read, so its keys are missing here"), "{printed}");
    assert!(printed.lines().any(|line| line.starts_with("V=4 ") && line.ends_with("# flag -v")), "{printed}");
    let out = finish(&mut without_cluster(&["run", "--print-config"]), "").ends(1);
    assert!(
        out.stdout.contains("\nPROMETHEUS_BASE_URL=  "),
        "the table although it is missing: {}",
        out.stdout
    );
    out.reports(&["PROMETHEUS_BASE_URL (default): is required"]);
}

#[test]
fn wrong_usage_ends_with_2() {
    run(&["decide"], "").ends(2);
    run(&["no-such-command"], "").ends(2);
    for address in ["http://127.0.0.1:8082", "127.0.0.1", ":8082", "localhost:x"] {
        run(&["explain", "--address", address], "").ends(2).reports(&["such as 127.0.0.1:8082"]);
    }
}

#[test]
fn missing_kubeconfig_is_named_once() {
    let error = finish(wva(&["status"]).env("KUBECONFIG", "/no/such/kubeconfig"), "").ends(2).stderr;
    assert!(error.starts_with("wva: no API server configured"), "{error}");
    assert_eq!(error.matches("/no/such/kubeconfig").count(), 1, "{error}");
    assert_eq!(error.trim_end().lines().count(), 2, "{error}");
    assert!(error.contains("set --kubeconfig or KUBECONFIG"), "{error}");
}

#[test]
fn unreachable_api_server_is_named() {
    let server = "http://127.0.0.1:9";
    let scratch = Scratch::new("cli-unreachable");
    let kubeconfig = scratch.file("config", &kubeconfig_of(server));
    for command in ["status", "explain", "doctor", "migrate"] {
        let out = finish(wva(&[command]).env("KUBECONFIG", &kubeconfig), "").ends(3);
        let error = out.reports(&[server, "check KUBECONFIG"]).stderr;
        assert!(!error.contains("--controller-namespace"), "irrelevant advice: {error}");
    }
}

#[test]
fn crd_command_prints_the_checked_in_crd() {
    assert_eq!(run(&["crd"], "").ends(0).stdout, include_str!("../../crds/llmd.ai_variantautoscalings.yaml"));
}

#[test]
fn explain_names_the_address_that_does_not_answer() {
    run(&["explain", "--address", "127.0.0.1:9"], "").ends(3).reports(&["127.0.0.1:9", "--address"]);
}

#[test]
fn explain_rejects_answers_of_another_server() {
    // Answers like the health address, which is easily mistaken for the debug address.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let scratch = Scratch::new("cli-snapshot");
    let file = scratch.path("snapshot.yaml");
    let out = run(&["explain", "--address", &address, "--snapshot", &file], "").ends(3);
    assert_eq!(out.reports(&[&address, "WVA_DEBUG_BIND_ADDRESS"]).stdout, "");
    assert!(!std::fs::exists(&file).unwrap(), "a snapshot was written");
}

#[test]
fn start_logs_that_it_waits_for_the_main_map() {
    // The listener never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let scratch = Scratch::new("cli-waits");
    let server = format!("http://{}", listener.local_addr().unwrap());
    let kubeconfig = scratch.file("config", &kubeconfig_of(&server));
    let mut child = wva(&["run", "--standalone", "--log-format=json"])
        .env("KUBECONFIG", &kubeconfig)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let line: serde_json::Value = serde_json::from_str(&first).unwrap_or_else(|e| panic!("{e}: {first}"));
    assert_eq!(line["level"], "warn", "{first}");
    let message = line["msg"].as_str().unwrap();
    assert!(message.contains("cannot read the ConfigMap workload-variant-autoscaler-system/"), "{first}");
}

#[test]
fn compare_needs_prometheus() {
    run(&["doctor", "--compare"], "").ends(2).reports(&["--prometheus"]);
    run(&["doctor", "--compare", "--prometheus=http://p", "-o", "json"], "").ends(2).reports(&["--output"]);
}

#[test]
fn leading_outside_a_pod_needs_election_or_standalone() {
    let scratch = Scratch::new("cli-standalone");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let body =
                r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
            let head = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-type: application/json";
            let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
    });
    let kubeconfig = scratch.file("config", &kubeconfig_of(&server));
    let mut run = wva(&["run"]);
    run.env("KUBECONFIG", &kubeconfig).env("PROMETHEUS_BASE_URL", "http://127.0.0.1:9");
    run.env_remove("KUBERNETES_SERVICE_HOST");
    finish(&mut run, "").ends(2).reports(&["--leader-elect", "--standalone"]);
}

#[test]
fn webhook_config_prints_with_or_without_rules() {
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/config/base/webhook.yaml");
    let wanted: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(&std::fs::read_to_string(base).unwrap()).unwrap();
    let printed = |args: &[&str]| -> Vec<serde_json::Value> {
        let out = run(&[&["webhook-config"], args].concat(), "").ends(0);
        serde_saphyr::from_multiple(&out.stdout).unwrap()
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
    run(&["webhook-config", "--ca-file", base], "").ends(2).reports(&["no certificate found"]);
}

#[test]
fn webhook_config_rejects_invalid_names() {
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
        let out = run(&["webhook-config", option, value], "").ends(2).reports(&[option]);
        assert_eq!(out.stdout, "", "{option} {value:?}");
    }
}

#[test]
fn generate_prints_what_its_page_shows() {
    let page = include_str!("../../docs/guides/generate.md");
    let out = run(&["generate", "-n", "prod", "-f", "tests/fixtures/generate/vllm-args.yaml"], "").ends(0);
    assert_eq!(between(page, "```yaml\n", "```"), out.stdout);
    assert_eq!(between(page, "```text\n", "```"), out.stderr);
    run(&["validate", "--strict", "-"], out.stdout).ends(0).prints(&["2 objects: 0 denied, 0 warnings"]);
    let pod = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{image: vllm}]}}}\n";
    run(&["generate", "-f", "-"], pod).ends(1).reports(&["<stdin>:1: Deployment default/a: no model found"]);
    run(&["generate", "-f", "-", "--model-id", "m", "-o", "json"], pod)
        .ends(0)
        .prints(&["\"kind\": \"List\""]);
    run(&["generate"], "").ends(2);
    run(&["generate", "-f", "/no/such/file"], "").ends(2);
}

#[test]
fn migrate_prints_manifests_that_validate_accepts() {
    let file = |name: &str| format!("{}/tests/fixtures/migrate/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    for (name, steps) in [("first-releases", 2), ("v0.8", 1), ("v0.9", 4)] {
        let out = run(&["migrate", &file(name)], "").ends(0);
        let out = out.reports(&[&format!("{steps} to apply"), "Nothing was applied"]);
        // The HPAs keep their behaviour: they may be for a cluster without a tolerance.
        run(&["validate", "--strict", "--kube-version", "1.34", "-"], out.stdout)
            .ends(0)
            .prints(&[": 0 denied, 0 warnings"]);
    }
    // This object needs a manual change.
    let broken = "kind: VariantAutoscaling\napiVersion: llmd.ai/v1alpha1\nspec: {}\n";
    run(&["migrate", "-"], broken).ends(1).reports(&["<stdin>:1: spec.modelID"]);
    run(&["migrate", "/no/such/file"], "").ends(2);
}
