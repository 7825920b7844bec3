//! Rules about `spec.minReplicas` and `spec.maxReplicas`.

use serde_json::Value;

use crate::facts::Facts;
use crate::findings::Findings;
use crate::rule::{Check, DENY, Rule};

pub(crate) const MIN: Rule = Rule {
    code: "WVA-VA-009",
    field: "spec.minReplicas",
    reads: &[&["spec", "minReplicas"]],
    message: "{found} is not a whole number from 0 to 2147483647; use such a number without quotes, or remove the field",
    docs: "`spec.minReplicas` must be a whole number from 0 to 2147483647.",
    check: Check::Variant(|facts, out| check_count(facts, "minReplicas", out)),
    ..DENY
};

pub(crate) const MAX: Rule = Rule {
    code: "WVA-VA-010",
    field: "spec.maxReplicas",
    reads: &[&["spec", "maxReplicas"]],
    message: "{found} is not a whole number from 0 to 2147483647; use such a number without quotes, or remove the field",
    docs: "`spec.maxReplicas` must be a whole number from 0 to 2147483647.",
    check: Check::Variant(|facts, out| check_count(facts, "maxReplicas", out)),
    ..DENY
};

pub(crate) const ORDER: Rule = Rule {
    code: "WVA-VA-011",
    field: "spec.minReplicas",
    reads: &[&["spec", "minReplicas"], &["spec", "maxReplicas"]],
    message: "{found} is above maxReplicas {other}; lower minReplicas or raise maxReplicas",
    docs: "`spec.minReplicas` must not be above `spec.maxReplicas`.",
    check: Check::Variant(|facts, out| {
        let bound = |field| facts.spec(field).and_then(integer);
        if let (Some(min), Some(max)) = (bound("minReplicas"), bound("maxReplicas"))
            && min > max
        {
            out.add(min.to_string(), max.to_string());
        }
    }),
    ..DENY
};

pub(super) fn check_count(facts: &Facts<'_>, field: &str, out: &mut Findings) {
    if let Some(value) = facts.spec(field).filter(|v| !v.is_null())
        && !integer(value).is_some_and(|n| (0..=i64::from(i32::MAX)).contains(&n))
    {
        out.add_value(value);
    }
}

/// The API server stores `3.0` as 3.
fn integer(value: &Value) -> Option<i64> {
    let number = value.as_number()?;
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15)?;
        #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53, as checked above")]
        Some(float as i64)
    })
}
