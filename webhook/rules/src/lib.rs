//! Admission rules as a table. Webhook, controller and `wva validate` pass [`Facts`] and get the same verdict. Pure.
#![warn(clippy::disallowed_methods)]

mod annotated;
mod autoscalers;
mod defaults;
mod evaluate;
mod facts;
mod findings;
mod kubernetes;
mod look_alike;
mod maps;
mod owner;
mod placeholder;
mod rule;
mod stored;
mod strings;
mod syntax;
mod table;
mod text;
mod va;
mod verdict;

pub use annotated::{AnnotatedAutoscaler, AnnotationVerdict, ExistingVariant, replaced_message};
pub use autoscalers::AutoscalerFacts;
pub use defaults::apply_defaults;
pub use evaluate::{mutate, validate, validate_autoscaler, validate_map};
pub use facts::{Facts, InstancePolicy, InstanceScope, NamespaceState, Operation, OtherVariant, precedence};
pub use findings::{Findings, PatchOp};
pub use kubernetes::{KubernetesVersion, OLDEST_KUBERNETES, VersionError};
pub use maps::facts::{MapFacts, Running, RunningSource, RunningValue};
pub use maps::immutable::IMMUTABLE;
pub use maps::names::{MapNames, MapRole, MapScope};
pub use owner::Owner;
pub use rule::{Check, Kind, Rule, Scope};
pub use stored::validate_stored;
pub use table::{RULES, RULES_ABOUT_KEYS};
pub use va::cost::model_with_own_cost;
pub use va::keys::SPEC_FIELDS;
pub use verdict::{MAX_WARNING_BYTES, MAX_WARNING_CHARS, Severity, Verdict, Violation};
