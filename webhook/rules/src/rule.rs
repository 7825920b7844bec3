//! Definition of a rule.

use crate::autoscalers::AutoscalerFacts;
use crate::facts::Facts;
use crate::findings::Findings;
use crate::maps::facts::MapFacts;

/// Effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Except on an update that leaves the violation unchanged.
    Deny,
    /// Warns the user.
    Warn,
    /// Completes the object.
    Mutate,
}

/// Facts that a rule uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Object, stored version and settings.
    Object,
    /// The facts of `Object`, and other objects. Such a rule is skipped until the caches are synced.
    Cluster,
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// `WVA-VA-` (variants), `WVA-CM-` (ConfigMaps) or `WVA-HPA-` (autoscalers) and three digits: denials below 050,
    /// warnings below 090, mutations from 090.
    pub code: &'static str,
    /// Effect.
    pub kind: Kind,
    /// Facts in use.
    pub scope: Scope,
    /// Field of the finding, in the format of kubectl.
    pub field: &'static str,
    /// Fields whose change makes a violation new ([`crate::validate`]).
    pub reads: &'static [&'static [&'static str]],
    /// The problem with the value (`{found}`), then the solution, separated by `; `.
    pub message: &'static str,
    /// Text of the rule reference.
    pub docs: &'static str,
    /// Check that adds findings.
    pub check: Check,
}

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

pub(crate) const WARN: Rule = Rule { kind: Kind::Warn, ..DENY };

/// Check by the kind of the object.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// A `VariantAutoscaling`.
    Variant(fn(&Facts<'_>, &mut Findings)),
    /// A ConfigMap of the controller.
    ConfigMap(fn(&MapFacts<'_>, &mut Findings)),
    /// A `HorizontalPodAutoscaler` or a `ScaledObject`.
    Autoscaler(fn(&AutoscalerFacts<'_>, &mut Findings)),
}
