//! Discovery documents, and errors as `Status` objects. The aggregator first asks `/apis` for aggregated discovery and
//! falls back to these.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use wva_runtime::auth::RETRY_AFTER;

use super::{API_VERSION, GROUP, LEGACY_METRIC, METRIC, VERSION};

fn group() -> Value {
    let version = json!({"groupVersion": API_VERSION, "version": VERSION});
    json!({"name": GROUP, "versions": [version], "preferredVersion": version})
}

/// `/apis`.
pub(super) fn group_list() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})
}

/// `/apis/external.metrics.k8s.io`.
pub(super) fn api_group() -> Value {
    let mut group = group();
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

/// Metrics as resources.
pub(super) fn resource_list(legacy: bool) -> Value {
    let resource = |name| json!({"name": name, "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"]});
    let names = [METRIC].into_iter().chain(legacy.then_some(LEGACY_METRIC));
    let resources: Vec<Value> = names.map(resource).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION, "resources": resources})
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: StatusCode,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Name of the status code.
    fn reason(&self) -> &'static str {
        match self.code {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::UNAUTHORIZED => "Unauthorized",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            _ => "InternalError",
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason(), "code": self.code.as_u16(),
        });
        let mut response = (self.code, Json(status)).into_response();
        match self.code {
            StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
            }
            _ => {}
        }
        response
    }
}
