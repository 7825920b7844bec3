//! From the status of VAs to external metric values. Pure: the objects, the question and the time go in, the list
//! comes out. What cannot be vouched for is left out and never given as 0, since an HPA holds where a metric is
//! missing and scales down where it is 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::core::{Selector, SelectorExt};
use serde::Serialize;
use wva_crds::names::UNRESOLVED_ACCELERATOR;
use wva_scaling::snapshot::Mode;

use super::{API_VERSION, LEGACY_METRIC, METRIC};
use crate::variants::Variant;

/// A target that the engine has not confirmed for longer is no target any more: nobody may be deciding. For its successor
/// it is no memory, and for other controllers the variant is nobody's.
pub const LONGEST_AGE: SignedDuration = SignedDuration::from_mins(15);
/// So old a target may be when it is confirmed: the write comes after a cycle, and it takes its time.
pub const LATEST_CONFIRMATION: SignedDuration = SignedDuration::from_mins(LONGEST_AGE.as_mins() - 1);

/// `ExternalMetricValueList` of `external.metrics.k8s.io/v1beta1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMetricValueList {
    kind: &'static str,
    api_version: &'static str,
    metadata: BTreeMap<String, String>,
    /// One per variant, in order of name.
    pub items: Vec<ExternalMetricValue>,
}

/// `ExternalMetricValue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMetricValue {
    /// As asked for.
    pub metric_name: String,
    /// `variant_name`, `exported_namespace`, `accelerator_type`, and `controller_instance` where the VA has one.
    pub metric_labels: BTreeMap<String, String>,
    /// When the engine last confirmed the target; whole seconds, as the API's times have.
    pub timestamp: Timestamp,
    /// Replicas, as a Kubernetes quantity.
    pub value: String,
}

/// Whether `metric` is served: the older name only with `legacy`.
#[must_use]
pub fn is_served(metric: &str, legacy: bool) -> bool {
    metric == METRIC || (legacy && metric == LEGACY_METRIC)
}

/// The values of `metric` at `now`, of those VAs of one namespace whose labels `selector` matches. VAs of every instance
/// count. Whether the metric is served is the caller's to know ([`is_served`]).
#[must_use]
pub fn values(
    vas: &[Arc<Variant>],
    metric: &str,
    selector: &Selector,
    now: Timestamp,
) -> ExternalMetricValueList {
    let mut items: Vec<_> = vas
        .iter()
        .filter_map(|va| value(va, metric, now))
        .filter(|item| selector.matches(&item.metric_labels))
        .collect();
    items.sort_by(|a, b| a.metric_labels["variant_name"].cmp(&b.metric_labels["variant_name"]));
    ExternalMetricValueList {
        kind: "ExternalMetricValueList",
        api_version: API_VERSION,
        metadata: BTreeMap::new(),
        items,
    }
}

fn value(va: &Variant, metric: &str, now: Timestamp) -> Option<ExternalMetricValue> {
    // An object that breaks today's rules gets no decisions: its status is what an earlier release left behind.
    if va.mode()? == Mode::Recommend || va.is_leaving() {
        return None;
    }
    let alloc = va.status.alloc.as_ref()?;
    let confirmed = alloc.last_run_time.as_ref()?.0;
    if now.duration_since(confirmed) > LONGEST_AGE {
        return None;
    }
    let accelerator = Some(alloc.accelerator.as_str()).filter(|name| !name.is_empty());
    let accelerator = accelerator.or(va.accelerator.as_deref()).unwrap_or(UNRESOLVED_ACCELERATOR);
    let mut metric_labels = BTreeMap::from([
        ("variant_name".to_owned(), va.key.name.clone()),
        ("exported_namespace".to_owned(), va.key.namespace.clone()),
        ("accelerator_type".to_owned(), accelerator.to_owned()),
    ]);
    if let Some(instance) = &va.instance {
        metric_labels.insert("controller_instance".to_owned(), instance.clone());
    }
    Some(ExternalMetricValue {
        metric_name: metric.to_owned(),
        metric_labels,
        timestamp: Timestamp::from_second(confirmed.as_second()).ok()?,
        value: alloc.num_replicas.to_string(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use kube::core::DynamicObject;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use wva_crds::names::{ACCELERATOR_LABEL, INSTANCE_LABEL, MODE_ANNOTATION};

    use super::*;
    use crate::external_metrics::selector;
    use crate::watches::cache::Writer;

    pub(in crate::external_metrics) fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    /// A VA with a fresh target of 3, which `change` then spoils.
    pub(in crate::external_metrics) fn va(
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Box<DynamicObject> {
        let mut va = json!({
            "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": name, "namespace": namespace, "labels": {}, "annotations": {}},
            "spec": {"scaleTargetRef": {"name": name}, "modelID": "m"},
            "status": {"desiredOptimizedAlloc": {
                "numReplicas": 3, "accelerator": "H100", "lastRunTime": "2026-11-20T11:59:30Z"}}
        });
        change(&mut va);
        Box::new(serde_json::from_value(va).unwrap())
    }

    /// What is served of these in `prod`, by way of the cache.
    fn listed(vas: &[Box<DynamicObject>], metric: &str, selector: &Selector) -> ExternalMetricValueList {
        let mut writer = Writer::new(Variant::kind());
        for va in vas {
            writer.take_in(&Event::Apply((**va).clone()));
        }
        values(&writer.reader().of_namespace("prod"), metric, selector, now())
    }

    #[track_caller]
    fn served(vas: &[Box<DynamicObject>], query: &str) -> Vec<String> {
        let list = listed(vas, METRIC, &selector::parse(query).unwrap());
        list.items.into_iter().map(|i| format!("{}={}", i.metric_labels["variant_name"], i.value)).collect()
    }

    #[test]
    fn a_list_looks_as_the_hpa_expects() {
        let instance = |va: &mut Value| va["metadata"]["labels"][INSTANCE_LABEL] = json!("blue");
        let list = listed(&[va("prod", "a", instance)], METRIC, &Selector::default());
        let want = json!({
            "kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {},
            "items": [{
                "metricName": "wva_desired_replicas",
                "metricLabels": {"variant_name": "a", "exported_namespace": "prod", "accelerator_type": "H100",
                    "controller_instance": "blue"},
                "timestamp": "2026-11-20T11:59:30Z",
                "value": "3"
            }]
        });
        assert_eq!(serde_json::to_value(list).unwrap(), want);
    }

    #[test]
    fn what_cannot_be_vouched_for_is_left_out() {
        let alloc = "/status/desiredOptimizedAlloc";
        let set = |path: &str, to: Value| {
            let path = path.to_owned();
            va("prod", "a", move |va| *va.pointer_mut(&path).unwrap() = to)
        };
        let ran = |at: &str| set(&format!("{alloc}/lastRunTime"), json!(at));
        let mode = |mode: &str| set("/metadata/annotations", json!({MODE_ANNOTATION: mode}));
        let leaving =
            va("prod", "a", |va| va["metadata"]["deletionTimestamp"] = json!("2026-11-20T11:59:59Z"));
        let replicas = |to: Value| set(&format!("{alloc}/numReplicas"), to);
        let rows: Vec<(&str, Box<DynamicObject>, &[&str])> = vec![
            ("a target", va("prod", "a", |_| {}), &["a=3"]),
            ("a target of 0 is a target", replicas(json!(0)), &["a=0"]),
            ("no status", set("/status", json!(null)), &[]),
            ("empty status", set("/status", json!({})), &[]),
            ("no target", set(alloc, json!(null)), &[]),
            ("no number", set(alloc, json!({"lastRunTime": "2026-11-20T11:59:30Z"})), &[]),
            ("a number below 0", replicas(json!(-1)), &[]),
            ("a number that is text", replicas(json!("3")), &[]),
            ("no time", set(alloc, json!({"numReplicas": 3})), &[]),
            ("a time that is none", ran("yesterday"), &[]),
            ("just young enough", ran("2026-11-20T11:45:00Z"), &["a=3"]),
            ("too old", ran("2026-11-20T11:44:59Z"), &[]),
            ("a writer whose clock is ahead", ran("2026-11-20T12:00:10Z"), &["a=3"]),
            ("recommend", mode("recommend"), &[]),
            ("paused", mode("paused"), &["a=3"]),
            ("fixed", mode("fixed=3"), &["a=3"]),
            ("no scaleTargetRef", set("/spec", json!({"modelID": "m"})), &[]),
            ("being deleted", leaving, &[]),
            ("another namespace", va("dev", "a", |_| {}), &[]),
        ];
        for (what, va, want) in rows {
            assert_eq!(served(&[va], ""), want, "{what}");
        }
    }

    #[test]
    fn the_accelerator_is_that_of_status_then_of_the_label() {
        let label = |to: Value| {
            move |va: &mut Value| {
                va["status"]["desiredOptimizedAlloc"]["accelerator"] = to;
                va["metadata"]["labels"][ACCELERATOR_LABEL] = json!("A100");
            }
        };
        let accelerator = |va: Box<DynamicObject>| {
            let list = listed(&[va], METRIC, &Selector::default());
            list.items[0].metric_labels["accelerator_type"].clone()
        };
        assert_eq!(accelerator(va("prod", "a", label(json!("H100")))), "H100");
        assert_eq!(accelerator(va("prod", "a", label(json!("")))), "A100");
        let neither = |va: &mut Value| va["status"]["desiredOptimizedAlloc"]["accelerator"] = json!(null);
        assert_eq!(accelerator(va("prod", "a", neither)), "unresolved");
    }

    #[test]
    fn every_instance_is_served_in_order_of_name_and_selectors_tell_them_apart() {
        let of = |instance: &'static str| {
            move |va: &mut Value| va["metadata"]["labels"][INSTANCE_LABEL] = json!(instance)
        };
        let vas = [
            va("prod", "c", of("blue")),
            va("prod", "a", |_| {}),
            va("dev", "d", |_| {}),
            va("prod", "b", of("red")),
        ];
        for (query, want) in [
            ("", &["a=3", "b=3", "c=3"][..]),
            ("variant_name=b,exported_namespace=prod", &["b=3"]),
            ("variant_name in (a,c)", &["a=3", "c=3"]),
            ("controller_instance=blue", &["c=3"]),
            ("!controller_instance", &["a=3"]),
            ("controller_instance notin (blue)", &["a=3", "b=3"]),
            ("accelerator_type!=H100", &[]),
        ] {
            assert_eq!(served(&vas, query), want, "{query}");
        }
    }

    #[test]
    fn the_older_name_is_served_on_request_alone() {
        let rows = [
            (METRIC, false, true),
            (LEGACY_METRIC, true, true),
            (LEGACY_METRIC, false, false),
            ("x", true, false),
        ];
        for (metric, legacy, want) in rows {
            assert_eq!(is_served(metric, legacy), want, "{metric} {legacy}");
        }
        let list = listed(&[va("prod", "a", |_| {})], LEGACY_METRIC, &Selector::default());
        assert_eq!(list.items[0].metric_name, "inferno_desired_replicas");
    }
}
