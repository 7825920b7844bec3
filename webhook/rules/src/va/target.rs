//! Rules about `spec.scaleTargetRef`. The workload need not exist yet: manifests can be applied in any order.

use serde_json::Value;

use crate::facts::Facts;
use crate::rule::{Check, DENY, Rule, Scope, WARN};
use crate::syntax::{MAX_SUBDOMAIN_CHARS, is_subdomain};
use crate::text::{quote, shorten};
use wva_objects::Target;

/// Same kinds as in the CRD.
const NOT_SCALABLE: &[&str] =
    &["Pod", "Job", "CronJob", "DaemonSet", "Service", "ConfigMap", "Secret", "Node", "Namespace"];

/// Other kinds are admitted with a warning.
const SUPPORTED: &[(&str, &str)] = &[
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
];

/// Kinds of the group `apps` that are not [`NOT_SCALABLE`]. Same kinds as in the CRD.
const APPS: &[&str] = &["Deployment", "StatefulSet", "ReplicaSet"];

/// Same limit as in the CRD.
const MAX_KIND_CHARS: usize = 63;
/// Same limit as in the CRD.
const MAX_API_VERSION_CHARS: usize = 317;

pub(crate) const REQUIRED: Rule = Rule {
    code: "WVA-VA-001",
    field: "spec.scaleTargetRef",
    reads: &[&["spec", "scaleTargetRef"]],
    message: "{found} is not a map; set name to the workload to scale, in the same namespace",
    docs: "`spec.scaleTargetRef` is required and must be a map. It names the workload to scale, in the namespace of the \
           object.",
    check: Check::Variant(|facts, out| match facts.spec("scaleTargetRef") {
        None | Some(Value::Object(_)) => {}
        Some(Value::Null) => out.add_missing(),
        Some(v) => out.add_value(v),
    }),
    ..DENY
};

pub(crate) const NAME: Rule = Rule {
    code: "WVA-VA-002",
    field: "spec.scaleTargetRef.name",
    reads: &[&["spec", "scaleTargetRef", "name"]],
    message: "{found} is not a workload name; use the name that `kubectl get deployments` prints, at most 253 lower-case \
              letters, digits, '-' and '.'",
    docs: "`spec.scaleTargetRef.name` is required and must be a DNS-1123 subdomain.",
    check: Check::Variant(|facts, out| match target_field(facts, "name") {
        None => {}
        Some(Value::Null) => out.add_missing(),
        Some(Value::String(name)) if is_subdomain(name) => {}
        Some(Value::String(name)) if name.len() > MAX_SUBDOMAIN_CHARS => {
            out.add(format!("{} ({} bytes)", quote(&shorten(name, 40)), name.len()), "");
        }
        Some(v) => out.add_value(v),
    }),
    ..DENY
};

pub(crate) const KIND: Rule = Rule {
    code: "WVA-VA-004",
    field: "spec.scaleTargetRef.kind",
    reads: &[&["spec", "scaleTargetRef", "kind"]],
    message: "{found} cannot be scaled; use Deployment, StatefulSet or LeaderWorkerSet",
    docs: "`spec.scaleTargetRef.kind` must be a kind that can be scaled. Pod, Job, CronJob, DaemonSet, Service, ConfigMap, \
           Secret, Node and Namespace cannot be scaled.",
    check: Check::Variant(|facts, out| match target_field(facts, "kind") {
        Some(Value::String(kind))
            if !kind.is_empty()
                && kind.chars().count() <= MAX_KIND_CHARS
                && !NOT_SCALABLE.contains(&kind.as_str()) => {}
        None | Some(Value::Null) => {}
        Some(v) => out.add_value(v),
    }),
    ..DENY
};

pub(crate) const API_VERSION: Rule = Rule {
    code: "WVA-VA-005",
    field: "spec.scaleTargetRef.apiVersion",
    reads: &[&["spec", "scaleTargetRef", "apiVersion"]],
    message: "{found} is not an API group and version; use apps/v1 for a Deployment or StatefulSet",
    docs: "`spec.scaleTargetRef.apiVersion` must be text with 1 to 317 characters.",
    check: Check::Variant(|facts, out| match target_field(facts, "apiVersion") {
        Some(Value::String(v)) if !v.is_empty() && v.chars().count() <= MAX_API_VERSION_CHARS => {}
        None | Some(Value::Null) => {}
        Some(v) => out.add_value(v),
    }),
    ..DENY
};

pub(crate) const GROUP: Rule = Rule {
    code: "WVA-VA-022",
    field: "spec.scaleTargetRef.apiVersion",
    reads: &[&["spec", "scaleTargetRef", "apiVersion"], &["spec", "scaleTargetRef", "kind"]],
    message: "{found} has no kind {other}; set the apiVersion of the kind, such as leaderworkerset.x-k8s.io/v1 for a \
              LeaderWorkerSet",
    docs: "The group `apps`, which is the default, does not have this `spec.scaleTargetRef.kind`. A kind of another group \
           needs its `apiVersion`: without it the workload would never be found.",
    check: Check::Variant(|facts, out| {
        if let Some(target) = Target::from_object(facts.object).filter(has_kind_of_another_group) {
            out.add(quote(&target.api_version), quote(&target.kind));
        }
    }),
    ..DENY
};

/// Other rules deny an empty or a long kind.
fn has_kind_of_another_group(target: &Target) -> bool {
    let kind = target.kind.as_str();
    let is_kind = (1..=MAX_KIND_CHARS).contains(&kind.chars().count());
    target.api_version.starts_with("apps/")
        && is_kind
        && !APPS.contains(&kind)
        && !NOT_SCALABLE.contains(&kind)
}

pub(crate) const UNKNOWN: Rule = Rule {
    code: "WVA-VA-051",
    field: "spec.scaleTargetRef",
    message: "this release does not scale {found}",
    docs: "The target is not an `apps/v1` Deployment or StatefulSet, nor a `leaderworkerset.x-k8s.io/v1` LeaderWorkerSet. \
           The object is admitted, but this release scales no other kind, even with a `/scale` subresource. The condition \
           `TargetResolved` shows the reason.",
    check: Check::Variant(|facts, out| {
        let Some(target) = Target::from_object(facts.object) else { return };
        let is_supported = SUPPORTED.contains(&(target.api_version.as_str(), target.kind.as_str()));
        // Other rules deny an empty kind or version.
        let is_complete = !target.api_version.is_empty() && !target.kind.is_empty();
        let is_denied = NOT_SCALABLE.contains(&target.kind.as_str()) || has_kind_of_another_group(&target);
        if is_complete && !is_supported && !is_denied {
            out.add(quote(&format!("{} {}", target.api_version, target.kind)), "");
        }
    }),
    ..WARN
};

pub(crate) const ABSENT: Rule = Rule {
    code: "WVA-VA-054",
    scope: Scope::Cluster,
    field: "spec.scaleTargetRef.name",
    message: "{found} does not exist yet; scaling starts when it does",
    docs: "The target does not exist yet. Scaling starts automatically when it is created. If it should exist already, \
           check the name.",
    check: Check::Variant(|facts, out| {
        if facts.target_exists == Some(false)
            && let Some(target) = Target::from_object(facts.object)
        {
            out.add(quote(&target.name), "");
        }
    }),
    ..WARN
};

fn target_field<'a>(facts: &Facts<'a>, field: &str) -> Option<&'a Value> {
    facts.field(&["spec", "scaleTargetRef"], field)
}
