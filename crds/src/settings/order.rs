//! Settings that must be in order among each other. The start of the program and the admission of its map ask the
//! same here.

use std::fmt;

use super::Value;

/// Settings that belong together and are out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderProblem {
    /// The settings, in the order they should have.
    pub keys: &'static [&'static str],
    /// What would be right.
    pub right: &'static str,
}

impl fmt::Display for OrderProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} are out of order: {}", self.keys.join(", "), self.right)
    }
}

/// Keys, whether each is at least the one before (else each is below the one before), and what would be right.
const ORDERS: &[(&[&str], bool, &str)] = &[
    (
        &["LEADER_ELECTION_LEASE_DURATION", "LEADER_ELECTION_RENEW_DEADLINE", "LEADER_ELECTION_RETRY_PERIOD"],
        false,
        "lease duration, renew deadline and retry period must fall in that order, e.g. 60s > 50s > 10s",
    ),
    (
        &[
            "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD",
            "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD",
            "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD",
        ],
        true,
        "a signal is fresh, then stale, then unavailable, e.g. 1m, 2m, 5m",
    ),
];

/// Which settings are out of order. What has no valid value is not compared.
#[must_use]
pub fn order_problems(value: impl Fn(&'static str) -> Option<Value>) -> Vec<OrderProblem> {
    let broken = |keys: &'static [&'static str], rising: bool| {
        let values: Vec<_> = keys.iter().map(|key| value(key)).collect();
        values.windows(2).any(|pair| match (&pair[0], &pair[1]) {
            (Some(Value::Duration(a)), Some(Value::Duration(b))) => {
                if rising {
                    b < a
                } else {
                    b >= a
                }
            }
            _ => false,
        })
    };
    let wrong = ORDERS.iter().filter(|(keys, rising, _)| broken(keys, *rising));
    wrong.map(|(keys, _, right)| OrderProblem { keys, right }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Setting;

    fn check(set: &[(&str, &str)]) -> usize {
        order_problems(|key| {
            let setting = Setting::by_key(key)?;
            let text = set.iter().find(|(k, _)| *k == key).map(|(_, v)| *v).or(setting.default)?;
            setting.kind.parse(text).ok()
        })
        .len()
    }

    #[test]
    fn defaults_are_in_order_and_what_is_not_is_found() {
        assert_eq!(check(&[]), 0);
        assert_eq!(check(&[("LEADER_ELECTION_LEASE_DURATION", "50s")]), 1, "must fall");
        assert_eq!(check(&[("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "5m")]), 0, "may be equal");
        assert_eq!(check(&[("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "6m")]), 1);
        assert_eq!(check(&[("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "long")]), 0, "said elsewhere");
    }
}
