//! The CRD against a baseline: changes of a served version only add. A field that narrows would make stored objects invalid.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// The CRD when this test was written. Each release replaces the file by its own.
const BASELINE: &str = include_str!("../fixtures/crd-baseline.yaml");

const LOWER_LIMITS: [&str; 3] = ["minimum", "minLength", "minItems"];
const UPPER_LIMITS: [&str; 3] = ["maximum", "maxLength", "maxItems"];
/// A new or another value may refuse what was valid.
const RESTRICTIONS: [&str; 4] = ["pattern", "enum", "format", "additionalProperties"];

/// New rules that refuse no object of which a release made use.
const HARMLESS: [(&str, &str); 1] = [("both fields are newer than the baseline", "self.fixedReplicas")];

/// What the new schema refuses and the old one accepted.
fn narrowed(path: &str, old: &Value, new: &Value, out: &mut Vec<String>) {
    if old["type"] != new["type"] {
        out.push(format!("{path}: the type {} became {}", old["type"], new["type"]));
    }
    for (name, field) in old["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match new["properties"].get(name) {
            Some(new) => narrowed(&path, field, new, out),
            None => out.push(format!("{path}: removed")),
        }
    }
    if let Some(items) = old.get("items") {
        narrowed(&format!("{path}[]"), items, &new["items"], out);
    }
    let names = |schema: &Value, key: &str, field: &str| -> BTreeSet<String> {
        let all = schema[key].as_array().into_iter().flatten();
        all.map(|it| if field.is_empty() { it.to_string() } else { it[field].to_string() }).collect()
    };
    for required in names(new, "required", "").difference(&names(old, "required", "")) {
        out.push(format!("{path}: {required} became required"));
    }
    let rules = "x-kubernetes-validations";
    for rule in names(new, rules, "rule").difference(&names(old, rules, "rule")) {
        if HARMLESS.iter().any(|(_, part)| rule.contains(part)) {
            continue;
        }
        out.push(format!("{path}: the new rule {rule}"));
    }
    for (limits, is_lower) in [(LOWER_LIMITS, true), (UPPER_LIMITS, false)] {
        for limit in limits {
            let Some(now) = new[limit].as_f64() else { continue };
            let before = old[limit].as_f64();
            if before.is_none_or(|before| if is_lower { now > before } else { now < before }) {
                out.push(format!("{path}: {limit} became {now}"));
            }
        }
    }
    for key in RESTRICTIONS {
        if new.get(key).is_some_and(|now| Some(now) != old.get(key)) {
            out.push(format!("{path}: {key} became {}", new[key]));
        }
    }
    if old.get("default").is_some_and(|before| Some(before) != new.get("default")) {
        out.push(format!("{path}: the default {} became {}", old["default"], new["default"]));
    }
    if old["nullable"] == true && new["nullable"] != true {
        out.push(format!("{path}: null is refused"));
    }
}

/// What the new CRD takes away.
fn taken_away(old: &Value, new: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for field in ["group", "names", "scope"] {
        if old["spec"][field] != new["spec"][field] {
            out.push(format!("spec.{field} changed"));
        }
    }
    for version in old["spec"]["versions"].as_array().unwrap() {
        let all = new["spec"]["versions"].as_array().unwrap();
        let Some(now) = all.iter().find(|now| now["name"] == version["name"] && now["served"] == true) else {
            out.push(format!("{}: no longer served", version["name"]));
            continue;
        };
        let columns = |version: &Value| -> Vec<Value> {
            version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default()
        };
        let left = columns(now);
        // Its path may change.
        let is_kept =
            |column: &Value| left.iter().any(|it| ["name", "type"].iter().all(|key| it[key] == column[key]));
        let gone = columns(version).into_iter().filter(|column| !is_kept(column));
        out.extend(gone.map(|column| format!("the column {}", column["name"])));
        let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
        narrowed("", &schema(version), &schema(now), &mut out);
    }
    out
}

fn baseline() -> Value {
    serde_saphyr::from_str(BASELINE).unwrap()
}

#[test]
fn the_crd_only_adds_to_the_baseline() {
    let now = serde_json::to_value(wva_crds::manifest::crd()).unwrap();
    assert_eq!(taken_away(&baseline(), &now), [""; 0]);
}

type Change = fn(&mut Value);

#[test]
fn each_kind_of_narrowing_is_found() {
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let spec = format!("{schema}/properties/spec");
    let rows: [(&str, Change, &str); 9] = [
        ("/properties", |fields| drop(fields.as_object_mut().unwrap().remove("minReplicas")), "removed"),
        ("/properties/modelID/type", |kind| *kind = json!("integer"), "the type"),
        ("/properties/modelID/maxLength", |most| *most = json!(100), "maxLength"),
        ("/properties/modelID/minLength", |least| *least = json!(2), "minLength"),
        ("/properties/variantCost/pattern", |pattern| *pattern = json!("^1$"), "pattern"),
        ("/properties/variantCost/default", |default| *default = json!("1"), "the default"),
        ("/properties/minReplicas/nullable", |nullable| *nullable = json!(false), "null is refused"),
        ("/required", |required| required.as_array_mut().unwrap().push(json!("variantCost")), "required"),
        (
            "/x-kubernetes-validations",
            |rules| rules.as_array_mut().unwrap().push(json!({"rule": "false"})),
            "the new rule",
        ),
    ];
    for (path, change, found) in rows {
        let mut changed = baseline();
        change(changed.pointer_mut(&format!("{spec}{path}")).unwrap());
        let all = taken_away(&baseline(), &changed);
        assert!(all.len() == 1 && all[0].contains(found), "{path}: {all:?}");
    }
    let mut more = baseline();
    more.pointer_mut(&format!("{spec}/properties")).unwrap()["added"] = json!({"type": "string"});
    assert_eq!(taken_away(&baseline(), &more), [""; 0]);
    let mut gone = baseline();
    gone.pointer_mut("/spec/versions/0").unwrap()["served"] = json!(false);
    assert_eq!(taken_away(&baseline(), &gone).len(), 1);
}
