//! The controller's own admission: the same rules as the webhook's, asked again of what is stored, because a webhook
//! can be off and an object can be older than a rule.

use kube::api::DynamicObject;
use serde_json::Value;
use wva_rules::{Facts, validate};

/// What refuses an object, in words; `None` where nothing does. Rules that need other objects are not asked here: of
/// two with one target the controller serves the older.
pub(crate) fn violations(object: &DynamicObject) -> Option<String> {
    let value = serde_json::to_value(object).unwrap_or(Value::Null);
    let mut facts = Facts::of(&value);
    facts.synced = false;
    let verdict = validate(&facts);
    verdict.denied().then(|| verdict.message())
}
