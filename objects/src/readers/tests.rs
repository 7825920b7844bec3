use serde_json::json;

use super::*;
use crate::annotations::{AnnotatedVariant, MetricSelection};
use crate::autoscaler::Autoscaler;

fn hpa(metrics: &Value) -> Value {
    json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3, "metrics": metrics}})
}

fn scaled_object(target: &Value, triggers: &Value) -> Value {
    json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "s", "annotations": {"llm-d.ai/model-id": "m"}},
        "spec": {"scaleTargetRef": target, "triggers": triggers}})
}

fn signals(object: &Value) -> Vec<(usize, bool)> {
    let all = SignalSource::all(object, AutoscalerKind::of(object));
    all.map(|signal| (signal.position, signal.names_variant())).collect()
}

#[test]
fn typed_and_json_readers_of_an_hpa_agree() {
    let external = |name: &str, selector: Value| {
        json!({"type": "External", "external": {
        "metric": {"name": name, "selector": selector}, "target": {"type": "AverageValue", "averageValue": "1"}}})
    };
    let one = json!({"matchLabels": {"variant_name": "a", "exported_namespace": "n"}});
    let listed =
        json!({"matchExpressions": [{"key": "variant_name", "operator": "In", "values": ["a", "b"]}]});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}});
    for (metrics, want) in [
        (json!([]), vec![]),
        (json!([cpu]), vec![]),
        (json!([external("queue", one.clone())]), vec![]),
        (json!([cpu, external("wva_desired_replicas", one)]), vec![(1, true)]),
        (json!([external("inferno_desired_replicas", listed)]), vec![(0, true)]),
        (json!([external("wva_desired_replicas", Value::Null)]), vec![(0, false)]),
    ] {
        let object = hpa(&metrics);
        assert_eq!(signals(&object), want, "{metrics}");
        let of_json: Vec<_> =
            SignalSource::all(&object, AutoscalerKind::Hpa).flat_map(|s| s.selectors).collect();
        let typed = MetricReader::from_object(&object).map_or(vec![], |(_, reader)| reader.selectors);
        assert_eq!(of_json, typed, "{metrics}");
    }
}

/// The annotations counted any trigger with such a query, and admission any query with the word `variant_name`.
#[test]
fn readers_of_a_scaled_object_agree() {
    let one = "max(wva_desired_replicas{variant_name=\"a\"})";
    let other = "up{variant_name=\"a\"} * wva_desired_replicas";
    for (kind, query, want, label) in [
        ("prometheus", one, vec![(0, true)], Some("a")),
        ("predictkube", one, vec![], None),
        ("prometheus", "sum by (variant_name) (wva_desired_replicas)", vec![(0, false)], None),
        ("prometheus", "wva_desired_replicas{variant_name=~\"a|b\"}", vec![(0, false)], None),
        ("prometheus", other, vec![(0, false)], None),
        ("prometheus", "{__name__=\"wva_desired_replicas\", variant_name=\"a\"}", vec![(0, true)], Some("a")),
        ("prometheus", "up", vec![], None),
    ] {
        let object =
            scaled_object(&json!({"name": "d"}), &json!([{"type": kind, "metadata": {"query": query}}]));
        assert_eq!(signals(&object), want, "{query}");
        let selection = MetricSelection::from_autoscaler(&object);
        assert_eq!(
            (selection.reads_signal, selection.label("variant_name")),
            (!want.is_empty(), label),
            "{query}"
        );
        let unrestricted: Vec<usize> = want.iter().filter(|(_, one)| !one).map(|(i, _)| *i).collect();
        assert_eq!(selection.unrestricted, unrestricted, "{query}");
        let read = (
            MetricReader::from_object(&object).is_some(),
            Autoscaler::from_object(&object).unwrap().signal.is_some(),
        );
        assert_eq!(read, (selection.reads_signal, selection.reads_signal), "{query}");
    }
}

/// Reviews took an empty kind for a kind, and the controller for KEDA's default.
#[test]
fn an_empty_kind_of_a_scaled_object_is_the_default() {
    let trigger = json!([{"type": "prometheus", "metadata": {"query": "wva_desired_replicas"}}]);
    for target in [
        json!({"name": "d"}),
        json!({"name": "d", "kind": "", "apiVersion": ""}),
        json!({"name": "d", "kind": null}),
    ] {
        let object = scaled_object(&target, &trigger);
        let want = Target::with_defaults(None, None, "d");
        assert_eq!(Target::of_autoscaler(&object).as_ref(), Some(&want), "{target}");
        assert_eq!(
            MetricReader::from_object(&object).map(|(target, _)| target).as_ref(),
            Some(&want),
            "{target}"
        );
        assert_eq!(AnnotatedVariant::from_autoscaler(&object).unwrap().target, want, "{target}");
        assert_eq!(&*Autoscaler::from_object(&object).unwrap().kind, "Deployment", "{target}");
    }
    assert_eq!(Target::of_autoscaler(&scaled_object(&json!({"name": ""}), &trigger)), None);
}

#[test]
fn a_metric_has_a_name_and_a_trigger_a_type() {
    for (source, want) in [
        (json!({"type": "Resource", "resource": {"name": "cpu"}}), "cpu"),
        (json!({"type": "ContainerResource", "containerResource": {"name": "memory"}}), "memory"),
        (json!({"type": "External", "external": {"metric": {"name": "queue"}}}), "queue"),
        (json!({"type": "cron", "metadata": {}}), "cron"),
        (json!({}), ""),
    ] {
        assert_eq!(metric_name(&source), want, "{source}");
    }
}
