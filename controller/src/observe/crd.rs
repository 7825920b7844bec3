//! The CustomResourceDefinition that is installed, which may be that of an earlier release or of the original: Helm
//! never updates one. The API server drops what its schema does not know, so what is missing there is done without, and
//! said at the start. It is asked of the API's own description, which everybody may read.

use std::time::Duration;

use http::Request;
use kube::{Client, CustomResourceExt};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use wva_crds::VariantAutoscaling;
use wva_crds::names::{GROUP, KIND, VERSION};
use wva_runtime::api_call::root_cause;

/// Longest wait for the description: the start goes on without.
const ASK: Duration = Duration::from_secs(5);
/// Between two questions: a CRD that has just been applied is described a moment later.
const AGAIN: Duration = Duration::from_millis(500);

/// Why nothing is known of the CRD that is installed.
#[derive(Debug, thiserror::Error)]
pub enum Undescribed {
    /// The API server did not say.
    #[error("the API server does not describe {KIND} of {GROUP}/{VERSION}: {}", root_cause(.0))]
    Refused(#[source] Box<kube::Error>),
    /// It has no such kind.
    #[error("the cluster has no {KIND} of {GROUP}/{VERSION}")]
    NoKind,
    /// It took too long.
    #[error("the API server does not describe the kind within {} s", ASK.as_secs())]
    NoAnswer,
    /// The description is not as the API server makes it.
    #[error("the API server's description of {GROUP}/{VERSION} has no {KIND}")]
    NoSchema,
}

/// Says what the CRD lacks that is installed, if anything.
pub async fn warn_if_crd_outdated(client: &Client) {
    match missing_fields(client).await {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => tracing::warn!(
            fields = missing.join(", "),
            "The CustomResourceDefinition of VariantAutoscalings is an older one, which drops some fields: they are done \
             without. Apply that of this release: wva crd | kubectl apply --server-side -f -"
        ),
        Err(Undescribed::NoKind) => tracing::warn!(
            "The cluster has no VariantAutoscalings: apply their CustomResourceDefinition with wva crd | kubectl apply \
             --server-side -f -"
        ),
        Err(error) => {
            tracing::warn!(%error, "Whether the CustomResourceDefinition is of this release is not known");
        }
    }
}

/// The fields that the CRD lacks that is installed: those of this release that an older one drops.
///
/// # Errors
/// [`Undescribed`], after [`ASK`] at the latest.
pub async fn missing_fields(client: &Client) -> Result<Vec<String>, Undescribed> {
    let end = Instant::now() + ASK;
    loop {
        let answer = timeout_at(end, describe(client)).await.map_err(|_| Undescribed::NoAnswer)?;
        match answer {
            Err(Undescribed::NoKind) if Instant::now() + AGAIN < end => sleep(AGAIN).await,
            Err(error) => return Err(error),
            Ok(description) => {
                let installed = schema(&description).ok_or(Undescribed::NoSchema)?;
                return Ok(lacks(&own_schema(), installed));
            }
        }
    }
}

/// The API server's description of the version.
async fn describe(client: &Client) -> Result<Value, Undescribed> {
    let refused = |error| Undescribed::Refused(Box::new(error));
    let request = Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}"));
    let request = request.body(Vec::new()).map_err(|e| refused(kube::Error::HttpError(e)))?;
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Err(Undescribed::NoKind),
        answer => answer.map_err(refused),
    }
}

/// The schema of the kind in a description of the API.
fn schema(description: &Value) -> Option<&Value> {
    let schemas = description.pointer("/components/schemas")?.as_object()?;
    let is_it = |name: &&String| name.rsplit('.').next() == Some(KIND);
    schemas.get(schemas.keys().find(is_it)?)
}

/// The schema of this release.
fn own_schema() -> Value {
    let version = VariantAutoscaling::crd().spec.versions.into_iter().next();
    let schema = version.and_then(|v| v.schema).and_then(|s| s.open_api_v3_schema);
    serde_json::to_value(schema).unwrap_or_default()
}

/// The fields of one schema that another has not, without those below a missing one.
fn lacks(own: &Value, installed: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for part in ["spec", "status"] {
        compare(&own["properties"][part], &installed["properties"][part], part, &mut missing);
    }
    missing
}

fn compare(own: &Value, installed: &Value, path: &str, missing: &mut Vec<String>) {
    if installed.is_null() {
        missing.push(path.to_owned());
        return;
    }
    if installed["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, schema) in own["properties"].as_object().into_iter().flatten() {
        compare(schema, &installed["properties"][name], &format!("{path}.{name}"), missing);
    }
    if own["items"].is_object() {
        compare(&own["items"], &installed["items"], &format!("{path}[]"), missing);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_crd_of_this_release_lacks_nothing() {
        assert_eq!(lacks(&own_schema(), &own_schema()), Vec::<String>::new());
    }

    #[test]
    fn what_an_older_one_lacks_is_named_by_its_path() {
        let without = |pointer: &str, name: &str| {
            let mut older = own_schema();
            older.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name).unwrap();
            lacks(&own_schema(), &older)
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
    fn one_that_keeps_everything_lacks_nothing() {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let lax = json!({"properties": {"spec": open, "status": open}});
        assert_eq!(lacks(&own_schema(), &lax), Vec::<String>::new());
    }

    #[test]
    fn the_kind_is_found_by_its_name_and_not_as_part_of_another() {
        let schemas =
            json!({"ai.llmd.v1alpha1.VariantAutoscalingList": 1, "ai.llmd.v1alpha1.VariantAutoscaling": 2});
        assert_eq!(schema(&json!({"components": {"schemas": schemas}})), Some(&json!(2)));
        assert_eq!(schema(&json!({"components": {}})), None);
    }
}
