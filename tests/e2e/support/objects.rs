//! `VariantAutoscaling`s as raw JSON and the API server's answer to them, for typed clients cannot express most faults.

use std::time::Duration;

use kube::api::PostParams;
use kube::core::{Request, Status};
use serde_json::{Value, json};
use wva_testbed::install::SYSTEM;
use wva_testbed::within;

/// Longest wait for one answer: more than webhooks may take in both phases, with room for a loaded machine.
const CALL: Duration = Duration::from_mins(1);

/// What the API server says to an object: what it would store, or the refusal.
pub(crate) type ApiAnswer = Result<Value, Box<Status>>;

/// A variant with this spec.
pub(crate) fn variant(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": {"name": name}, "spec": spec})
}

/// A variant with a fault that the CRD does not know: WVA-VA-017.
pub(crate) fn invalid_variant(name: &str) -> Value {
    let mut object = variant(name, &valid_spec(name));
    object["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "sometimes"});
    object
}

/// A spec without a fault. Its target's name is made from the variant's.
pub(crate) fn valid_spec(target: &str) -> Value {
    json!({"scaleTargetRef": {"name": target}, "modelID": "meta-llama/Llama-3.1-8B"})
}

/// Asks to create the object, without storing it.
pub(crate) async fn dry_run_create(
    client: &kube::Client,
    namespace: &str,
    object: &Value,
) -> anyhow::Result<ApiAnswer> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let request = variants_request(namespace).create(&dry_run, object.to_string().into_bytes())?;
    await_answer(client.request(request)).await
}

/// The path of the variants of a namespace.
pub(crate) fn variants_request(namespace: &str) -> Request {
    Request::new(format!("/apis/llmd.ai/v1alpha1/namespaces/{namespace}/variantautoscalings"))
}

/// Waits for the answer to a request, bounded: the client repeats some by itself.
pub(crate) async fn await_answer(
    call: impl Future<Output = kube::Result<Value>>,
) -> anyhow::Result<ApiAnswer> {
    match within("a request", CALL, async { anyhow::Ok(call.await) }).await? {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::Api(status)) => Ok(Err(status)),
        Err(other) => Err(other.into()),
    }
}

/// The controller's pod, as far as others look at it: the program itself runs outside.
pub(crate) fn controller_pod(container: &Value) -> Value {
    let labels = json!({"app.kubernetes.io/name": "workload-variant-autoscaler", "control-plane": "controller-manager"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wva-0", "namespace": SYSTEM, "labels": labels},
        "spec": {"nodeName": "h100-0", "containers": [container]}})
}
