//! The table of rules. Webhook, controller, `wva validate`, the tests and the rule reference all read this one; a
//! code is never used for something else.

use crate::autoscalers::{self, AutoscalerFacts};
use crate::facts::Facts;
use crate::findings::Findings;
use crate::maps::facts::MapFacts;
use crate::maps::{entries, immutable, main_map, merged, unread};
use crate::va::{bounds, cost, instance, keys, labels, model, namespace, readers, shape, sharing, target};

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

/// All rules, in the order in which their findings are reported.
pub static RULES: &[Rule] = &[
    shape::SPEC,
    shape::LABELS,
    shape::ANNOTATIONS,
    target::REQUIRED,
    target::NAME,
    target::KIND,
    target::API_VERSION,
    cost::PATTERN,
    model::REQUIRED,
    model::LENGTH,
    model::CONTROL,
    bounds::MIN,
    bounds::MAX,
    bounds::ORDER,
    instance::VALUE,
    instance::REQUIRED,
    instance::CHANGED,
    sharing::SAME_INSTANCE,
    labels::ACCELERATOR_SHORT,
    labels::MODE,
    target::UNKNOWN,
    target::ABSENT,
    sharing::OTHER_INSTANCE,
    sharing::ALLOWED,
    labels::ACCELERATOR_ABSENT,
    namespace::EXCLUDED,
    namespace::UNWATCHED,
    cost::DEFAULT,
    readers::NONE,
    readers::NO_MATCH,
    keys::LABELS,
    keys::ANNOTATIONS,
    keys::SPEC,
    shape::NOT_SYNCED,
    instance::INJECT,
    main_map::DATA,
    main_map::KEY,
    main_map::NESTED,
    main_map::VALUE,
    main_map::CONTRADICTION,
    main_map::ORDER,
    immutable::CHANGED,
    entries::FORM,
    entries::DUPLICATE,
    entries::UNKNOWN,
    entries::VALUE,
    merged::NO_MODEL,
    merged::TWICE,
    merged::CONFLICT,
    merged::OTHER_NAMESPACE,
    entries::TOO_LONG,
    main_map::UNKNOWN,
    main_map::HIDDEN,
    immutable::AT_RESTART,
    main_map::OLD_NAME,
    main_map::OUTSIDE,
    unread::ELSEWHERE,
    unread::NOT_TRACKED,
    entries::LONG,
    entries::DEFAULT_MODEL,
    merged::LEFT_OUT,
    entries::NO_OPTIMIZER,
    autoscalers::ALL_VARIANTS,
    autoscalers::MULTIPLIES,
];

/// Rules whose findings are about a key and not about its value: who points at a text points at the key.
pub const ABOUT_KEYS: &[&str] = &[
    keys::LABELS.code,
    keys::ANNOTATIONS.code,
    keys::SPEC.code,
    entries::UNKNOWN.code,
    main_map::KEY.code,
    main_map::UNKNOWN.code,
    main_map::OLD_NAME.code,
    main_map::OUTSIDE.code,
];
