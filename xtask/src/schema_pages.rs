//! Reference pages of the CRD and of ConfigMap entries, from their schemas.

use std::fmt::Write as _;

use serde_json::Value;
use wva_crds::entries::{Kind, schema};
use wva_crds::names;

const NOTE: &str =
    "<!-- Written by `make generate` from the types in crds/src: change the descriptions there, or the
     text around them in xtask/src/schema_pages.rs. -->\n";
const FIELDS: &str = "| field | type | default | limits | meaning |\n|---|---|---|---|---|\n";
const EXAMPLE: &str = include_str!("../../config/samples/variantautoscaling.yaml");
/// Labels and annotations: name, where it is, meaning.
const METADATA: [(&str, &str, &str); 15] = [
    (
        names::ACCELERATOR_LABEL,
        "label of a VariantAutoscaling",
        "older spelling of `spec.accelerator`, which wins",
    ),
    (
        names::INSTANCE_LABEL,
        "label of a VariantAutoscaling or Namespace",
        "the controller instance that manages it",
    ),
    (
        names::MODE_ANNOTATION,
        "annotation of a VariantAutoscaling",
        "older spelling of `spec.mode`, which wins: `auto`, `recommend`, `paused` or `fixed=N`",
    ),
    (
        names::POD_DELETION_COST_ANNOTATION,
        "annotation of a VariantAutoscaling",
        "`true`: before a scale-down, wva marks the pods to remove first; `false`: never. Default: only if wva itself \
         scales the workload down",
    ),
    (
        names::ALLOW_SHARED_TARGET_ANNOTATION,
        "annotation of a VariantAutoscaling",
        "`true`: a target that another variant has too is only a warning",
    ),
    (
        names::ALLOW_INSTANCE_CHANGE_ANNOTATION,
        "annotation of a VariantAutoscaling",
        "`true`: the update that sets it may change the instance label",
    ),
    (
        names::ROLE_LABEL,
        "label of pods",
        "`prefill` or `decode` if the pod handles only that part of a request",
    ),
    (
        names::MANAGED_ANNOTATION,
        "annotation of an HPA or ScaledObject",
        "`true`: with `WVA_ANNOTATIONS`, wva keeps a VariantAutoscaling for it, as llm-d WVA v0.9 managed it",
    ),
    (names::MODEL_ANNOTATION, "annotation of such an HPA or ScaledObject", "its model: `spec.modelID`"),
    (
        names::VARIANT_COST_ANNOTATION,
        "annotation of such an HPA or ScaledObject",
        "its cost: `spec.variantCost`",
    ),
    (
        names::MANAGED_BY_LABEL,
        "label of a VariantAutoscaling",
        "`wva`: wva created it for an annotated HPA or ScaledObject, and deletes it",
    ),
    (names::EXCLUDE_ANNOTATION, "annotation of a Namespace", "`true`: wva manages nothing in it"),
    (
        names::CONFIG_ENABLED_LABEL,
        "label of a Namespace",
        "`true`: wva reads its ConfigMaps before it has a variant",
    ),
    (
        names::PICKER_TOKEN_LABEL,
        "label of a Namespace",
        "`true`: its endpoint pickers get tokens of `EPP_METRIC_READER_SERVICE_ACCOUNT`",
    ),
    (
        names::RESTART_REVISION_ANNOTATION,
        "annotation of the main ConfigMap",
        "its change states that a rollout comes with changed settings",
    ),
];

/// Page of the kind `VariantAutoscaling`.
pub(crate) fn variant() -> String {
    let crd = serde_json::to_value(wva_crds::manifest::crd()).unwrap();
    let version = &crd["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let example = EXAMPLE.split_once('\n').unwrap().1.trim_end();
    let mut out = format!(
        "# VariantAutoscaling\n\n{NOTE}\n{}\n\nIts API version is `{}/{}`, its short name `va`. [Admission \
         rules](rules/README.md) lists all checks.\n\n```yaml\n{example}\n```\n",
        description(schema),
        names::GROUP,
        names::VERSION,
    );
    for (part, title) in [("spec", "Spec"), ("status", "Status")] {
        let schema = &schema["properties"][part];
        let _ = write!(out, "\n## {title}\n\n{}\n\n{FIELDS}", description(schema));
        rows(&mut out, part, schema);
    }
    out.push_str(
        "\nConditions have the fields of every Kubernetes condition.\n\
         [Conditions, events and reasons](events-conditions-reasons.md#conditions) explains their reasons.\n\n\
         ## Labels and annotations\n\n| name | on | meaning |\n|---|---|---|\n",
    );
    for (name, on, meaning) in METADATA {
        let _ = writeln!(out, "| `{name}` | {on} | {meaning} |");
    }
    out.push_str("\n## Columns of `kubectl get va`\n\n| column | from | shown |\n|---|---|---|\n");
    for column in version["additionalPrinterColumns"].as_array().unwrap() {
        let name = column["name"].as_str().unwrap().to_uppercase();
        let shown = if column["priority"].as_i64() > Some(0) { "with `-o wide`" } else { "always" };
        let _ = writeln!(out, "| {name} | `{}` | {shown} |", column["jsonPath"].as_str().unwrap());
    }
    out
}

/// Page of the entries of ConfigMaps.
pub(crate) fn entries() -> String {
    let mut out = format!(
        "# Entries of ConfigMaps\n\n{NOTE}\nThis page lists the fields of entries in the ConfigMaps of models.\n\
         [Thresholds](../guides/thresholds.md) explains which map and entry applies to a model.\n"
    );
    for kind in Kind::ALL {
        let schema = schema(kind);
        let _ = write!(
            out,
            "\n## {}\n\n{}\n[JSON Schema](../../crds/schemas/{})\n\n{FIELDS}",
            schema["title"].as_str().unwrap(),
            description(&schema),
            kind.file_name(),
        );
        rows(&mut out, "", if schema["items"].is_object() { &schema["items"] } else { &schema });
    }
    out
}

/// A row for each field of an object, and for those of objects in it.
fn rows(out: &mut String, above: &str, schema: &Value) {
    let required =
        |name: &str| schema["required"].as_array().is_some_and(|list| list.iter().any(|n| n == name));
    for (name, field) in schema["properties"].as_object().unwrap() {
        let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        let default = match field.get("default") {
            _ if required(name) => "required".to_owned(),
            Some(value) => format!("`{value}`"),
            None => String::new(),
        };
        let (kind, limits, meaning) = (kind(field), limits(field), description(field));
        let _ = writeln!(out, "| `{path}` | {kind} | {default} | {limits} | {meaning} |");
        // Kubernetes documents conditions.
        if name != "conditions" {
            let (path, inner) =
                if kind.starts_with("list") { (format!("{path}[]"), &field["items"]) } else { (path, field) };
            if inner["properties"].is_object() {
                rows(out, &path, inner);
            }
        }
    }
}

fn kind(schema: &Value) -> String {
    let name = schema["type"].as_str().unwrap();
    match (name, schema["format"].as_str()) {
        ("array", _) => format!("list of {}s", kind(&schema["items"])),
        (_, Some("date-time")) => "time".to_owned(),
        _ => name.to_owned(),
    }
}

fn limits(schema: &Value) -> String {
    let number = |key: &str| schema[key].as_f64();
    let range = |least: Option<f64>, most: Option<f64>, unit: &str| match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (None, None) => None,
    };
    let words = schema["enum"].as_array().map(|words| {
        let shown = words.iter().filter_map(Value::as_str).filter(|word| !word.is_empty());
        shown.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    });
    let length = (number("minLength"), number("maxLength"));
    // The pattern of durations is too long to help; the description has their format.
    let pattern = schema["pattern"].as_str().filter(|pattern| pattern.len() < 40);
    let parts = [
        words,
        number("exclusiveMinimum").map(|least| format!("above {least}")),
        range(number("minimum"), number("maximum"), ""),
        if length == (Some(1.0), None) {
            Some("not empty".to_owned())
        } else {
            range(length.0, length.1, " characters")
        },
        range(number("minItems"), number("maxItems"), " items"),
        pattern.map(|pattern| format!("`{}`", pattern.replace('|', "\\|"))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn description(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

/// The table has every label and annotation that the product names.
#[test]
fn metadata_is_complete() {
    let lines = include_str!("../../crds/src/names.rs").lines();
    let constants = lines.filter(|line| line.contains("_LABEL: &str") || line.contains("_ANNOTATION: &str"));
    let names: Vec<&str> = constants.map(|line| line.split('"').nth(1).unwrap()).collect();
    assert_eq!(names.len(), METADATA.len(), "{names:?}");
    assert!(names.iter().all(|name| METADATA.iter().any(|(known, ..)| known == name)), "{names:?}");
}
