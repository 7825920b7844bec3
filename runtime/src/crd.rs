//! Comparison of the installed CRD with a newer one. Helm never updates a CRD, and the API server drops fields that an old
//! schema lacks. Every account may read the API description.

use std::time::Duration;

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use crate::api_call::root_cause;

/// Longest time for one comparison.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A CRD appears in the document shortly after it is applied.
const RETRY: Duration = Duration::from_millis(500);

/// Why the installed CRD schema is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CrdSchemaError {
    /// The request failed.
    #[error("cannot read the OpenAPI document of {api}: {}", root_cause(source))]
    Request {
        /// Group and version.
        api: String,
        /// Cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The CRD is not installed.
    #[error("the cluster has no {kind} of {api}")]
    NotInstalled {
        /// Group and version.
        api: String,
        /// Kind.
        kind: String,
    },
    /// No answer in time.
    #[error("the API server did not return the OpenAPI document of {api} within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// Group and version.
        api: String,
    },
    /// The document lacks the kind.
    #[error("the OpenAPI document of {api} has no {kind}")]
    NoSchema {
        /// Group and version.
        api: String,
        /// Kind.
        kind: String,
    },
}

/// Paths of the fields of `crd` that the installed CRD lacks.
///
/// # Errors
/// [`CrdSchemaError`], within 5 s.
pub async fn missing_fields(
    client: &Client,
    crd: &CustomResourceDefinition,
) -> Result<Vec<String>, CrdSchemaError> {
    let version = crd.spec.versions.first();
    let api = format!("{}/{}", crd.spec.group, version.map_or("", |version| &version.name));
    let kind = &crd.spec.names.kind;
    let end = Instant::now() + TIMEOUT;
    loop {
        let answer = timeout_at(end, read_document(client, &api, kind)).await;
        match answer.map_err(|_| CrdSchemaError::Timeout { api: api.clone() })? {
            Err(CrdSchemaError::NotInstalled { .. }) if Instant::now() + RETRY < end => sleep(RETRY).await,
            Err(error) => return Err(error),
            Ok(document) => {
                let installed = find_schema(&document, kind);
                let installed = installed.ok_or(CrdSchemaError::NoSchema { api, kind: kind.clone() })?;
                return Ok(missing_paths(&schema_of(crd), installed));
            }
        }
    }
}

async fn read_document(client: &Client, api: &str, kind: &str) -> Result<Value, CrdSchemaError> {
    let failed = |error| CrdSchemaError::Request { api: api.to_owned(), source: Box::new(error) };
    let request = Request::get(format!("/openapi/v3/apis/{api}"));
    let request = request.body(Vec::new()).map_err(|e| failed(kube::Error::HttpError(e)))?;
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Err(CrdSchemaError::NotInstalled { api: api.to_owned(), kind: kind.to_owned() })
        }
        answer => answer.map_err(failed),
    }
}

fn find_schema<'d>(document: &'d Value, kind: &str) -> Option<&'d Value> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let is_it = |name: &&String| name.rsplit('.').next() == Some(kind);
    schemas.get(schemas.keys().find(is_it)?)
}

fn schema_of(crd: &CustomResourceDefinition) -> Value {
    let version = crd.spec.versions.first();
    let schema = version.and_then(|v| v.schema.as_ref()).and_then(|s| s.open_api_v3_schema.as_ref());
    serde_json::to_value(schema).unwrap_or_default()
}

/// Paths of the fields that `installed` lacks, without those below a missing one.
fn missing_paths(own: &Value, installed: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for part in ["spec", "status"] {
        collect_missing(&own["properties"][part], &installed["properties"][part], part, &mut missing);
    }
    missing
}

fn collect_missing(own: &Value, installed: &Value, path: &str, missing: &mut Vec<String>) {
    if installed.is_null() {
        missing.push(path.to_owned());
        return;
    }
    if installed["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, schema) in own["properties"].as_object().into_iter().flatten() {
        collect_missing(schema, &installed["properties"][name], &format!("{path}.{name}"), missing);
    }
    if own["items"].is_object() {
        collect_missing(&own["items"], &installed["items"], &format!("{path}[]"), missing);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd() -> Value {
        let condition =
            json!({"properties": {"type": {"type": "string"}, "observedGeneration": {"type": "integer"}}});
        json!({"properties": {
            "spec": {"properties": {"modelID": {"type": "string"}, "maxReplicas": {"type": "integer"}}},
            "status": {"properties": {
                "desiredOptimizedAlloc": {"properties": {"numReplicas": {"type": "integer"}}},
                "conditions": {"items": condition}}}}})
    }

    #[test]
    fn same_crd_lacks_nothing() {
        assert_eq!(missing_paths(&crd(), &crd()), Vec::<String>::new());
    }

    #[test]
    fn names_missing_fields_by_path() {
        let without = |pointer: &str, name: &str| {
            let mut older = crd();
            older.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name).unwrap();
            missing_paths(&crd(), &older)
        };
        assert_eq!(without("/properties/spec/properties", "maxReplicas"), ["spec.maxReplicas"]);
        assert_eq!(
            without("/properties/status/properties", "desiredOptimizedAlloc"),
            ["status.desiredOptimizedAlloc"]
        );
        assert_eq!(without("/properties", "status"), ["status"]);
        let condition = "/properties/status/properties/conditions/items/properties";
        assert_eq!(without(condition, "observedGeneration"), ["status.conditions[].observedGeneration"]);
    }

    #[test]
    fn open_schema_lacks_nothing() {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let lax = json!({"properties": {"spec": open, "status": open}});
        assert_eq!(missing_paths(&crd(), &lax), Vec::<String>::new());
    }

    #[test]
    fn finds_kind_by_its_exact_name() {
        let schemas =
            json!({"ai.llmd.v1alpha1.VariantAutoscalingList": 1, "ai.llmd.v1alpha1.VariantAutoscaling": 2});
        let find = |document: &Value| find_schema(document, "VariantAutoscaling").cloned();
        assert_eq!(find(&json!({"components": {"schemas": schemas}})), Some(json!(2)));
        assert_eq!(find(&json!({"components": {}})), None);
    }
}
