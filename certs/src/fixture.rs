//! CA Secret on the fake API server, for tests.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::json;
use wva_fakes::{FakeApi, Request};

pub(crate) const NAMESPACE: &str = "wva-system";
pub(crate) const NAME: &str = "wva-ca";
pub(crate) const SECRET: &str = "/api/v1/namespaces/wva-system/secrets/wva-ca";

pub(crate) fn put_data(fake: &FakeApi, data: &BTreeMap<String, ByteString>) {
    let metadata = json!({"name": NAME, "namespace": NAMESPACE});
    fake.put(SECRET, json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}));
}

pub(crate) fn data(fake: &FakeApi) -> BTreeMap<String, ByteString> {
    serde_json::from_value(fake.object(SECRET)["data"].clone()).unwrap()
}

pub(crate) fn notes(fake: &FakeApi) -> Vec<String> {
    let created = |request: &Request| request.path.ends_with("/events") && request.status == Some(201);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    fake.requests()
        .iter()
        .filter(|request| created(request))
        .map(|event| text(&event.body["type"]) + " " + &text(&event.body["note"]))
        .collect()
}

pub(crate) fn count(fake: &FakeApi, method: &str, status: u16) -> usize {
    fake.count(|request| request.method == method && request.status == Some(status))
}
