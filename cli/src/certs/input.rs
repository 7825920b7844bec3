//! What `wva certs inspect` looks at: PEM files, and the certificates that stand in Secrets, webhook configurations
//! and `APIService`s. Sizes are bounded, and nothing of a text is repeated in an error: it may be a key.

use std::path::Path;

use k8s_openapi::ByteString;
use serde_json::Value;
use wva_certs::inspect::{BUNDLE, Given};

use crate::cluster::items;
use crate::input::{self, STDIN, is_stdin};

/// A Secret takes at most 1 MiB; this is a list of some, in base64.
const LONGEST: u64 = 16 << 20;

/// Why there is nothing to look at.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("{path}: cannot be read")]
    Unreadable {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}: longer than {} MiB: that is no certificate", LONGEST >> 20)]
    TooLong { path: String },
}

/// Reads one path, or standard input.
pub(super) fn read(path: &Path) -> Result<Vec<Given>, InputError> {
    let name = if is_stdin(path) { STDIN.to_owned() } else { path.display().to_string() };
    match input::read(path, LONGEST) {
        Ok(Some(bytes)) => Ok(objects(&bytes).unwrap_or_else(|| vec![file(path, name, bytes)])),
        Ok(None) => Err(InputError::TooLong { path: name }),
        Err(source) => Err(InputError::Unreadable { path: name, source }),
    }
}

fn file(path: &Path, shown: String, pem: Vec<u8>) -> Given {
    if is_stdin(path) {
        return Given { place: String::new(), name: shown, pem };
    }
    let name = path.file_name().map_or(shown, |name| name.to_string_lossy().into_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let place = folder.map(|folder| format!("{}/", folder.display())).unwrap_or_default();
    Given { place, name, pem }
}

/// The parts of every object in a text; `None` where it holds no objects.
fn objects(bytes: &[u8]) -> Option<Vec<Given>> {
    let text = std::str::from_utf8(bytes).ok()?;
    // PEM is not even tried as YAML: it would be a text.
    let kind = |line: &str| line.starts_with("kind:") || line.trim_start().starts_with(['{', '"']);
    if !text.lines().any(kind) {
        return None;
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).ok()?;
    let mut parts = Vec::new();
    for document in &documents {
        match document.get("items").and_then(Value::as_array) {
            Some(items) => items.iter().for_each(|object| parts.extend(of_object(object))),
            None => parts.extend(of_object(document)),
        }
    }
    Some(parts)
}

fn of_object(object: &Value) -> Vec<Given> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object");
    let name = text("/metadata/name").unwrap_or_default();
    let place = match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    };
    let given = |place: &str, name: &str, pem| Given { place: place.to_owned(), name: name.to_owned(), pem };
    match kind {
        "Secret" => entries(object, "data")
            .map(|(name, value)| given(&place, name, decoded(value)))
            .chain(entries(object, "stringData").map(|(name, value)| {
                given(&place, name, value.as_str().unwrap_or_default().as_bytes().to_vec())
            }))
            .filter(|part| is_about_certificates(&part.name))
            .collect(),
        "APIService" => object
            .pointer("/spec/caBundle")
            .map(|value| given(&place, BUNDLE, decoded(value)))
            .into_iter()
            .collect(),
        _ => webhooks(object)
            .map(|(webhook, value)| given(&format!("{place}, {webhook}"), BUNDLE, decoded(value)))
            .collect(),
    }
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    object.get(field).and_then(Value::as_object).into_iter().flatten().map(|(k, v)| (k.as_str(), v))
}

/// Other entries of a Secret are nobody's business here.
fn is_about_certificates(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| ["crt", "key", "pem"].iter().any(|known| e == *known))
}

/// Name and CA bundle of each webhook that has been opened: one without a bundle is still shut.
fn webhooks(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    items(object, "/webhooks").filter_map(|webhook| {
        Some((webhook["name"].as_str().unwrap_or_default(), webhook.pointer("/clientConfig/caBundle")?))
    })
}

/// What is no base64 becomes what is no certificate, and is reported as that.
fn decoded(value: &Value) -> Vec<u8> {
    serde_json::from_value::<ByteString>(value.clone()).map_or_else(|_| b"?".to_vec(), |bytes| bytes.0)
}
