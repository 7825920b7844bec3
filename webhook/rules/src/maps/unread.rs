//! Warnings about maps that have no effect where they stand.

use crate::maps::WARN;
use crate::maps::names::{MapRole, Place};
use crate::rule::{Check, Rule, Scope};

pub(crate) const ELSEWHERE: Rule = Rule {
    code: "WVA-CM-053",
    field: "metadata.namespace",
    message: "not read here: {other} is",
    docs: "The main map, a service-class map, or a map under an older name stands in a namespace other than the \
           controller's: nothing reads it there. Namespace-local maps are exactly `wva-saturation-scaling-config` and \
           `wva-model-scale-to-zero-config`. In the controller's namespace, another global map of the same kind comes \
           first by its name: an install by Helm has a saturation map of its own, and reads that one alone.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.read_instead.is_empty() {
            let field = if facts.place == Place::Global { "metadata.name" } else { "metadata.namespace" };
            out.at(field, "", facts.read_instead);
        }
    }),
    ..WARN
};

pub(crate) const NOT_TRACKED: Rule = Rule {
    code: "WVA-CM-060",
    scope: Scope::Cluster,
    field: "metadata.namespace",
    message: "no effect yet: no variants here, nor label {other}",
    docs: "The namespace of a local map has no variants and no opt-in label `wva.llmd.ai/config-enabled`, or it is \
           excluded by the annotation `wva.llmd.ai/exclude`: the map is not read yet.",
    check: Check::ConfigMap(|facts, out| {
        if facts.place == Place::Local && facts.role != MapRole::Main && facts.tracked == Some(false) {
            out.text("", wva_crds::names::CONFIG_ENABLED_LABEL);
        }
    }),
    ..WARN
};
