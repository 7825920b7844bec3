//! Requests with `VariantAutoscaling`s as raw JSON, and the answers of the API server.

use std::time::Duration;

use kube::api::PostParams;
use kube::core::{Request, Status};
use serde_json::{Value, json};
use wva_testbed::install::SYSTEM;
use wva_testbed::within;

/// Longest wait for one answer: more than webhooks may take in both phases, with room for a loaded machine.
const CALL: Duration = Duration::from_mins(1);

/// Answer of the API server: the object that it would store, or the denial.
pub(crate) type ApiAnswer = Result<Value, Box<Status>>;

/// Creates the object in a dry run.
pub(crate) async fn dry_run_create(
    client: &kube::Client,
    namespace: &str,
    object: &Value,
) -> anyhow::Result<ApiAnswer> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let request = variants_request(namespace).create(&dry_run, object.to_string().into_bytes())?;
    await_answer(client.request(request)).await
}

/// Request builder for the variants of a namespace.
pub(crate) fn variants_request(namespace: &str) -> Request {
    Request::new(format!("/apis/llmd.ai/v1alpha1/namespaces/{namespace}/variantautoscalings"))
}

/// Waits for the answer to a request, with a time limit: the client repeats some requests.
pub(crate) async fn await_answer(
    call: impl Future<Output = kube::Result<Value>>,
) -> anyhow::Result<ApiAnswer> {
    match within("a request", CALL, async { anyhow::Ok(call.await) }).await? {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::Api(status)) => Ok(Err(status)),
        Err(other) => Err(other.into()),
    }
}

/// A pod with the labels of the controller. The program itself runs as a child process.
pub(crate) fn controller_pod(container: &Value) -> Value {
    let labels = json!({"app.kubernetes.io/name": "workload-variant-autoscaler", "control-plane": "controller-manager"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wva-0", "namespace": SYSTEM, "labels": labels},
        "spec": {"nodeName": "h100-0", "containers": [container]}})
}

/// Next number of a sequence that is the same in every run (constants by Knuth).
pub(crate) fn next_random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 40).unwrap_or_default()
}
