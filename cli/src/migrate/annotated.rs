//! HPAs and ScaledObjects that v0.9 of the original managed by their annotations: the `VariantAutoscaling` that says the
//! same, and the autoscaler where it does not follow that one variant yet. Pure.

use serde_json::{Map, Value, json};
use wva_crds::names::{
    ACCELERATOR_LABEL, DESIRED_REPLICAS_METRIC, GROUP, INSTANCE_LABEL, KIND, VERSION, is_desired_replicas,
    reads_desired_replicas,
};

use super::objects::{metadata, object, set};
use super::variant::Changed;
use crate::cluster::{entry, items, text};

const MANAGED: &str = "llm-d.ai/managed";
const MODEL: &str = "llm-d.ai/model-id";
const COST: &str = "llm-d.ai/variant-cost";

/// What an annotated autoscaler becomes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Made {
    /// `None` where a person has to say something first.
    pub(super) variant: Option<Changed>,
    /// `None` where it follows the variant already.
    pub(super) autoscaler: Option<Changed>,
    /// What a person has to settle.
    pub(super) open: Vec<String>,
}

/// Whether the original manages an autoscaler.
pub(super) fn is_managed(autoscaler: &Value) -> bool {
    let kinds = ["HorizontalPodAutoscaler", "ScaledObject"];
    kinds.contains(&text(autoscaler, "/kind"))
        && entry(autoscaler, "/metadata/annotations", MANAGED).is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

/// The variant of an autoscaler, and the autoscaler as it has to be.
pub(super) fn migrate(autoscaler: &Value, namespace: &str) -> Made {
    let mut made = Made::default();
    let scaled_object = text(autoscaler, "/kind") == "ScaledObject";
    let followed = if scaled_object { of_triggers(autoscaler) } else { of_metrics(autoscaler) };
    let target = text(autoscaler, "/spec/scaleTargetRef/name");
    let name = followed
        .labels
        .iter()
        .find(|(key, _)| key == "variant_name")
        .map_or(target, |(_, name)| name.as_str());
    match variant(autoscaler, name, &followed) {
        Ok(changed) => made.variant = Some(changed),
        Err(open) => made.open.push(open),
    }
    if scaled_object {
        made.open.extend(query_to_mend(autoscaler, name, namespace, &followed));
    } else {
        made.autoscaler = following(autoscaler, name, namespace);
    }
    made
}

/// Whether an autoscaler follows the metric, and which labels it asks of the series.
struct Followed {
    /// Where it follows all variants at once.
    all: Vec<usize>,
    follows: bool,
    labels: Vec<(String, String)>,
}

fn of_metrics(hpa: &Value) -> Followed {
    let mut followed = Followed { all: Vec::new(), follows: false, labels: Vec::new() };
    for (i, metric) in items(hpa, "/spec/metrics").enumerate() {
        if !is_desired_replicas(text(metric, "/external/metric/name")) {
            continue;
        }
        followed.follows = true;
        let labels = metric.pointer("/external/metric/selector/matchLabels").and_then(Value::as_object);
        let pairs =
            labels.into_iter().flatten().filter_map(|(key, v)| Some((key.clone(), v.as_str()?.to_owned())));
        let pairs: Vec<_> = pairs.collect();
        let by_expression = items(metric, "/external/metric/selector/matchExpressions");
        let mut by_expression = by_expression.filter(|e| text(e, "/key") == "variant_name");
        if by_expression.next().is_none() && !pairs.iter().any(|(key, _)| key == "variant_name") {
            followed.all.push(i);
        }
        followed.labels.extend(pairs);
    }
    followed
}

fn of_triggers(scaled_object: &Value) -> Followed {
    let mut followed = Followed { all: Vec::new(), follows: false, labels: Vec::new() };
    for (i, trigger) in items(scaled_object, "/spec/triggers").enumerate() {
        let query = text(trigger, "/metadata/query");
        if !reads_desired_replicas(query) {
            continue;
        }
        followed.follows = true;
        for key in ["variant_name", "accelerator_type", "controller_instance"] {
            if let Some(value) = matched(query, key) {
                followed.labels.push((key.to_owned(), value.to_owned()));
            }
        }
        if matched(query, "variant_name").is_none() {
            followed.all.push(i);
        }
    }
    followed
}

/// The value that a query asks of a label with `=`.
fn matched<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    let after = query.split_once(key)?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    after[1..].split_once(quote).map(|(value, _)| value)
}

fn variant(autoscaler: &Value, name: &str, followed: &Followed) -> Result<Changed, String> {
    let annotation = |key| entry(autoscaler, "/metadata/annotations", key).filter(|v| !v.trim().is_empty());
    let model = annotation(MODEL).ok_or_else(|| {
        format!("metadata.annotations[{MODEL}]: found none, and nothing else names the model: add it")
    })?;
    let target = autoscaler.pointer("/spec/scaleTargetRef").and_then(Value::as_object);
    let word = |key: &str| target.and_then(|t| t.get(key)).and_then(Value::as_str).filter(|v| !v.is_empty());
    let workload = word("name").ok_or("spec.scaleTargetRef.name: found none: name the workload")?;
    let mut spec = json!({
        "scaleTargetRef": {
            "apiVersion": word("apiVersion").unwrap_or("apps/v1"),
            "kind": word("kind").unwrap_or("Deployment"),
            "name": workload,
        },
        "modelID": model,
    });
    let mut changes =
        vec![format!("the VariantAutoscaling that its annotations stand for ({MANAGED}, {MODEL})")];
    if let Some(cost) = annotation(COST) {
        spec["variantCost"] = json!(cost);
        changes.push(format!("spec.variantCost is its {COST}"));
    }
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    if let Some(namespace) = autoscaler.pointer("/metadata/namespace") {
        metadata.insert("namespace".to_owned(), namespace.clone());
    }
    // What the autoscaler asks of the series, the variant has to have.
    for (of_series, label) in
        [("accelerator_type", ACCELERATOR_LABEL), ("controller_instance", INSTANCE_LABEL)]
    {
        if let Some((_, value)) = followed.labels.iter().find(|(key, _)| key == of_series) {
            set(&mut metadata, "labels", label, value);
            changes.push(format!("metadata.labels[{label}] is what it selects by {of_series}"));
        }
    }
    let object = object(&format!("{GROUP}/{VERSION}"), KIND, &metadata, &spec);
    Ok(Changed { object, changes })
}

/// An HPA that follows this one variant; `None` where it does already.
fn following(hpa: &Value, name: &str, namespace: &str) -> Option<Changed> {
    let followed = of_metrics(hpa);
    if followed.follows && followed.all.is_empty() {
        return None;
    }
    let (mut spec, mut changes) = (hpa.get("spec")?.clone(), Vec::new());
    let labels = [("variant_name", name), ("exported_namespace", namespace)];
    for i in &followed.all {
        let selector = spec.pointer_mut(&format!("/metrics/{i}/external/metric"))?.as_object_mut()?;
        let selector = selector.entry("selector").or_insert_with(|| json!({})).as_object_mut()?;
        let matched = selector.entry("matchLabels").or_insert_with(|| json!({})).as_object_mut()?;
        matched.extend(labels.map(|(key, value)| (key.to_owned(), json!(value))));
        changes.push(format!(
            "spec.metrics[{i}] selects the series of this variant: an HPA adds up all that match"
        ));
    }
    if !followed.follows {
        let metrics = spec.as_object_mut()?.entry("metrics").or_insert_with(|| json!([])).as_array_mut()?;
        metrics.push(json!({"type": "External", "external": {
            "metric": {"name": DESIRED_REPLICAS_METRIC, "selector": {"matchLabels": Map::from_iter(
                labels.map(|(key, value)| (key.to_owned(), json!(value)))
            )}},
            "target": {"type": "AverageValue", "averageValue": "1"},
        }}));
        changes.push(format!(
            "spec.metrics follows {DESIRED_REPLICAS_METRIC} too: it takes the most of all its metrics, so remove those that \
             are not to decide"
        ));
    }
    let object = object(text(hpa, "/apiVersion"), text(hpa, "/kind"), &metadata(hpa), &spec);
    Some(Changed { object, changes })
}

/// What a person has to write into a ScaledObject, whose query is not taken apart.
fn query_to_mend(scaled_object: &Value, name: &str, namespace: &str, followed: &Followed) -> Option<String> {
    // Another namespace may have a variant of the same name.
    let query = format!(
        "max({DESIRED_REPLICAS_METRIC}{{variant_name=\"{name}\",exported_namespace=\"{namespace}\"}})"
    );
    let trigger = followed.all.first();
    let found = match trigger {
        Some(i) => {
            let query = text(scaled_object, &format!("/spec/triggers/{i}/metadata/query"));
            format!("spec.triggers[{i}].metadata.query: found {query}, which selects no variant_name")
        }
        None if followed.follows => return None,
        None => format!("spec.triggers: none of type prometheus reads {DESIRED_REPLICAS_METRIC}"),
    };
    Some(format!("{found}: use {query} with metricType AverageValue and threshold \"1\""))
}
