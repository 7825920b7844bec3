//! Rules about `spec.scaleTargetRef`: whether it names something, and something that can be scaled. That the
//! workload exists is never demanded, because the order in which files are applied must not matter.

use serde_json::Value;

use crate::facts::{Facts, Target};
use crate::rule::{Check, DENY, Rule, Scope, WARN};
use crate::syntax::{SUBDOMAIN_CHARS, is_subdomain};
use crate::text::{quote, shorten};

/// Kinds without a `/scale`, or whose number of replicas is not theirs to change. The CRD's rule names the same.
const NOT_SCALABLE: &[&str] =
    &["Pod", "Job", "CronJob", "DaemonSet", "Service", "ConfigMap", "Secret", "Node", "Namespace"];

/// What the controller watches and scales; all else is admitted, for a later release may.
const KNOWN: &[(&str, &str)] = &[
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
];

/// The most characters of a kind (the CRD's limit, which is that of a DNS label).
const KIND_CHARS: usize = 63;
/// The most characters of an apiVersion (the CRD's limit): a group, a slash, a version.
const API_VERSION_CHARS: usize = 317;

pub(crate) const REQUIRED: Rule = Rule {
    code: "WVA-VA-001",
    field: "spec.scaleTargetRef",
    reads: &[&["spec", "scaleTargetRef"]],
    message: "found {found}: without a workload there is nothing to scale; name one, e.g. {name: llama-8b}, in \
              this namespace",
    docs: "`spec.scaleTargetRef` is required and is a map. It names the workload, in the namespace of the object, whose \
           replicas are decided.",
    check: Check::Variant(|facts, out| match facts.spec("scaleTargetRef") {
        None | Some(Value::Object(_)) => {}
        Some(Value::Null) => out.absent(),
        Some(v) => out.value(v),
    }),
    ..DENY
};

pub(crate) const NAME: Rule = Rule {
    code: "WVA-VA-002",
    field: "spec.scaleTargetRef.name",
    reads: &[&["spec", "scaleTargetRef", "name"]],
    message: "found {found}: no workload can have that name; give one as `kubectl get deployments` prints it: at \
              most 253 lower case letters, digits, '-' and '.', with a letter or digit at both ends of each part",
    docs: "`spec.scaleTargetRef.name` is required and is a DNS-1123 subdomain.",
    check: Check::Variant(|facts, out| match part(facts, "name") {
        None => {}
        Some(Value::Null) => out.absent(),
        Some(Value::String(name)) if is_subdomain(name) => {}
        Some(Value::String(name)) if name.len() > SUBDOMAIN_CHARS => {
            out.text(format!("{} ({} bytes)", quote(&shorten(name, 40)), name.len()), "");
        }
        Some(v) => out.value(v),
    }),
    ..DENY
};

pub(crate) const KIND: Rule = Rule {
    code: "WVA-VA-004",
    field: "spec.scaleTargetRef.kind",
    reads: &[&["spec", "scaleTargetRef", "kind"]],
    message: "found {found}: that cannot be scaled; name a Deployment, a StatefulSet or a LeaderWorkerSet",
    docs: "`spec.scaleTargetRef.kind` is a kind that can be scaled. Pod, Job, CronJob, DaemonSet, Service, \
           ConfigMap, Secret, Node and Namespace cannot.",
    check: Check::Variant(|facts, out| match part(facts, "kind") {
        Some(Value::String(kind))
            if !kind.is_empty()
                && kind.chars().count() <= KIND_CHARS
                && !NOT_SCALABLE.contains(&kind.as_str()) => {}
        None | Some(Value::Null) => {}
        Some(v) => out.value(v),
    }),
    ..DENY
};

pub(crate) const API_VERSION: Rule = Rule {
    code: "WVA-VA-005",
    field: "spec.scaleTargetRef.apiVersion",
    reads: &[&["spec", "scaleTargetRef", "apiVersion"]],
    message: "found {found}: that is no group and version; write e.g. apps/v1 for a Deployment or a StatefulSet",
    docs: "`spec.scaleTargetRef.apiVersion` is a text, not empty, of at most 317 characters.",
    check: Check::Variant(|facts, out| match part(facts, "apiVersion") {
        Some(Value::String(v)) if !v.is_empty() && v.chars().count() <= API_VERSION_CHARS => {}
        None | Some(Value::Null) => {}
        Some(v) => out.value(v),
    }),
    ..DENY
};

pub(crate) const UNKNOWN: Rule = Rule {
    code: "WVA-VA-051",
    field: "spec.scaleTargetRef",
    message: "{found} is no kind of workload that this release scales",
    docs: "The target is none of `apps/v1` Deployment and StatefulSet and `leaderworkerset.x-k8s.io/v1` \
           LeaderWorkerSet. The object is admitted, but this release scales no other kind, whether it has a `/scale` \
           subresource or not: nothing is decided, and `TargetResolved` says why.",
    check: Check::Variant(|facts, out| {
        let Some(target) = Target::of(facts.object) else { return };
        let known = KNOWN.contains(&(target.api_version.as_str(), target.kind.as_str()));
        // What is no kind or no version at all is refused by rules of its own.
        let named = !target.api_version.is_empty() && !target.kind.is_empty();
        if named && !known && !NOT_SCALABLE.contains(&target.kind.as_str()) {
            out.text(quote(&format!("{} {}", target.api_version, target.kind)), "");
        }
    }),
    ..WARN
};

pub(crate) const ABSENT: Rule = Rule {
    code: "WVA-VA-054",
    scope: Scope::Cluster,
    field: "spec.scaleTargetRef.name",
    message: "{found} does not exist (yet): scaling starts when it does",
    docs: "The target does not exist yet. Scaling starts by itself as soon as it does; where nobody is about to create it, \
           the name is probably misspelt.",
    check: Check::Variant(|facts, out| {
        if facts.target_exists == Some(false)
            && let Some(target) = Target::of(facts.object)
        {
            out.text(quote(&target.name), "");
        }
    }),
    ..WARN
};

/// A field of `scaleTargetRef`, `Null` where it is absent.
fn part<'a>(facts: &Facts<'a>, field: &str) -> Option<&'a Value> {
    facts.field(&["spec", "scaleTargetRef"], field)
}
