//! Input of `wva certs inspect`: PEM files, Secrets, webhook configurations and `APIService`s. Errors never quote the
//! input, which may be a private key.

use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use serde_json::Value;
use wva_certs::inspect::{BUNDLE, InspectInput};

use crate::cluster::items;
use crate::input::{self, STDIN, is_stdin};

/// Largest input, in bytes: several Secrets of 1 MiB in base64.
const MAX_INPUT: u64 = 16 << 20;

/// Reads one path, or standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<InspectInput>> {
    let name = if is_stdin(path) { STDIN.to_owned() } else { path.display().to_string() };
    let read = input::read(path, MAX_INPUT).with_context(|| format!("{name}: cannot read the file"))?;
    let too_long = || format!("{name}: longer than {} MiB; this is not a certificate", MAX_INPUT >> 20);
    let bytes = read.with_context(too_long)?;
    Ok(parse_manifests(&bytes).unwrap_or_else(|| vec![pem_file(path, name, bytes)]))
}

fn pem_file(path: &Path, display_name: String, pem: Vec<u8>) -> InspectInput {
    if is_stdin(path) {
        return InspectInput { place: String::new(), name: display_name, pem };
    }
    let name = path.file_name().map_or(display_name, |name| name.to_string_lossy().into_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let place = folder.map(|folder| format!("{}/", folder.display())).unwrap_or_default();
    InspectInput { place, name, pem }
}

/// `None` if the text is not a manifest.
fn parse_manifests(bytes: &[u8]) -> Option<Vec<InspectInput>> {
    let text = std::str::from_utf8(bytes).ok()?;
    // PEM is valid YAML too, a string.
    let is_manifest_line =
        |line: &str| line.starts_with("kind:") || line.trim_start().starts_with(['{', '"']);
    if !text.lines().any(is_manifest_line) {
        return None;
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).ok()?;
    let mut parts = Vec::new();
    for document in &documents {
        match document.get("items").and_then(Value::as_array) {
            Some(items) => items.iter().for_each(|object| parts.extend(certificates_in(object))),
            None => parts.extend(certificates_in(document)),
        }
    }
    Some(parts)
}

fn certificates_in(object: &Value) -> Vec<InspectInput> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object");
    let name = text("/metadata/name").unwrap_or_default();
    let place = match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    };
    let input_at =
        |place: &str, name: &str, pem| InspectInput { place: place.to_owned(), name: name.to_owned(), pem };
    match kind {
        "Secret" => entries(object, "data")
            .map(|(name, value)| input_at(&place, name, decode_base64(value)))
            .chain(entries(object, "stringData").map(|(name, value)| {
                input_at(&place, name, value.as_str().unwrap_or_default().as_bytes().to_vec())
            }))
            .filter(|part| has_certificate_extension(&part.name))
            .collect(),
        "APIService" => object
            .pointer("/spec/caBundle")
            .map(|value| input_at(&place, BUNDLE, decode_base64(value)))
            .into_iter()
            .collect(),
        _ => webhooks(object)
            .map(|(webhook, value)| input_at(&format!("{place}, {webhook}"), BUNDLE, decode_base64(value)))
            .collect(),
    }
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    object.get(field).and_then(Value::as_object).into_iter().flatten().map(|(k, v)| (k.as_str(), v))
}

/// Whether the name of an entry is that of a certificate or key.
fn has_certificate_extension(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| ["crt", "key", "pem"].iter().any(|known| e == *known))
}

/// An unregistered webhook has no bundle yet.
fn webhooks(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    items(object, "/webhooks").filter_map(|webhook| {
        Some((webhook["name"].as_str().unwrap_or_default(), webhook.pointer("/clientConfig/caBundle")?))
    })
}

/// Invalid base64 becomes an invalid certificate, which the report names.
fn decode_base64(value: &Value) -> Vec<u8> {
    serde_json::from_value::<ByteString>(value.clone()).map_or_else(|_| b"?".to_vec(), |bytes| bytes.0)
}
