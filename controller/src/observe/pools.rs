//! Cached fields of InferencePools of both API groups.

use kube::api::DynamicObject;
use serde_json::{Map, Value};
use wva_crds::entries::EndpointPicker;
use wva_runtime::OptionalCache;
use wva_runtime::cache::Projection;

/// Separator of labels. Neither keys nor values can contain it.
const SEPARATOR: char = '\0';
const MAX_PORTS: usize = 8;

/// One string saves memory: there are thousands of workloads, and few labels are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(Box<str>);

impl Labels {
    pub(crate) fn new<'a>(labels: impl Iterator<Item = (&'a String, &'a str)>) -> Self {
        let all: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        Self(all.join(&SEPARATOR.to_string()).into())
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split(SEPARATOR).filter(|label| !label.is_empty())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .filter_map(|label| label.split_once('='))
            .find(|(own, _)| *own == key)
            .map(|(_, value)| value)
    }

    /// An empty selector matches no labels.
    fn matches(&self, selector: &Self) -> bool {
        !selector.0.is_empty() && selector.iter().all(|wanted| self.iter().any(|own| own == wanted))
    }
}

/// InferencePool cache.
#[derive(Clone)]
pub struct InferencePools(pub(crate) OptionalCache<Pool>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    /// The label `inference_pool` of its picker's series.
    pub(crate) name: Box<str>,
    selector: Labels,
    /// `None`: the reference is not to a Service.
    pub(crate) picker: Option<Box<str>>,
    /// Data-parallel ranks in every pod. Empty for a pool with one port.
    pub(crate) ranks: Box<[u16]>,
}

impl Pool {
    /// A changed pool starts no cycle; requests at its picker do.
    pub(crate) fn projection() -> Projection<DynamicObject, Self> {
        let read = |object: &DynamicObject| {
            let name = object.metadata.name.as_deref().unwrap_or_default().into();
            Self { name, ..Self::from_spec(object.data.get("spec").unwrap_or(&Value::Null)) }
        };
        Projection { read, is_same: None }
    }

    fn from_spec(spec: &Value) -> Self {
        let selector = spec.get("selector").and_then(Value::as_object);
        // The older group has no field matchLabels.
        let selector = selector.map(|s| s.get("matchLabels").and_then(Value::as_object).unwrap_or(s));
        let picker = spec.get("endpointPickerRef").or_else(|| spec.get("extensionRef"));
        Self {
            name: Box::default(),
            selector: selector.map(labels).unwrap_or_default(),
            picker: picker.and_then(service),
            ranks: ranks(spec),
        }
    }

    pub(crate) fn selects(&self, pod: &Labels) -> bool {
        pod.matches(&self.selector)
    }
}

fn labels(object: &Map<String, Value>) -> Labels {
    Labels::new(object.iter().filter_map(|(key, value)| Some((key, value.as_str()?))))
}

/// The older group has one port.
fn ranks(spec: &Value) -> Box<[u16]> {
    let ports = spec.get("targetPorts").and_then(Value::as_array).into_iter().flatten();
    let number = |port: &Value| u16::try_from(port.get("number")?.as_u64()?).ok();
    let ports: Vec<u16> = ports.filter_map(number).take(MAX_PORTS).collect();
    if ports.len() > 1 { ports.into() } else { Box::default() }
}

/// Service is the default kind.
fn service(reference: &Value) -> Option<Box<str>> {
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let (group, kind, name) = (text("group"), text("kind"), text("name"));
    // Other names would change the path of a request.
    let is_name = || name.parse().is_ok_and(|picker| EndpointPicker::service(name) == picker);
    (group.is_empty() && matches!(kind, "" | "Service") && is_name()).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(labels: &[(&str, &str)]) -> Labels {
        let labels: Vec<_> = labels.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        Labels::new(labels.iter().map(|(key, value)| (key, *value)))
    }

    #[test]
    fn reads_selector_and_picker_of_both_api_groups() {
        let present = json!({"selector": {"matchLabels": {"app": "vllm", "tier": "gpu"}}, "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "epp", "port": {"number": 9002}}});
        let older = json!({"selector": {"app": "vllm", "tier": "gpu"}, "targetPortNumber": 8000,
            "extensionRef": {"group": "", "kind": "Service", "name": "epp", "portNumber": 9002}});
        for spec in [present, older] {
            let pool = Pool::from_spec(&spec);
            assert_eq!(pool.picker.as_deref(), Some("epp"), "{spec}");
            assert!(pool.selects(&pod(&[("app", "vllm"), ("tier", "gpu"), ("more", "yes")])));
            assert!(!pool.selects(&pod(&[("app", "vllm")])));
            assert!(!pool.selects(&pod(&[("app", "vllm"), ("tier", "cpu")])));
            assert!(!pool.selects(&pod(&[("app", "vllm"), ("tier", "gpu2")])));
        }
    }

    #[test]
    fn pool_without_selector_selects_nothing() {
        for spec in
            [json!(null), json!({}), json!({"selector": {}}), json!({"selector": {"matchLabels": {}}})]
        {
            assert!(!Pool::from_spec(&spec).selects(&pod(&[("app", "vllm")])), "{spec}");
        }
        assert_eq!(Pool::from_spec(&json!({"selector": "app=vllm", "extensionRef": 7})).picker, None);
    }

    #[test]
    fn reads_rank_ports_of_pools_with_several() {
        let of = |ports: Value| format!("{:?}", Pool::from_spec(&json!({"targetPorts": ports})).ranks);
        assert_eq!(of(json!([{"number": 8000}, {"number": 8001}])), "[8000, 8001]");
        assert_eq!(of(json!([{"number": 8000}])), "[]");
        assert_eq!(of(json!([{"number": 8000}, {"number": 70000}, "8001", {}])), "[]");
        assert_eq!(of(json!(8000)), "[]");
    }

    #[test]
    fn ignores_picker_that_is_not_a_service() {
        let of = |reference: Value| Pool::from_spec(&json!({"endpointPickerRef": reference})).picker;
        assert_eq!(of(json!({"group": "example.com", "kind": "Picker", "name": "p"})), None);
        assert_eq!(of(json!({"kind": "Deployment", "name": "p"})), None);
        assert_eq!(of(json!({"kind": "Service"})), None);
        assert_eq!(of(json!({"name": "epp/status"})), None);
        assert_eq!(of(json!({"name": "app=epp"})), None);
        assert_eq!(of(json!({"name": "p"})).as_deref(), Some("p"));
    }
}
