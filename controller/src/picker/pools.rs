//! What is kept of InferencePools: which pods a pool serves, and the Service of its endpoint picker. Both API groups
//! say the same in other words; `POOL_GROUP` says which of them counts.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde_json::{Map, Value};

use crate::watches::cache::Kind;

/// Labels of a pod or of a selector, by key.
pub(crate) type Labels = BTreeMap<Box<str>, Box<str>>;

/// An InferencePool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    /// All of these a pod of the pool has. One without any serves nobody: a pool must say whom it serves.
    selector: Labels,
    /// The Service of its endpoint picker, in the pool's own namespace; `None` where it names something else.
    pub(crate) picker: Option<Box<str>>,
}

impl Pool {
    /// How the cache is filled. No pool is reason for a cycle of the engine: what waits at its picker is.
    pub(crate) fn kind() -> Kind<DynamicObject, Self> {
        let read = |object: &DynamicObject| Self::of(object.data.get("spec").unwrap_or(&Value::Null));
        Kind { read, same: None }
    }

    fn of(spec: &Value) -> Self {
        let selector = spec.get("selector").and_then(Value::as_object);
        // The older group has the labels right there.
        let selector = selector.map(|s| s.get("matchLabels").and_then(Value::as_object).unwrap_or(s));
        let picker = spec.get("endpointPickerRef").or_else(|| spec.get("extensionRef"));
        Self { selector: selector.map(labels).unwrap_or_default(), picker: picker.and_then(service) }
    }

    /// Whether pods with these labels are the pool's.
    pub(crate) fn selects(&self, pod: &Labels) -> bool {
        !self.selector.is_empty() && self.selector.iter().all(|(key, value)| pod.get(key) == Some(value))
    }
}

fn labels(object: &Map<String, Value>) -> Labels {
    object.iter().filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect()
}

/// The name of the Service a reference means: that is what it means unless it says otherwise.
fn service(reference: &Value) -> Option<Box<str>> {
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, kind, name) = (text("group"), text("kind"), text("name"));
    (group.is_empty() && matches!(kind, "" | "Service") && !name.is_empty()).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(labels: &[(&str, &str)]) -> Labels {
        labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn both_groups_say_whom_a_pool_serves_and_who_picks() {
        let present = json!({"selector": {"matchLabels": {"app": "vllm", "tier": "gpu"}}, "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "epp", "port": {"number": 9002}}});
        let older = json!({"selector": {"app": "vllm", "tier": "gpu"}, "targetPortNumber": 8000,
            "extensionRef": {"group": "", "kind": "Service", "name": "epp", "portNumber": 9002}});
        for spec in [present, older] {
            let pool = Pool::of(&spec);
            assert_eq!(pool.picker.as_deref(), Some("epp"), "{spec}");
            assert!(pool.selects(&pod(&[("app", "vllm"), ("tier", "gpu"), ("more", "yes")])));
            assert!(!pool.selects(&pod(&[("app", "vllm")])));
            assert!(!pool.selects(&pod(&[("app", "vllm"), ("tier", "cpu")])));
        }
    }

    #[test]
    fn a_pool_that_says_nothing_serves_nobody() {
        for spec in [json!(null), json!({}), json!({"selector": {}}), json!({"selector": {"matchLabels": {}}})] {
            assert!(!Pool::of(&spec).selects(&pod(&[("app", "vllm")])), "{spec}");
        }
        assert_eq!(Pool::of(&json!({"selector": "app=vllm", "extensionRef": 7})).picker, None);
    }

    #[test]
    fn a_picker_that_is_no_service_cannot_be_asked() {
        let of = |reference: Value| Pool::of(&json!({"endpointPickerRef": reference})).picker;
        assert_eq!(of(json!({"group": "example.com", "kind": "Picker", "name": "p"})), None);
        assert_eq!(of(json!({"kind": "Deployment", "name": "p"})), None);
        assert_eq!(of(json!({"kind": "Service"})), None);
        assert_eq!(of(json!({"name": "p"})).as_deref(), Some("p"));
    }
}
