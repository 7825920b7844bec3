//! JSON Schemas of kinds as `kubeconform` reads them, from what the API server itself publishes: no list of schemas has
//! to be kept or fetched. As `-strict` wants it, a field that a schema does not name is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use wva_testbed::Testbed;

const REF: &str = "#/components/schemas/";

/// Writes a schema for each kind of these documents, `<kind>-<group>-<version>.json`.
pub(super) async fn write(testbed: &Testbed, documents: &[Value], folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut published = BTreeMap::new();
    let kinds: BTreeSet<(&str, &str)> = documents
        .iter()
        .filter_map(|document| Some((document["apiVersion"].as_str()?, document["kind"].as_str()?)))
        .collect();
    for (version, kind) in kinds {
        if !published.contains_key(version) {
            let path =
                if version.contains('/') { format!("apis/{version}") } else { format!("api/{version}") };
            let document =
                testbed.kubectl(&["get", "--raw", &format!("/openapi/v3/{path}")]).await?.success()?;
            published.insert(version, serde_json::from_str::<Value>(&document)?);
        }
        let schema = schema(&published[version], version, kind)
            .with_context(|| format!("the API server publishes no schema of {version} {kind}"))?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        // As kubeconform has it: the first label of the group alone.
        let group = group.split('.').next().filter(|group| !group.is_empty());
        let suffix = group.map(|group| format!("-{group}")).unwrap_or_default();
        let name = format!("{}{suffix}-{version}.json", kind.to_lowercase());
        std::fs::write(folder.join(name), schema.to_string())?;
    }
    Ok(())
}

/// The schema of a kind with all that it refers to.
fn schema(published: &Value, version: &str, kind: &str) -> Option<Value> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let gvk = json!({"group": group, "version": version, "kind": kind});
    let schemas = published.pointer("/components/schemas")?.as_object()?;
    let is_it = |schema: &Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.contains(&gvk))
    };
    let (name, _) = schemas.iter().find(|(_, schema)| is_it(schema))?;
    let mut definitions = serde_json::Map::new();
    let mut wanted = vec![name.clone()];
    while let Some(name) = wanted.pop() {
        if definitions.contains_key(&name) {
            continue;
        }
        let mut schema = schemas.get(&name)?.clone();
        strict(&mut schema, &mut wanted);
        definitions.insert(name, schema);
    }
    Some(json!({"$ref": format!("#/definitions/{name}"), "definitions": definitions}))
}

/// Closes objects whose fields are named, and leads references to the definitions beside them.
fn strict(schema: &mut Value, wanted: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|of| of.strip_prefix(REF)) {
                wanted.push(name.to_owned());
                let of = format!("#/definitions/{name}");
                map.insert("$ref".to_owned(), Value::String(of));
            }
            let open = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
            if map.get("properties").is_some_and(Value::is_object)
                && !map.contains_key("additionalProperties")
                && !open
            {
                map.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            map.values_mut().for_each(|value| strict(value, wanted));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| strict(value, wanted)),
        _ => {}
    }
}
