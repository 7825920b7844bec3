use proptest::prelude::*;

use super::input::Source;
use super::*;

/// The output for these files in all formats: text, json, sarif, github.
fn outputs(files: &[(&str, &str)], namespace: &str) -> [String; 4] {
    let sources: Vec<Source> =
        files.iter().map(|(name, text)| Source::new((*name).to_owned(), text.as_bytes().to_vec())).collect();
    let collected = objects::collect(&sources, namespace);
    let report = Report::new(&sources, &collected, evaluate::evaluate(&collected.objects, &[], None, None));
    [
        text::render(&report, false),
        report::json_line(&json::output(&report)),
        sarif::render(&report),
        github::render(&report),
    ]
}

fn places(files: &[(&str, &str)]) -> Vec<String> {
    let json: serde_json::Value = serde_json::from_str(&outputs(files, "default")[1]).unwrap();
    let row = |f: &serde_json::Value| {
        format!(
            "{}:{}:{} {}",
            f["file"].as_str().unwrap(),
            f["line"],
            f["column"],
            f["code"].as_str().unwrap()
        )
    };
    json["findings"].as_array().unwrap().iter().map(row).collect()
}

const FAULTY: &str = "apiVersion: llmd.ai/v1alpha1\nkind: VariantAutoscaling\nmetadata:\n  name: a\nspec:\n  modelID: m\n  variantCost: ten\n  scaleTargetRef:\n    name: a\n";

#[test]
fn sorts_findings_by_file_line_column_and_code() {
    let two = format!("{FAULTY}---\nb: [\n---\n{}", FAULTY.replace("modelID: m", "modelID: {}"));
    let found = places(&[("z.yaml", FAULTY), ("a.yaml", &two)]);
    let want = [
        "a.yaml:7:16 WVA-VA-003", "a.yaml:11:4 WVA-FILE-001", "a.yaml:18:12 WVA-VA-006",
        "a.yaml:19:16 WVA-VA-003", "z.yaml:7:16 WVA-VA-003",
    ];
    assert_eq!(found.into_iter().filter(|f| !f.contains("WVA-VA-055")).collect::<Vec<_>>(), want);
}

#[test]
fn ignores_other_kinds_and_reports_files_without_objects() {
    for (text, want) in [
        ("", &[][..]),
        ("# nothing\n", &[]),
        ("replicas: 1\n", &[]),
        ("apiVersion: v1\nkind: Secret\nx: {a: 1, a: 2}\n", &[]),
        ("Not found\n", &["f:1:1 WVA-FILE-001"]),
        ("- a\n- b\n", &["f:1:1 WVA-FILE-001"]),
        ("a\n---\nreplicas: 1\n", &[]),
        ("{{ if .Values.on }}\na: 1\n{{ end }}\n", &["f:1:2 WVA-FILE-001"]),
    ] {
        let found = places(&[("f", text)]);
        assert_eq!(found, want, "{text:?}");
    }
    assert!(outputs(&[("f", "{{ if .Values.on }}\na: 1\n")], "default")[0].contains("helm template"));
}

#[test]
fn locates_a_duplicate_key_at_its_second_place() {
    let text = FAULTY.replace("variantCost: ten", "variantCost: \"1\"\n  variantCost: \"2\"");
    let github = &outputs(&[("f", &text)], "default")[3];
    let want = "::error file=f,line=8,col=3,endColumn=13,title=WVA-FILE-001::duplicate key \"variantCost\"";
    assert!(github.contains(want), "{github}");
}

#[test]
fn takes_the_kind_of_items_from_their_list() {
    let items =
        "metadata: {}\nitems:\n- metadata: {name: a}\n  spec: {scaleTargetRef: {name: a}, modelID: 7}\n";
    for (head, want) in [
        ("apiVersion: llmd.ai/v1alpha1\nkind: VariantAutoscalingList\n", true),
        ("apiVersion: v1\nkind: List\n", false),
        ("apiVersion: llmd.ai/v1\nkind: OtherList\n", false),
    ] {
        let found = places(&[("f", &format!("{head}{items}"))]);
        assert_eq!(found.iter().any(|f| f.starts_with("f:6:")), want, "{head}: {found:?}");
    }
}

#[test]
fn an_autoscaler_in_a_list_has_the_kind_of_the_list() {
    let text = "apiVersion: keda.sh/v1alpha1\nkind: ScaledObjectList\nmetadata: {}\nitems:\n- metadata: {name: a}\n  spec:\n    \
        scaleTargetRef: {name: a}\n    triggers:\n    - {type: prometheus, metadata: {query: wva_desired_replicas}}\n";
    let github = &outputs(&[("f", text)], "default")[3];
    assert!(github.contains("title=WVA-HPA-051"), "{github}");
}

#[test]
fn compares_variants_within_one_namespace() {
    let other = FAULTY.replace("name: a\nspec", "name: b\n  namespace: prod\nspec");
    let shared = |namespace| outputs(&[("a", FAULTY), ("b", &other)], namespace)[3].contains("WVA-VA-015");
    assert!(shared("prod"));
    assert!(!shared("default"));
}

#[test]
fn replaces_control_characters_in_all_formats() {
    let text = FAULTY
        .replace("ten", "\"\\e[31m\u{9b}1m \u{202e}x\" # \u{7f}\u{200f}")
        .replace("name: a\nspec", "name: \"a\u{9b}b\"\nspec");
    for (name, output) in
        ["text", "json", "sarif", "github"].into_iter().zip(outputs(&[("f\u{202e}", &text)], "default"))
    {
        let harmful = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{200f}' | '\u{202e}');
        if name == "text" || name == "github" {
            let output = output.replace("f\u{202e}", "f");
            assert!(!output.contains(harmful), "{name}: {output:?}");
        }
        assert!(!output.contains('\u{1b}'), "{name}: {output:?}");
    }
}

fn map(name: &str, namespace: &str, data: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata:\n{data}"
    )
}

#[test]
fn prints_no_secret_in_any_format() {
    for data in [
        "  PROMETHEUS_BEARER_TOKN: hunter2\n",
        "  PROMETHEUS_BEARER_TOKEN: hunter2\n  config.yaml: |\n    PROMETHEUS_BEARER_TOKEN: hunter2b\n",
        "  config.yaml: |\n    PROMETHEUS_BEARER_TOKEN: [hunter2]\n",
        "  config.yaml: |\n    EPP_METRIC_READER_BEARER_TOKEN: hunter2\n    EPP_METRIC_READER_BEARER_TOKEN: hunter2\n",
        "  # PROMETHEUS_BEARER_TOKEN: hunter2 }\n  config.yaml: \"PROMETHEUS_BEARER_TOKEN: hunter2\\nV: loud\"\n",
        "  WVA_CONTROLLER: \"false\"\n  PROMETHEUS_BASE_URL: http://u:hunter2@h:99999\n",
        "  PROMETHEUS_BEARER_TOKEN: hunter2\n  PROMETHEUS_BEARER_TOKEN: hunter2\n",
        "  PROMETHEUS_BEARER_TOKEN:\n    hunter2: [\n",
    ] {
        let outputs = outputs(&[("f", &map("wva-variantautoscaling-config", "wva", data))], "default");
        let text = &outputs[0];
        assert!(!text.starts_with("1 object: 0 denied, 0 w") && text.contains(" f:"), "{data}: {text}");
        for output in outputs {
            assert!(!output.contains("hunter2"), "{data}: {output}");
        }
    }
}

#[test]
fn ignores_foreign_maps_with_a_similar_name() {
    let name = "billing-service-classes-config";
    let foreign = map(name, "billing", "  a: \"[\"\n");
    assert_eq!(places(&[("f", &foreign)]), [""; 0]);
    for label in [
        "helm.sh/chart: workload-variant-autoscaler-0.1.0",
        "app.kubernetes.io/name: workload-variant-autoscaler",
    ] {
        let of_chart =
            foreign.replace("namespace: billing", &format!("namespace: billing, labels: {{{label}}}"));
        assert!(!places(&[("f", &of_chart)]).is_empty(), "{label}");
    }
}

#[test]
fn entries_inherit_from_the_effective_global_map() {
    let local =
        map("wva-saturation-scaling-config", "prod", "  m: |\n    model_id: m\n    kvSpareTrigger: 0.3\n");
    let global = |name: &str, threshold: &str| {
        map(name, "wva", &format!("  default: |\n    kvCacheThreshold: {threshold}\n"))
    };
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: m, namespace: wva}\nspec: {template: {spec: {containers: [{env: [{name: CONFIG_MAP_NAME, value: c}, {name: SATURATION_CONFIG_MAP_NAME, value: mine}]}]}}}\n";
    let warned = |first: String, second: String| {
        let all = [first, second, local.clone(), deployment.to_owned()].join("---\n");
        places(&[("f", &all)]).iter().any(|f| f.contains("WVA-CM-063"))
    };
    // Only 0.2 is below the local trigger.
    for (read, unread) in [
        ("mine", "wva-saturation-scaling-config"),
        ("wva-saturation-scaling-config", "saturation-scaling-config"),
        ("saturation-scaling-config", "capacity-scaling-config"),
    ] {
        for (value, wanted) in [("0.2", true), ("0.8", false)] {
            let other = if wanted { "0.8" } else { "0.2" };
            assert_eq!(warned(global(read, value), global(unread, other)), wanted, "{read} {value}");
            assert_eq!(warned(global(unread, other), global(read, value)), wanted, "{read} {value} second");
        }
    }
}

/// The message at each place.
fn messages(text: &str) -> Vec<String> {
    let json: serde_json::Value = serde_json::from_str(&outputs(&[("f", text)], "default")[1]).unwrap();
    let row =
        |f: &serde_json::Value| format!("{}:{} {}", f["line"], f["column"], f["message"].as_str().unwrap());
    json["findings"].as_array().unwrap().iter().map(row).collect()
}

#[track_caller]
fn assert_message(text: &str, want: &str) {
    let found = messages(text);
    assert!(found.iter().any(|message| message.contains(want)), "{want} is not in {found:#?}");
}

#[test]
fn names_look_alikes_that_break_or_hide_something() {
    let nbsp = "U+00A0 (no-break space)";
    let va = FAULTY.replace("ten", "\"1\"");
    for (from, to, want) in [
        ("kind:", "kind:\u{a0}", format!("2:6 {nbsp} breaks the YAML; type a normal space instead")),
        ("  modelID: m", "  modelID:\u{a0}m", format!("6:11 {nbsp} breaks the YAML")),
        ("metadata:", "\u{200b}metadata:", "3:1 the key has U+200B (zero-width space); delete it".to_owned()),
        ("metadata:\n  name", "metadata:\n\u{a0}\u{a0}name", format!("4:1 the key has {nbsp}")),
        ("kind: V", "\u{feff}kind: V", "2:1 U+FEFF (byte order mark)".to_owned()),
        ("Autoscaling", "Autoscaling\u{200b}", "2:7 the value has U+200B".to_owned()),
        ("name: a\nspec", "name: a\u{a0}\nspec", format!("4:9 the value has {nbsp}")),
        ("modelID: m", "modelID: m\u{200b}", "6:12 contains U+200B (zero-width space); delete it".to_owned()),
    ] {
        assert_message(&va.replace(from, to), &want);
    }
    let maps = [
        (
            "  default: |\n    kvCacheThreshold:\u{a0}0.8\n    queueLengthThreshold: 5\n",
            "6:22 ",
            "line 1 has",
        ),
        ("  default: |\n    kvCacheThreshold: 0.8\u{a0}\n", "6:23 ", "it has"),
        (
            "  default: |\n    \u{a0}kvCacheThreshold: 0.8\n",
            "5:3 ",
            "did you mean \"kvCacheThreshold\"? it has",
        ),
        ("  default: \"kvCacheThreshold:\\u00a00.8\\nqueueLengthThreshold: 5\"\n", "5:12 ", "line 1 has"),
    ];
    for (data, place, words) in maps {
        let text = map("wva-saturation-scaling-config", "prod", data);
        let found = messages(&text);
        let want = format!("{words} {nbsp}; type a normal space instead");
        assert!(found.iter().any(|m| m.starts_with(place) && m.contains(&want)), "{data}: {found:#?}");
    }
}

#[test]
fn accepts_a_mark_at_the_start_of_a_document() {
    let va = FAULTY.replace("ten", "\"1\"");
    let counts = |text: &str| outputs(&[("f", text)], "default")[0].lines().last().unwrap().to_owned();
    let second = va.replace("name: a\n", "name: b\n");
    assert!(counts(&format!("{va}---\n\u{feff}{second}")).starts_with("2 objects: 0 denied"));
    let text = format!("{va}\u{feff}---\n{second}");
    assert_message(&text, "10:1 U+FEFF (byte order mark) breaks the YAML; delete it");
}

#[test]
fn denies_names_that_the_api_server_refuses() {
    for (from, to, want) in [
        (
            "name: a\nspec",
            "name: \"${NAME:=a}\"\nspec",
            "4:9 \"${NAME:=a}\" is not a valid name; use lower-case",
        ),
        ("name: a\nspec", "name: A\nspec", "4:9 \"A\" is not a valid name"),
        ("name: a\nspec", "name: a\n  namespace: a.b\nspec", "5:14 \"a.b\" is not a valid namespace"),
    ] {
        assert_message(&FAULTY.replace(from, to), want);
    }
}

#[test]
fn judges_the_main_map_of_any_release_by_name_and_keys() {
    let text = |name: &str, data: &str| outputs(&[("f", &map(name, "x", data))], "default")[0].clone();
    let interval = "  GLOBAL_OPT_INTERVAL: banana\n";
    for name in ["workload-variant-autoscaler-variantautoscaling-config", "r-variantautoscaling-config"] {
        let found = text(name, interval);
        assert!(found.contains("error[WVA-CM-002]") && found.contains("because of its name"), "{found}");
        assert!(text(name, "  config.yaml: |\n    GLOBAL_OPT_INTERVAL: banana\n").contains("1 denied"));
        assert!(text(name, "  a: banana\n  V: x\n").contains("0 denied"), "not a key of wva");
    }
    assert!(text("r-config", interval).contains("0 denied"), "another name");
    let entry = "  default: |\n    kvCacheThreshold: 2\n";
    assert!(text("r-wva-saturation-scaling-config", entry).contains("1 denied"));
}

#[test]
fn binary_data_is_named_and_not_printed() {
    // `PROMETHEUS_BEARER_TOKEN: hunter2 \xff`
    let data = "  V: \"2\"\nbinaryData:\n  config.yaml: UFJPTUVUSEVVU19CRUFSRVJfVE9LRU46IGh1bnRlcjIg/w==\n";
    let text = map("wva-variantautoscaling-config", "wva", data);
    let found = &outputs(&[("f", &text)], "default")[0];
    assert!(
        found.contains("byte 0xff in line 1 is not UTF-8, so wva does not read it; save the file"),
        "{found}"
    );
    assert!(found.contains("f:7:3") && !found.contains("UFJPTUV"), "{found}");
}

proptest! {
    #[test]
    fn renders_any_text_in_every_format(
        text in proptest::string::string_regex("(apiVersion: llmd.ai/v1alpha1\n|kind: VariantAutoscaling\n|metadata:\n|spec:\r\n|  name: |  modelID: |  labels: |a\n|\\{|\\}|\\[|\"|ü|😀|\r|\n|---\n|&a |\\*a|\t|\\|\n|.){0,40}").unwrap()
    ) {
        for output in outputs(&[("f", &text)], "default") {
            prop_assert!(output.ends_with('\n'));
        }
    }
}

/// An HPA that follows every step, with this line in its spec.
fn follower(line: &str) -> String {
    let (behavior, tolerance) = ("behavior:", "{tolerance: \"0\"}");
    format!(
        "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: a}}\nspec:\n  {line}\n  {behavior}\n    \
         scaleUp: {tolerance}\n    scaleDown: {tolerance}\n  metrics:\n  - type: External\n    external:\n      metric: \
         {{name: wva_desired_replicas, selector: {{matchLabels: {{variant_name: a}}}}}}\n"
    )
}

/// A ScaledObject of the same, with these annotations.
fn scaled_object(annotations: &str, line: &str) -> String {
    format!(
        "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {{name: a, annotations: {{{annotations}}}}}\nspec:\n  \
         {line}\n  triggers:\n  - type: prometheus\n    metadata: {{query: 'wva_desired_replicas{{variant_name=\"a\"}}'}}\n  \
         advanced: {{horizontalPodAutoscalerConfig: {{behavior: {{scaleUp: {{tolerance: 0}}, scaleDown: {{tolerance: \
         0}}}}}}}}\n"
    )
}

#[test]
fn points_to_what_keeps_a_target_from_being_carried_out() {
    let exact = follower("maxReplicas: 8");
    let cpu = exact.clone() + "  - {type: Resource, resource: {name: cpu}}\n";
    let disabled = exact.replace("scaleUp: {tolerance: \"0\"}", "scaleUp: {selectPolicy: Disabled}");
    let paused =
        |key: &str| scaled_object(&format!("autoscaling.keda.sh/{key}: 'true'"), "minReplicaCount: 2");
    for (text, want) in [
        (exact.clone(), &[][..]),
        (exact.replace("scaleDown: {tolerance: \"0\"}", "scaleDown: {}"), &["f:8:5 WVA-HPA-053"]),
        (
            exact.replace("scaleDown: {tolerance: \"0\"}", "scaleDown: {tolerance: 0.1}"),
            &["f:8:28 WVA-HPA-053"],
        ),
        (cpu, &["f:13:5 WVA-HPA-054"]),
        (disabled, &["f:7:29 WVA-HPA-055"]),
        (paused("paused-scale-in"), &["f:3:72 WVA-HPA-055"]),
        (paused("paused-scale-out"), &["f:3:73 WVA-HPA-055"]),
        (scaled_object("", "minReplicaCount: 2\n  idleReplicaCount: 0"), &[]),
        (scaled_object("", "minReplicaCount: 2\n  idleReplicaCount: 2"), &["f:6:21 WVA-HPA-056"]),
    ] {
        assert_eq!(places(&[("f", &text)]), want, "{text}");
    }
}
