//! Rules about `spec.minReplicas` and `spec.maxReplicas`: whole numbers, not negative, in order.

use serde_json::Value;

use crate::facts::Facts;
use crate::findings::Findings;
use crate::rule::{Check, DENY, Rule};

pub(crate) const MIN: Rule = Rule {
    code: "WVA-VA-009",
    field: "spec.minReplicas",
    reads: &[&["spec", "minReplicas"]],
    message: "found {found}: a number of replicas is whole and not negative; give 0 to 2147483647 without quotes, \
              or leave it out",
    docs: "`spec.minReplicas` is a whole number, 0 to 2147483647.",
    check: Check::Variant(|facts, out| count(facts, "minReplicas", out)),
    ..DENY
};

pub(crate) const MAX: Rule = Rule {
    code: "WVA-VA-010",
    field: "spec.maxReplicas",
    reads: &[&["spec", "maxReplicas"]],
    message: "found {found}: a number of replicas is whole and not negative; give 0 to 2147483647 without quotes, \
              or leave it out",
    docs: "`spec.maxReplicas` is a whole number, 0 to 2147483647.",
    check: Check::Variant(|facts, out| count(facts, "maxReplicas", out)),
    ..DENY
};

pub(crate) const ORDER: Rule = Rule {
    code: "WVA-VA-011",
    field: "spec.minReplicas",
    reads: &[&["spec", "minReplicas"], &["spec", "maxReplicas"]],
    message: "found {found}, above maxReplicas {other}: no number of replicas satisfies both; lower minReplicas \
              or raise maxReplicas",
    docs: "`spec.minReplicas` is not above `spec.maxReplicas`.",
    check: Check::Variant(|facts, out| {
        let bound = |field| facts.spec(field).and_then(integer);
        if let (Some(min), Some(max)) = (bound("minReplicas"), bound("maxReplicas"))
            && min > max
        {
            out.text(min.to_string(), max.to_string());
        }
    }),
    ..DENY
};

fn count(facts: &Facts<'_>, field: &str, out: &mut Findings) {
    if let Some(value) = facts.spec(field).filter(|v| !v.is_null())
        && !integer(value).is_some_and(|n| (0..=i64::from(i32::MAX)).contains(&n))
    {
        out.value(value);
    }
}

/// A whole number, also one written `3.0`: the apiserver stores that as 3.
fn integer(value: &Value) -> Option<i64> {
    let number = value.as_number()?;
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15)?;
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53 in size, as checked above")]
        Some(float as i64)
    })
}
