//! The admission rules as a table of data: what is mutated, what is refused and what is warned about, with the text
//! a person sees. Pure: webhook, controller and `wva validate` hand in what they know ([`Facts`]) and get the same
//! verdict; nothing here reads a clock, a file, the environment or a cluster.
#![warn(clippy::disallowed_methods)]

mod autoscalers;
mod defaults;
mod facts;
mod findings;
mod judge;
mod maps;
mod policy;
mod readers;
mod rule;
mod syntax;
mod table;
mod text;
mod va;
mod verdict;

pub use autoscalers::AutoscalerFacts;
pub use defaults::apply_defaults;
pub use facts::{
    Facts, InstancePolicy, NamespaceState, Operation, OtherVariant, Reach, Target, api_group, precedence,
};
pub use findings::{Findings, PatchOp};
pub use judge::{mutate, validate, validate_autoscaler, validate_map};
pub use maps::facts::{MapFacts, Running, RunningSource, RunningValue};
pub use maps::immutable::IMMUTABLE;
pub use maps::names::{MapNames, MapRole, Place};
pub use policy::{PolicyInstance, VARIANT_POLICY_CODES, main_map_policy, variant_policy};
pub use readers::{MetricReader, SeriesSelector};
pub use rule::{Check, Kind, Rule, Scope};
pub use table::{ABOUT_KEYS, RULES};
pub use va::cost::sets_cost;
pub use verdict::{MAX_WARNING_BYTES, MAX_WARNING_CHARS, Severity, Verdict, Violation};
