//! Check of the installed CRD at start-up. Helm never updates a CRD, and the API server drops fields that an old schema
//! lacks. Every account may read the API description.

use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use wva_crds::manifest;
use wva_crds::names::{GROUP, KIND, VERSION};
use wva_runtime::api_call::root_cause;

/// The start-up continues without it.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A CRD appears in the document shortly after it is applied.
const RETRY: Duration = Duration::from_millis(500);

/// Why the installed CRD schema is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CrdSchemaError {
    /// The request failed.
    #[error("cannot read the OpenAPI document of {GROUP}/{VERSION}: {}", root_cause(.0))]
    Request(#[source] Box<kube::Error>),
    /// The CRD is not installed.
    #[error("the cluster has no {KIND} of {GROUP}/{VERSION}")]
    NotInstalled,
    /// No answer in time.
    #[error("the API server did not return the OpenAPI document of {GROUP}/{VERSION} within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// The document lacks the kind.
    #[error("the OpenAPI document of {GROUP}/{VERSION} has no {KIND}")]
    NoSchema,
}

/// Logs a warning if the installed CRD is missing, or lacks fields of this release.
pub async fn warn_if_crd_outdated(client: &Client) {
    match missing_fields(client).await {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => tracing::warn!(
            fields = missing.join(", "),
            "The VariantAutoscaling CRD is outdated and drops fields; apply the CRD of this release: wva crd | kubectl \
             apply --server-side -f -"
        ),
        Err(CrdSchemaError::NotInstalled) => tracing::warn!(
            "The VariantAutoscaling CRD is not installed; apply it: wva crd | kubectl apply --server-side -f -"
        ),
        Err(error) => {
            tracing::warn!(%error, "Cannot check whether the VariantAutoscaling CRD is up to date");
        }
    }
}

/// Paths of fields that the installed CRD lacks.
///
/// # Errors
/// [`CrdSchemaError`], within [`TIMEOUT`].
pub async fn missing_fields(client: &Client) -> Result<Vec<String>, CrdSchemaError> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let answer = timeout_at(end, read_document(client)).await.map_err(|_| CrdSchemaError::Timeout)?;
        match answer {
            Err(CrdSchemaError::NotInstalled) if Instant::now() + RETRY < end => sleep(RETRY).await,
            Err(error) => return Err(error),
            Ok(document) => {
                let installed = schema(&document).ok_or(CrdSchemaError::NoSchema)?;
                return Ok(missing_paths(&own_schema(), installed));
            }
        }
    }
}

async fn read_document(client: &Client) -> Result<Value, CrdSchemaError> {
    let failed = |error| CrdSchemaError::Request(Box::new(error));
    let request = Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}"));
    let request = request.body(Vec::new()).map_err(|e| failed(kube::Error::HttpError(e)))?;
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Err(CrdSchemaError::NotInstalled),
        answer => answer.map_err(failed),
    }
}

fn schema(document: &Value) -> Option<&Value> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let is_it = |name: &&String| name.rsplit('.').next() == Some(KIND);
    schemas.get(schemas.keys().find(is_it)?)
}

fn own_schema() -> Value {
    let version = manifest::crd().spec.versions.into_iter().next();
    let schema = version.and_then(|v| v.schema).and_then(|s| s.open_api_v3_schema);
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

    #[test]
    fn own_crd_lacks_nothing() {
        assert_eq!(missing_paths(&own_schema(), &own_schema()), Vec::<String>::new());
    }

    #[test]
    fn names_missing_fields_by_path() {
        let without = |pointer: &str, name: &str| {
            let mut older = own_schema();
            older.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name).unwrap();
            missing_paths(&own_schema(), &older)
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
        assert_eq!(missing_paths(&own_schema(), &lax), Vec::<String>::new());
    }

    #[test]
    fn finds_kind_by_its_exact_name() {
        let schemas =
            json!({"ai.llmd.v1alpha1.VariantAutoscalingList": 1, "ai.llmd.v1alpha1.VariantAutoscaling": 2});
        assert_eq!(schema(&json!({"components": {"schemas": schemas}})), Some(&json!(2)));
        assert_eq!(schema(&json!({"components": {}})), None);
    }
}
