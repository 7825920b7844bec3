//! What a rule is made of.

use crate::autoscalers::AutoscalerFacts;
use crate::facts::Facts;
use crate::findings::Findings;
use crate::maps::facts::MapFacts;

/// What a rule's finding does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The object is refused, unless it was already so before an update that did not touch it.
    Deny,
    /// The person is told.
    Warn,
    /// The object is completed.
    Mutate,
}

/// What a rule's check depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The object, its predecessor and the settings.
    Object,
    /// Other objects of the cluster too. Skipped while the caches are not synced.
    Cluster,
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Stable code: `WVA-VA-` (variants), `WVA-CM-` (config maps) or `WVA-HPA-` (what follows the metric) and three
    /// digits; refusals below 050, warnings below 090, mutations from there.
    pub code: &'static str,
    /// What a finding does.
    pub kind: Kind,
    /// What the check depends on.
    pub scope: Scope,
    /// The field, as kubectl prints it.
    pub field: &'static str,
    /// The paths whose change makes a violation a new one (see [`crate::validate`]).
    pub reads: &'static [&'static [&'static str]],
    /// What is said: what was found (`{found}`), why it is wrong, what would be right.
    pub message: &'static str,
    /// One or two sentences for the rule reference.
    pub docs: &'static str,
    /// Looks at the facts and notes what it finds.
    pub check: Check,
}

/// What most rules that refuse have in common: the object alone says whether it breaks them.
pub(crate) const DENY: Rule = Rule {
    code: "",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "",
    reads: &[],
    message: "",
    docs: "",
    check: Check::Variant(|_, _| {}),
};

/// What most rules that warn have in common.
pub(crate) const WARN: Rule = Rule { kind: Kind::Warn, ..DENY };

/// What a rule looks at, and how.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// A `VariantAutoscaling`.
    Variant(fn(&Facts<'_>, &mut Findings)),
    /// A ConfigMap that is read.
    ConfigMap(fn(&MapFacts<'_>, &mut Findings)),
    /// A `HorizontalPodAutoscaler` or a `ScaledObject`.
    Autoscaler(fn(&AutoscalerFacts<'_>, &mut Findings)),
}
