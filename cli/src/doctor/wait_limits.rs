//! How long requests may wait while a model wakes: at endpoint pickers, and by the rules of `HTTPRoute`s.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use wva_crds::GoDuration;
use wva_crds::entries::EndpointPicker;
use wva_crds::picker_report::PickerReport;
use wva_crds::text::go_flag;

use super::unreadable::{UnreadableKind, list_or_note};
use crate::cluster::{
    ApiError, Cluster, HTTP_ROUTES, INFERENCE_POOLS, OLDER_INFERENCE_POOLS, ObjectId, entry, id, items, text,
};

/// Fields of an `EndpointPickerConfig`. The first one counts while the pool has no endpoints.
const FIELDS: [&str; 2] = ["noEndpointRequestTTL", "defaultRequestTTL"];
/// Flags of a picker with its configuration, and with the path of its file.
const CONFIG_TEXT: &str = "config-text";
const CONFIG_FILE: &str = "config-file";

/// Objects that limit how long requests wait.
#[derive(Default)]
pub(super) struct WaitLimits {
    /// Waits by pod of a picker.
    pub(super) pickers: BTreeMap<ObjectId, PickerWait>,
    pub(super) routes: Vec<RouteLimit>,
}

/// What the configuration of a picker says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PickerWait {
    /// `ConfigMap epp-config`, or the pod.
    pub(super) place: String,
    pub(super) limit: Result<ConfiguredWait, String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ConfiguredWait {
    /// The default of the picker's release.
    Default,
    /// The field, and its time. Zero: no limit.
    Set(&'static str, GoDuration),
}

/// Least time limit of an `HTTPRoute` to a picker's pool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RouteLimit {
    pub(super) route: ObjectId,
    /// Namespace and Service of the picker.
    pub(super) picker: ObjectId,
    /// `timeouts.request` or `timeouts.backendRequest`.
    pub(super) field: &'static str,
    pub(super) time: GoDuration,
}

impl WaitLimits {
    /// Reads the configuration of these pickers, and the routes to their pools.
    pub(super) async fn read(
        cluster: &Cluster,
        pickers: &[PickerReport],
        pods: &[Value],
        unreadable: &mut Vec<UnreadableKind>,
    ) -> Self {
        if pickers.is_empty() {
            return Self::default();
        }
        let names: BTreeSet<ObjectId> = pickers.iter().flat_map(pods_of).collect();
        let mut found = BTreeMap::new();
        let mut maps: BTreeMap<ObjectId, Result<Value, String>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| names.contains(&id(pod))) {
            let Some(source) = ConfigSource::of(pod) else { continue };
            if let ConfigSource::Map { map, .. } = &source
                && !maps.contains_key(map)
            {
                let path = format!("/api/v1/namespaces/{}/configmaps/{}", map.namespace, map.name);
                let read = cluster.get(&path).await.map_err(|ApiError { message, .. }| message);
                maps.insert(map.clone(), read);
            }
            found.insert(id(pod), source.wait(&id(pod), &maps));
        }
        let mut pools = list_or_note(cluster, &INFERENCE_POOLS, unreadable).await;
        pools.extend(list_or_note(cluster, &OLDER_INFERENCE_POOLS, unreadable).await);
        let routes = list_or_note(cluster, &HTTP_ROUTES, unreadable).await;
        Self { pickers: found, routes: routes.iter().flat_map(|route| route_limits(route, &pools)).collect() }
    }
}

pub(super) fn pods_of(picker: &PickerReport) -> impl Iterator<Item = ObjectId> {
    picker.pods.iter().map(|pod| ObjectId { namespace: picker.namespace.clone(), name: pod.pod.clone() })
}

/// Service of a picker in a report; `None` if its pods have labels.
pub(super) fn picker_service(picker: &PickerReport) -> Option<ObjectId> {
    let parsed: EndpointPicker = picker.picker.parse().ok()?;
    let name = parsed.service_name()?.to_owned();
    Some(ObjectId { namespace: picker.namespace.clone(), name })
}

/// Source of the configuration of a picker's pod.
#[derive(Debug, PartialEq)]
enum ConfigSource {
    Text(String),
    Map { map: ObjectId, key: String },
}

impl ConfigSource {
    /// Finds the source. `None` if the pod has no configuration, or in another volume than a ConfigMap.
    fn of(pod: &Value) -> Option<Self> {
        items(pod, "/spec/containers").find_map(|container| {
            if let Some(text) = flag(container, CONFIG_TEXT) {
                return Some(Self::Text(text.to_owned()));
            }
            let path = flag(container, CONFIG_FILE)?;
            items(container, "/volumeMounts").find_map(|mount| {
                let inside = path.strip_prefix(text(mount, "/mountPath").trim_end_matches('/'))?;
                let key = inside.strip_prefix('/').unwrap_or(text(mount, "/subPath"));
                let volume =
                    items(pod, "/spec/volumes").find(|v| text(v, "/name") == text(mount, "/name"))?;
                let name = text(volume, "/configMap/name").to_owned();
                let is_found = !name.is_empty() && !key.is_empty();
                let map = ObjectId { namespace: id(pod).namespace, name };
                is_found.then(|| Self::Map { map, key: key.to_owned() })
            })
        })
    }

    fn wait(&self, pod: &ObjectId, maps: &BTreeMap<ObjectId, Result<Value, String>>) -> PickerWait {
        let (place, text) = match self {
            Self::Text(text) => (format!("--{CONFIG_TEXT} of pod {}", pod.name), Ok(text.as_str())),
            Self::Map { map, key } => {
                let data = match maps.get(map) {
                    Some(Ok(object)) => {
                        entry(object, "/data", key).ok_or_else(|| format!("it has no key {key}"))
                    }
                    Some(Err(error)) => Err(error.clone()),
                    None => Err("it was not read".to_owned()),
                };
                (format!("ConfigMap {}", map.name), data)
            }
        };
        PickerWait { place, limit: text.and_then(configured_wait) }
    }
}

/// Value of a flag of a picker.
pub(super) fn flag<'c>(container: &'c Value, name: &str) -> Option<&'c str> {
    let words = items(container, "/command").chain(items(container, "/args"));
    go_flag(words.filter_map(Value::as_str), name)
}

/// Wait that an `EndpointPickerConfig` sets, in YAML or JSON.
fn configured_wait(config: &str) -> Result<ConfiguredWait, String> {
    let config: Value = serde_saphyr::from_str(config).map_err(|error| error.to_string())?;
    let set = |field: &&str| config.pointer(&format!("/flowControl/{field}")).is_some_and(|v| !v.is_null());
    let Some(field) = FIELDS.into_iter().find(set) else { return Ok(ConfiguredWait::Default) };
    let value = text(&config, &format!("/flowControl/{field}"));
    let time = value.parse().map_err(|error| format!("flowControl.{field}: {error}"))?;
    Ok(ConfiguredWait::Set(field, time))
}

/// Limits of the rules of a route that lead to pools with a picker.
fn route_limits(route: &Value, pools: &[Value]) -> Vec<RouteLimit> {
    let own = id(route);
    let mut limits = Vec::new();
    for rule in items(route, "/spec/rules") {
        let Some((field, time)) = least_timeout(rule) else { continue };
        for backend in items(rule, "/backendRefs").filter(|b| text(b, "/kind") == "InferencePool") {
            let namespace = Some(text(backend, "/namespace")).filter(|n| !n.is_empty());
            let namespace = namespace.unwrap_or(&own.namespace).to_owned();
            let pool = ObjectId { namespace, name: text(backend, "/name").to_owned() };
            let named = pools.iter().filter(|known| id(known) == pool);
            let services = named.map(|pool| {
                let current = text(pool, "/spec/endpointPickerRef/name");
                if current.is_empty() { text(pool, "/spec/extensionRef/name") } else { current }
            });
            let services: BTreeSet<&str> = services.filter(|name| !name.is_empty()).collect();
            limits.extend(services.into_iter().map(|name| RouteLimit {
                route: own.clone(),
                picker: ObjectId { namespace: pool.namespace.clone(), name: name.to_owned() },
                field,
                time,
            }));
        }
    }
    limits
}

/// Zero: without limit.
fn least_timeout(rule: &Value) -> Option<(&'static str, GoDuration)> {
    [("timeouts.request", "/timeouts/request"), ("timeouts.backendRequest", "/timeouts/backendRequest")]
        .into_iter()
        .filter_map(|(field, path)| Some((field, text(rule, path).parse::<GoDuration>().ok()?)))
        .filter(|(_, time)| !time.is_zero())
        .min_by_key(|(_, time)| *time)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> ObjectId {
        ObjectId { namespace: "prod".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn the_first_of_two_fields_counts_at_zero() {
        let limit = |config: &str| configured_wait(config).map_err(|_| ());
        let set = |field, seconds| Ok(ConfiguredWait::Set(field, GoDuration::from_secs(seconds)));
        assert_eq!(limit("flowControl: {defaultRequestTTL: 90s}"), set("defaultRequestTTL", 90));
        let both = "flowControl: {defaultRequestTTL: 90s, noEndpointRequestTTL: 10m}";
        assert_eq!(limit(both), set("noEndpointRequestTTL", 600));
        assert_eq!(limit("featureGates: [flowControl]"), Ok(ConfiguredWait::Default));
        assert_eq!(limit("flowControl: {defaultRequestTTL: soon}"), Err(()));
        assert_eq!(limit(": ["), Err(()));
    }

    #[test]
    fn finds_the_configuration_of_a_pod() {
        let pod = |args: Value, mount: Value| {
            json!({"metadata": {"name": "epp-0", "namespace": "prod"}, "spec": {
                "containers": [{"args": args, "volumeMounts": [{"name": "other", "mountPath": "/tmp"}, mount]}],
                "volumes": [{"name": "config", "configMap": {"name": "epp-config"}}, {"name": "other"}]}})
        };
        let folder = json!({"name": "config", "mountPath": "/config/"});
        let file = json!({"name": "config", "mountPath": "/epp.yaml", "subPath": "epp.yaml"});
        let source = |args: Value, mount: &Value| ConfigSource::of(&pod(args, mount.clone()));
        let map = |key: &str| Some(ConfigSource::Map { map: object("epp-config"), key: key.to_owned() });
        assert_eq!(source(json!(["--config-file", "/config/epp.yaml"]), &folder), map("epp.yaml"));
        assert_eq!(source(json!(["-config-file=/epp.yaml"]), &file), map("epp.yaml"));
        assert_eq!(source(json!(["--config-file=/elsewhere/epp.yaml"]), &folder), None);
        assert_eq!(source(json!(["--config-file=/tmp/epp.yaml"]), &folder), None, "another kind of volume");
        assert_eq!(
            source(json!(["--config-text", "a: b"]), &folder),
            Some(ConfigSource::Text("a: b".to_owned()))
        );
        assert_eq!(source(json!([]), &folder), None);
    }

    #[test]
    fn a_map_that_cannot_be_read_says_why() {
        let source = ConfigSource::Map { map: object("epp-config"), key: "epp.yaml".to_owned() };
        let limit = |read: Result<Value, String>| {
            source.wait(&object("epp-0"), &BTreeMap::from([(object("epp-config"), read)])).limit
        };
        let data = json!({"data": {"epp.yaml": "flowControl: {defaultRequestTTL: 0s}"}});
        assert_eq!(limit(Ok(data)), Ok(ConfiguredWait::Set("defaultRequestTTL", GoDuration::default())));
        assert_eq!(limit(Ok(json!({}))), Err("it has no key epp.yaml".to_owned()));
        assert_eq!(limit(Err("forbidden".to_owned())), Err("forbidden".to_owned()));
    }

    #[test]
    fn the_least_timeout_counts_for_the_picker_of_its_pool() {
        let pools = [
            json!({"metadata": {"name": "p", "namespace": "prod"}, "spec": {"endpointPickerRef": {"name": "epp"}}}),
        ];
        let limits = |timeouts: Value, kind: &str| {
            let route = json!({"metadata": {"name": "r", "namespace": "prod"}, "spec": {"rules": [
                {"timeouts": timeouts, "backendRefs": [{"kind": kind, "name": "p"}]}]}});
            route_limits(&route, &pools)
        };
        let found = limits(json!({"request": "300s", "backendRequest": "1m"}), "InferencePool");
        let want = RouteLimit {
            route: object("r"),
            picker: object("epp"),
            field: "timeouts.backendRequest",
            time: GoDuration::from_secs(60),
        };
        assert_eq!(found, [want]);
        assert_eq!(limits(json!({"request": "0s"}), "InferencePool"), [], "no limit");
        assert_eq!(limits(json!({"request": "300s"}), "Service"), []);
    }
}
