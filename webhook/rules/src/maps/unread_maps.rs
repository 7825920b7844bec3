//! Maps that the controller does not read.

use crate::maps::WARN;
use crate::maps::names::{MapRole, MapScope};
use crate::rule::{Check, Rule, Scope};

pub(crate) const ELSEWHERE: Rule = Rule {
    code: "WVA-CM-053",
    field: "metadata.namespace",
    message: "not read; wva reads {other}",
    docs: "The map is the main map, a service-class map or a map with an old name, but not in the controller's namespace. \
           Only `wva-saturation-scaling-config` and `wva-model-scale-to-zero-config` can be namespace-local. Or the map is \
           in the controller's namespace, and another global map of the same kind takes precedence. For example, a Helm \
           installation reads only its own saturation map.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.read_instead.is_empty() {
            let field = if facts.scope == MapScope::Global { "metadata.name" } else { "metadata.namespace" };
            out.add_at(field, "", facts.read_instead);
        }
    }),
    ..WARN
};

pub(crate) const NOT_TRACKED: Rule = Rule {
    code: "WVA-CM-060",
    scope: Scope::Cluster,
    field: "metadata.namespace",
    message: "not read yet; the namespace has no variants and no label {other}",
    docs: "The namespace of a local map has no variants and no label `wva.llmd.ai/config-enabled`, or the annotation \
           `wva.llmd.ai/exclude` excludes it. The map is not read yet.",
    check: Check::ConfigMap(|facts, out| {
        if facts.scope == MapScope::Local
            && facts.role != MapRole::Main
            && facts.reads_local_maps == Some(false)
        {
            out.add("", wva_crds::names::CONFIG_ENABLED_LABEL);
        }
    }),
    ..WARN
};
