//! Objects as raw JSON.

use serde_json::Value;

/// Value at a path of keys. `null` counts as absent, as for the API server.
#[must_use]
pub fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |v, key| v.as_object()?.get(*key)).filter(|v| !v.is_null())
}
