//! The controller's own admission: the same rules as the webhook's, asked again of what is stored, because a webhook
//! can be off and an object can be older than a rule.

use kube::api::DynamicObject;
use serde_json::Value;
use wva_rules::{Facts, Verdict, validate};

/// The verdict of the rules about an object on its own. Three things that a webhook asks are left out on purpose:
///
/// - what needs other objects: of two with one target the controller serves the older (`TargetConflict`), and the
///   rest are warnings, which nobody would see here;
/// - what an instance wants of unlabelled objects: those are not handed to this controller at all;
/// - what an update may change: what is stored has no predecessor, so an old fault counts like a new one.
#[must_use]
pub fn verdict(object: &DynamicObject) -> Verdict {
    let value = serde_json::to_value(object).unwrap_or(Value::Null);
    let mut facts = Facts::of(&value);
    facts.synced = false;
    validate(&facts)
}

/// What refuses an object, in words; `None` where nothing does.
pub(crate) fn violations(object: &DynamicObject) -> Option<String> {
    let verdict = verdict(object);
    verdict.denied().then(|| verdict.message())
}
