//! Rules for stored objects: the webhook can be off, and an object can be older than a rule.

use serde_json::Value;
use wva_crds::intent::remove_overruled;

use crate::evaluate::validate;
use crate::facts::Facts;
use crate::verdict::Verdict;

/// Validates one stored object on its own, without four kinds of checks:
///
/// - Against other objects. Of two variants with one target the controller serves the older one (`TargetConflict`); the
///   others are warnings.
/// - Of unlabelled objects for an instance, which never sees them.
/// - Of a label or an annotation that contradicts the spec. The spec wins.
/// - Of updates. A stored object has no previous version, so an old violation counts like a new one.
#[must_use]
pub fn validate_stored(mut object: Value) -> Verdict {
    remove_overruled(&mut object);
    let mut facts = Facts::new(&object);
    facts.is_synced = false;
    validate(&facts)
}
