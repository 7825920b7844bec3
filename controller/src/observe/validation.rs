//! Applies the webhook's rules to stored objects: the webhook can be off, and an object can be older than a rule.

use kube::api::DynamicObject;
use serde_json::Value;
use wva_crds::intent::remove_overruled;
use wva_rules::{Facts, Verdict, validate};

/// Validates one stored object on its own, without four kinds of checks:
///
/// - Against other objects. Of two variants with one target the controller serves the older one (`TargetConflict`); the
///   others are warnings.
/// - Of unlabelled objects for an instance, which never sees them.
/// - Of a label or an annotation that contradicts the spec. The spec wins.
/// - Of updates. A stored object has no previous version, so an old violation counts like a new one.
#[must_use]
pub fn validate_stored(object: &DynamicObject) -> Verdict {
    let mut value = serde_json::to_value(object).unwrap_or(Value::Null);
    remove_overruled(&mut value);
    let mut facts = Facts::new(&value);
    facts.is_synced = false;
    validate(&facts)
}

/// `None` for a valid object.
pub(crate) fn violations(object: &DynamicObject) -> Option<String> {
    let verdict = validate_stored(object);
    verdict.is_denied().then(|| verdict.message())
}
