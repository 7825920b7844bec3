//! Costs and bounds of the VariantAutoscalings in a cluster, read only if `--kubeconfig` or `--context` asks for it.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use clap::ArgMatches;
use serde_json::Value;
use wva_crds::VariantAutoscaling;
use wva_simulator::backtest::history::ModelKey;

use super::options::{MAX_REPLICAS, Options};
use crate::arguments::{path_value, value};
use crate::cluster::{Cluster, VARIANTS, id};

/// What the variants of a model state together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stated {
    /// Cost of a replica for an hour: the mean of the replicas that run, or of the variants if none does.
    pub(super) cost: f64,
    /// Fewest replicas, 1 to [`MAX_REPLICAS`]: a backtest knows no start from zero.
    pub(super) min: u32,
    /// Most replicas, 1 to [`MAX_REPLICAS`]; `None` if a variant states no bound.
    pub(super) max: Option<u32>,
    /// Whose cost it is, for the assumptions.
    pub(super) source: String,
}

/// What variants state, by model; empty if no cluster was asked for.
pub(super) type Variants = BTreeMap<ModelKey, Stated>;

pub(super) fn is_asked_for(arguments: &ArgMatches) -> bool {
    path_value(arguments, "kubeconfig").is_some()
        || ["context", "as"].iter().any(|name| value(arguments, name).is_some())
}

/// # Errors
/// The cluster cannot be read, or has no variant.
pub(super) async fn read(arguments: &ArgMatches, options: &Options) -> anyhow::Result<Variants> {
    let mut cluster = Cluster::connect_everywhere(arguments).await?;
    cluster.namespace.clone_from(&options.selector.namespace);
    let listed = match cluster.list(&VARIANTS).await {
        Err(error) if error.is_kind_missing() => Vec::new(),
        listed => listed?,
    };
    let scope =
        cluster.namespace.as_ref().map_or("in any namespace".to_owned(), |n| format!("in namespace {n}"));
    ensure!(
        !listed.is_empty(),
        "the API server {} has no VariantAutoscaling {scope}: leave --kubeconfig and --context out, and give --cost",
        cluster.server
    );
    by_model(listed)
}

/// # Errors
/// An object is not a VariantAutoscaling, or its cost is not a number.
fn by_model(listed: Vec<Value>) -> anyhow::Result<Variants> {
    let mut models: BTreeMap<ModelKey, Vec<Variant>> = BTreeMap::new();
    for object in listed {
        let own = id(&object);
        let name = format!("VariantAutoscaling {}/{}", own.namespace, own.name);
        let VariantAutoscaling { spec, status, .. } =
            serde_json::from_value(object).with_context(|| name.clone())?;
        let Some(cost) = spec.variant_cost.parse::<f64>().ok().filter(|cost| cost.is_finite()) else {
            bail!(
                "{name}: spec.variantCost is {:?}, not a number: correct it, or leave --kubeconfig and --context out",
                spec.variant_cost
            );
        };
        let replicas = |count: Option<i32>| count.map(|count| u32::try_from(count).unwrap_or(0));
        let variant = Variant {
            name: own.name,
            cost,
            running: replicas(status.and_then(|status| status.current_replicas)).unwrap_or(0),
            min: replicas(spec.min_replicas).unwrap_or(0),
            max: replicas(spec.max_replicas),
        };
        models.entry(ModelKey { namespace: own.namespace, model: spec.model_id }).or_default().push(variant);
    }
    Ok(models.into_iter().map(|(key, variants)| (key, Stated::of(&variants))).collect())
}

/// One object.
struct Variant {
    name: String,
    cost: f64,
    running: u32,
    min: u32,
    max: Option<u32>,
}

impl Stated {
    fn of(variants: &[Variant]) -> Self {
        let running = variants.iter().fold(0, |sum: u32, variant| sum.saturating_add(variant.running));
        // None runs: each counts alike.
        let weight = |variant: &Variant| f64::from(if running > 0 { variant.running } else { 1 });
        let weights: f64 = variants.iter().map(weight).sum();
        let cost = variants.iter().map(|variant| weight(variant) * variant.cost).sum::<f64>() / weights;
        let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
        let source = match (variants.len(), running) {
            (1, _) => format!("variantCost of {}", names[0]),
            (_, 0) => format!("the mean variantCost of {}", names.join(", ")),
            _ => format!("the mean variantCost of the {running} replicas of {}", names.join(", ")),
        };
        let add = |sum: u32, replicas: u32| sum.saturating_add(replicas).min(MAX_REPLICAS);
        let min = variants.iter().fold(0, |sum, variant| add(sum, variant.min)).max(1);
        let max = variants.iter().try_fold(0, |sum, variant| Some(add(sum, variant.max?)));
        Self { cost, min, max: max.filter(|max| *max > 0), source }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variant(name: &str, spec: &Value, running: i32) -> Value {
        let mut object = json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"namespace": "prod", "name": name},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "modelID": "acme"},
            "status": {"currentReplicas": running}});
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        object
    }

    fn of_model(listed: Vec<Value>) -> Stated {
        by_model(listed).unwrap().into_values().next().unwrap()
    }

    #[test]
    fn variants_of_a_model_count_by_their_replicas() {
        let h100 = json!({"variantCost": "40", "minReplicas": 1, "maxReplicas": 4});
        let l4 = json!({"variantCost": "10", "maxReplicas": 8});
        let stated = of_model(vec![variant("h100", &h100, 3), variant("l4", &l4, 1)]);
        assert_eq!((stated.cost, stated.min, stated.max), (32.5, 1, Some(12)));
        assert_eq!(stated.source, "the mean variantCost of the 4 replicas of h100, l4");
        let idle = of_model(vec![variant("h100", &h100, 0), variant("l4", &l4, 0)]);
        assert_eq!((idle.cost, idle.source.as_str()), (25.0, "the mean variantCost of h100, l4"));
    }

    #[test]
    fn a_variant_without_bounds_leaves_them_open() {
        let stated = of_model(vec![
            variant("h100", &json!({"variantCost": "40", "maxReplicas": 4}), 1),
            variant("l4", &json!({}), 0),
        ]);
        assert_eq!((stated.min, stated.max), (1, None));
        assert_eq!(of_model(vec![variant("h100", &json!({"maxReplicas": 0}), 0)]).max, None);
        let greatest = json!({"minReplicas": i32::MAX, "maxReplicas": i32::MAX});
        let stated = of_model(["a", "b", "c"].map(|name| variant(name, &greatest, i32::MAX)).into());
        assert_eq!((stated.min, stated.max), (MAX_REPLICAS, Some(MAX_REPLICAS)));
    }

    #[test]
    fn a_cost_that_is_no_number_names_its_object() {
        let error =
            by_model(vec![variant("h100", &json!({"variantCost": "4,0"}), 1)]).unwrap_err().to_string();
        assert!(error.contains("VariantAutoscaling prod/h100: spec.variantCost is \"4,0\""), "{error}");
    }
}
