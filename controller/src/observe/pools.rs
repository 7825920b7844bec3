//! What is kept of InferencePools: which pods a pool serves, and the Service of its endpoint picker. Both API groups
//! say the same in other words; `POOL_GROUP` says which of them counts.

use kube::api::DynamicObject;
use serde_json::{Map, Value};
use wva_runtime::Optional;
use wva_runtime::cache::Projection;

/// Stands between two labels. Neither a key nor a value can hold it.
const BETWEEN: char = '\0';
/// Ports of a pool that are looked at; its schema allows as many.
const MOST_RANKS: usize = 8;

/// Labels of a pod or of a selector, as one text, since there are thousands of workloads and few that anybody asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(Box<str>);

impl Labels {
    /// Of these keys and values.
    pub(crate) fn of<'a>(labels: impl Iterator<Item = (&'a String, &'a str)>) -> Self {
        let all: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        Self(all.join(&BETWEEN.to_string()).into())
    }

    fn each(&self) -> impl Iterator<Item = &str> {
        self.0.split(BETWEEN).filter(|label| !label.is_empty())
    }

    /// The value of a label.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.each()
            .filter_map(|label| label.split_once('='))
            .find(|(own, _)| *own == key)
            .map(|(_, value)| value)
    }

    /// Whether all of these are among them. Of none it says no: whoever selects must say whom.
    fn hold(&self, selector: &Self) -> bool {
        !selector.0.is_empty() && selector.each().all(|wanted| self.each().any(|own| own == wanted))
    }
}

/// InferencePool cache.
#[derive(Clone)]
pub struct InferencePools(pub(crate) Optional<Pool>);

/// An InferencePool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    /// Its name, which its picker's series carry as `inference_pool`.
    pub(crate) name: Box<str>,
    /// All of these a pod of the pool has.
    selector: Labels,
    /// The Service of its endpoint picker, in the pool's own namespace; `None` where it names something else.
    pub(crate) picker: Option<Box<str>>,
    /// Where it names several ports: a rank of data parallelism serves at each of them, in every pod.
    pub(crate) ranks: Box<[u16]>,
}

impl Pool {
    /// How the cache is filled. No pool is reason for a cycle of the engine: what waits at its picker is.
    pub(crate) fn projection() -> Projection<DynamicObject, Self> {
        let read = |object: &DynamicObject| {
            let name = object.metadata.name.as_deref().unwrap_or_default().into();
            Self { name, ..Self::of(object.data.get("spec").unwrap_or(&Value::Null)) }
        };
        Projection { read, same: None }
    }

    fn of(spec: &Value) -> Self {
        let selector = spec.get("selector").and_then(Value::as_object);
        // The older group has the labels right there.
        let selector = selector.map(|s| s.get("matchLabels").and_then(Value::as_object).unwrap_or(s));
        let picker = spec.get("endpointPickerRef").or_else(|| spec.get("extensionRef"));
        Self {
            name: Box::default(),
            selector: selector.map(labels).unwrap_or_default(),
            picker: picker.and_then(service),
            ranks: ranks(spec),
        }
    }

    /// Whether pods with these labels are the pool's.
    pub(crate) fn selects(&self, pod: &Labels) -> bool {
        pod.hold(&self.selector)
    }
}

fn labels(object: &Map<String, Value>) -> Labels {
    Labels::of(object.iter().filter_map(|(key, value)| Some((key, value.as_str()?))))
}

/// The ports that a pool names, where there is more than one. The older group names one.
fn ranks(spec: &Value) -> Box<[u16]> {
    let ports = spec.get("targetPorts").and_then(Value::as_array).into_iter().flatten();
    let number = |port: &Value| u16::try_from(port.get("number")?.as_u64()?).ok();
    let ports: Vec<u16> = ports.filter_map(number).take(MOST_RANKS).collect();
    if ports.len() > 1 { ports.into() } else { Box::default() }
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
        let labels: Vec<_> = labels.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        Labels::of(labels.iter().map(|(key, value)| (key, *value)))
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
            assert!(!pool.selects(&pod(&[("app", "vllm"), ("tier", "gpu2")])));
        }
    }

    #[test]
    fn a_pool_that_says_nothing_serves_nobody() {
        for spec in
            [json!(null), json!({}), json!({"selector": {}}), json!({"selector": {"matchLabels": {}}})]
        {
            assert!(!Pool::of(&spec).selects(&pod(&[("app", "vllm")])), "{spec}");
        }
        assert_eq!(Pool::of(&json!({"selector": "app=vllm", "extensionRef": 7})).picker, None);
    }

    #[test]
    fn several_ports_are_those_of_ranks() {
        let of = |ports: Value| format!("{:?}", Pool::of(&json!({"targetPorts": ports})).ranks);
        assert_eq!(of(json!([{"number": 8000}, {"number": 8001}])), "[8000, 8001]");
        assert_eq!(of(json!([{"number": 8000}])), "[]");
        assert_eq!(of(json!([{"number": 8000}, {"number": 70000}, "8001", {}])), "[]");
        assert_eq!(of(json!(8000)), "[]");
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
