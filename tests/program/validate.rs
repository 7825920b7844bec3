//! `wva validate`: output formats and exit codes for real files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{RunResult, Scratch, finish, wva};

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/validate");

/// Runs `wva validate` among the fixtures.
fn validate(args: &[&str], input: impl AsRef<[u8]>) -> RunResult {
    validate_in(Path::new(FIXTURES), args, input)
}

fn validate_in(directory: &Path, args: &[&str], input: impl AsRef<[u8]>) -> RunResult {
    finish(wva(&[&["validate"], args].concat()).current_dir(directory), input)
}

fn json(args: &[&str], input: impl AsRef<[u8]>) -> Value {
    validate(&[args, &["--format", "json"]].concat(), input).json()
}

/// `file:line:column code severity` of each finding.
fn rows(args: &[&str], input: impl AsRef<[u8]>) -> Vec<String> {
    let row = |f: &Value| {
        let word = |key: &str| f[key].as_str().unwrap().to_owned();
        format!("{}:{}:{} {} {}", word("file"), f["line"], f["column"], word("code"), word("severity"))
    };
    json(args, input)["findings"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn finds_lines_of_entries_in_config_maps_and_autoscalers() {
    let wanted = [
        "maps.yaml:10:5 WVA-CM-022 deny", "maps.yaml:11:24 WVA-CM-023 deny",
        "maps.yaml:13:5 WVA-CM-022 deny", "maps.yaml:14:23 WVA-CM-023 deny",
        "maps.yaml:22:24 WVA-CM-002 deny", "maps.yaml:23:3 WVA-CM-051 warn",
        "maps.yaml:26:24 WVA-CM-002 deny", "maps.yaml:31:1 WVA-HPA-053 warn",
        "maps.yaml:38:15 WVA-HPA-051 warn", "maps.yaml:39:22 WVA-HPA-052 warn",
    ];
    assert_eq!(rows(&["maps.yaml"], ""), wanted);
}

#[test]
fn main_map_is_the_one_that_the_deployment_names() {
    let map = |name: &str, namespace: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata: {{V: loud}}\n---\n"
        )
    };
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: m, namespace: wva}\nspec: {template: {spec: {containers: [{env: [{name: CONFIG_MAP_NAME, value: mine}]}]}}}\n";
    let own = map("mine", "wva") + deployment;
    assert_eq!(rows(&["-"], &own), ["<stdin>:4:11 WVA-CM-002 deny"]);
    let elsewhere = map("mine", "prod") + deployment;
    assert_eq!(rows(&["-"], &elsewhere), ["<stdin>:3:35 WVA-CM-053 warn"]);
    assert_eq!(rows(&["-"], map("mine", "wva")), [""; 0], "no controller reads a map of this name");
    let like_the_chart = map("x-variantautoscaling-config", "wva");
    assert_eq!(rows(&["-"], &like_the_chart), [""; 0], "not from the chart");
    let of_the_chart = like_the_chart.replace(
        "namespace: wva",
        "namespace: wva, labels: {helm.sh/chart: workload-variant-autoscaler-0.1.0}",
    );
    assert_eq!(rows(&["-"], &of_the_chart), ["<stdin>:4:11 WVA-CM-002 deny"]);
}

/// A line of the text format; of a violation only code and field.
fn without_message(line: &str) -> String {
    let code_and_field = |line: &str| {
        let (code, rest) = line.strip_prefix("error[")?.split_once("]: ")?;
        Some(format!("error[{code}]: {}", rest.split_once(": ")?.0))
    };
    code_and_field(line).unwrap_or_else(|| line.to_owned())
}

#[test]
fn prints_every_violation_below_its_line() {
    let output = validate(&["five-faults.yaml"], "").ends(1).stdout;
    // The rules have their own tests of the messages, which follow the field.
    let frame: Vec<String> = output.lines().map(without_message).collect();
    assert_eq!(frame.join("\n") + "\n", include_str!("../fixtures/validate/five-faults.txt"), "{output}");
    assert!(output.contains("80.0 (a number) is not a decimal number"), "{output}");
}

#[test]
fn json_has_summary_and_findings() {
    let found = json(&["five-faults.yaml"], "");
    assert_eq!(found["summary"], serde_json::json!({"objects": 2, "deny": 5, "warn": 0}));
    let cost = &found["findings"][3];
    let message = cost["message"].as_str().unwrap().to_owned();
    assert_eq!(
        *cost,
        serde_json::json!({
            "file": "five-faults.yaml", "line": 14, "column": 16,
            "kind": "VariantAutoscaling", "namespace": "prod", "name": "llama-h100",
            "severity": "deny", "code": "WVA-VA-003", "field": "spec.variantCost",
            "message": message, "docs": format!("{REPOSITORY}/blob/main/docs/reference/rules/WVA-VA-003.md"),
        })
    );
}

#[test]
fn sarif_satisfies_its_schema() {
    let mut schema: Value =
        serde_json::from_str(include_str!("../fixtures/sarif/sarif-schema-2.1.0.json")).unwrap();
    // The published patterns have an extra bracket that only JavaScript accepts. The output has no `language`.
    for part in ["run", "toolComponent"] {
        let language = &mut schema["definitions"][part]["properties"]["language"];
        language.as_object_mut().unwrap().remove("pattern").unwrap();
    }
    let schema = jsonschema::validator_for(&schema).unwrap();
    for (args, input) in [
        (&["five-faults.yaml", "list.json"][..], ""),
        (&["-"], "a: [\n---\nkind: Other\n"),
        (&["-"], "kind: Other\n"),
        (&["--against", "old", "moved.yaml"], ""),
    ] {
        let sarif = validate(&[args, &["--format", "sarif"]].concat(), input).json();
        let faults: Vec<String> =
            schema.iter_errors(&sarif).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(faults.is_empty(), "{args:?}: {faults:#?}");
        let run = &sarif["runs"][0];
        for result in run["results"].as_array().unwrap() {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        }
        assert_eq!(run["tool"]["driver"]["informationUri"], REPOSITORY);
        for rule in run["tool"]["driver"]["rules"].as_array().unwrap() {
            let page = format!("/docs/reference/rules/{}.md", rule["id"].as_str().unwrap());
            assert!(rule["helpUri"].as_str().unwrap().ends_with(&page), "{rule}");
        }
    }
    let sarif = validate(&["five-faults.yaml", "--format", "sarif"], "").json();
    let cost = &sarif["runs"][0]["results"][3];
    assert_eq!((&cost["ruleId"], &cost["level"]), (&"WVA-VA-003".into(), &"error".into()));
    assert_eq!(
        cost["locations"][0]["physicalLocation"],
        serde_json::json!({
            "artifactLocation": {"uri": "five-faults.yaml"},
            "region": {"startLine": 14, "startColumn": 16, "endLine": 14, "endColumn": 20},
        })
    );
    let mut broken = sarif.clone();
    broken["runs"][0]["results"][3]["level"] = "deny".into();
    assert!(!schema.is_valid(&broken), "the schema rejects an invalid level");
}

#[test]
fn github_format_has_one_annotation_for_each_finding() {
    let output = validate(&["--format", "github", "five-faults.yaml"], "").ends(1).stdout;
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 6, "{output}");
    let cost = "::error file=five-faults.yaml,line=14,col=16,endColumn=19,title=WVA-VA-003::spec.variantCost: 80.0 (a number)";
    assert!(lines[3].starts_with(cost), "{output}");
    assert_eq!(lines[5], "2 objects (1 of other kinds ignored): 5 denied, 0 warnings");
}

#[test]
fn variants_of_one_input_are_checked_together() {
    let want = ["list.json:9:47 WVA-VA-015 deny", "list.json:15:47 WVA-VA-015 deny"];
    assert_eq!(rows(&["list.json"], ""), want);
    let items = std::fs::read(PathBuf::from(FIXTURES).join("list.json")).unwrap();
    let from_stdin: Vec<String> = want.iter().map(|w| w.replace("list.json", "<stdin>")).collect();
    assert_eq!(rows(&["-"], &items), from_stdin);
}

#[test]
fn with_against_a_change_is_validated_as_an_update() {
    assert_eq!(rows(&["moved.yaml"], ""), ["moved.yaml:11:16 WVA-VA-003 deny"]);
    let want = ["moved.yaml:7:38 WVA-VA-014 deny", "moved.yaml:11:16 WVA-VA-003 warn"];
    assert_eq!(rows(&["--against", "old", "moved.yaml"], ""), want);
    assert_eq!(rows(&["--against", "old/moved.yaml", "moved.yaml"], ""), want);
    // An object in another namespace is not an update.
    let elsewhere = std::fs::read_to_string(PathBuf::from(FIXTURES).join("moved.yaml"))
        .unwrap()
        .replace("name: moved\n  labels", "name: moved\n  namespace: other\n  labels");
    assert_eq!(rows(&["--against", "old", "-"], &elsewhere), ["<stdin>:12:16 WVA-VA-003 deny"]);
}

const FINE: &str = "apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata: {name: a, labels: {inference.optimization/acceleratorName: H100}}
spec: {scaleTargetRef: {name: a}, modelID: m}
";

#[test]
fn exit_code_is_0_1_or_2() {
    let misspelt = FINE.replace("modelID: m", "modelID: m, variantcost: \"1\"");
    for (args, input, want) in [
        (&["-"][..], FINE, 0),
        (&["-", "--strict"], FINE, 0),
        (&["-"], misspelt.as_str(), 0),
        (&["-", "--strict"], misspelt.as_str(), 1),
        (&["-"], "a: [", 1),
        (&["-"], "kind: Other", 0),
        (&["-"], "\n", 2),
        (&["no-such-file.yaml"], "", 2),
        (&["no-such-*.yaml"], "", 2),
        (&["a[.yaml"], "", 2),
        (&["list.json", "no-such-file.yaml"], "", 2),
        (&["--against", "no-such-directory", "-"], FINE, 2),
        (&["--format", "xml", "-"], FINE, 2),
        (&[], "", 2),
    ] {
        let out = validate(args, input);
        assert_eq!(out.code, Some(want), "{args:?} {input:?}: {}", out.stderr);
        assert_eq!(out.stdout.is_empty(), want == 2, "{args:?}: wrong usage prints no result");
        assert_eq!(out.stderr.is_empty(), want != 2, "{args:?}: {}", out.stderr);
    }
    assert_eq!(validate(&["-"], FINE).stdout, "1 object: 0 denied, 0 warnings\n");
}

#[test]
fn expands_directories_and_patterns_without_link_loops() {
    let scratch = Scratch::new("validate-expand");
    for name in ["b/va.yml", "a.yaml", "b/c/d.json", "b/readme.md", ".hidden/a.yaml", "b/.a.yaml"] {
        scratch.file(name, "a: {");
    }
    std::os::unix::fs::symlink("..", scratch.0.join("b/up")).unwrap();
    std::os::unix::fs::symlink("../a.yaml", scratch.0.join("b/link.yaml")).unwrap();
    let dir = &scratch.0;
    for (args, want) in [
        (&["."][..], &["a.yaml", "b/c/d.json", "b/link.yaml", "b/va.yml"][..]),
        (&["b"], &["b/c/d.json", "b/link.yaml", "b/va.yml"]),
        (&["b/../b/"], &["b/../b/c/d.json", "b/../b/link.yaml", "b/../b/va.yml"]),
        (&["**/*.y*ml"], &["a.yaml", "b/link.yaml", "b/va.yml"]),
        (&["./*.yaml", "a.yaml"], &["a.yaml"]),
        (&["*/va.yml"], &["b/va.yml"]),
        (&["?"], &["b/c/d.json", "b/link.yaml", "b/va.yml"]),
        (&["b/up/*.yaml"], &["b/up/a.yaml"]),
        (&[".hidden/a.yaml"], &[".hidden/a.yaml"]),
        (&["b/readme.md"], &["b/readme.md"]),
    ] {
        let found = validate_in(dir, &[args, &["--format", "json"]].concat(), "").json();
        let files: Vec<&str> =
            found["findings"].as_array().unwrap().iter().map(|f| f["file"].as_str().unwrap()).collect();
        assert_eq!(files, want, "{args:?}");
    }
    scratch.file("empty/readme.md", "");
    validate_in(dir, &["empty"], "").ends(2).reports(&["empty: no .yaml"]);
}

#[test]
fn rejects_files_that_are_too_long_or_not_utf8() {
    let scratch = Scratch::new("validate-long");
    scratch.file("long.yaml", &"# a comment\n".repeat(1_500_000));
    validate_in(&scratch.0, &["long.yaml"], "").ends(2).reports(&["longer than 16 MiB"]);
    let latin1 = [FINE.as_bytes(), b"# gr\xfc\xdfe\n"].concat();
    assert_eq!(rows(&["-"], &latin1), ["<stdin>:5:5 WVA-FILE-001 deny"]);
}

#[test]
fn marks_a_misspelt_key() {
    let input = FINE.replace("modelID: m", "modelID: m, modelId: m");
    assert_eq!(json(&["-"], &input)["findings"][0]["field"], "spec.modelId");
    let warning = "warning[WVA-VA-059]: spec.modelId: unknown field, ignored; did you mean modelID?";
    let output = validate(&["-"], &input).prints(&[warning]).stdout;
    let (line, caret) =
        (output.lines().find(|l| l.contains("modelId: m")), output.lines().find(|l| l.contains('^')));
    assert_eq!(line.unwrap().find("modelId: m").unwrap(), caret.unwrap().find('^').unwrap(), "{output}");
}

/// Documents of a sample in `config/samples`.
fn sample(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples").join(name);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// kubectl rejects unknown fields. Kubernetes 1.30 to 1.32 lack `tolerance` alone, which the comment on top says.
#[test]
fn hpa_sample_has_only_tolerance_newer_than_kubernetes_1_30() {
    let fields = |part: &Value| part.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for hpa in sample("hpa-integration.yaml") {
        let behavior = &hpa["spec"]["behavior"];
        assert_eq!(
            fields(&hpa["spec"]),
            ["behavior", "maxReplicas", "metrics", "minReplicas", "scaleTargetRef"]
        );
        for direction in ["scaleUp", "scaleDown"] {
            assert_eq!(
                fields(&behavior[direction]),
                ["policies", "stabilizationWindowSeconds", "tolerance"],
                "{direction}"
            );
        }
    }
}

/// The chart of prometheus-adapter sets both to 10001, which OpenShift's restricted SCC rejects.
#[test]
fn openshift_sample_unsets_user_and_group_of_the_adapter() {
    let values = &sample("prometheus-adapter-values-ocp.yaml")[0];
    for (part, field) in [("podSecurityContext", "fsGroup"), ("securityContext", "runAsUser")] {
        let set = values[part].as_object().unwrap().get(field);
        assert_eq!(set, Some(&Value::Null), "{part}.{field}");
    }
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples/prometheus-adapter-values-ocp.yaml"),
    );
    assert!(text.unwrap().contains("oc create configmap serving-ca"), "command that creates serving-ca");
}
