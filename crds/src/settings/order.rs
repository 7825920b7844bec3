//! Rules between settings. The start checks all of them, admission only the orders.

use super::{Key, SettingType, Value, keys};

/// Invalid combination of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsProblem {
    /// Keys, in their required order, if any.
    pub keys: &'static [&'static str],
    /// Problem and solution.
    pub advice: &'static str,
}

/// Required order of durations.
struct Order {
    keys: &'static [&'static str],
    /// Each value is at least the previous one; else each is below it.
    is_rising: bool,
    advice: &'static str,
}

const ORDERS: &[Order] = &[
    Order {
        keys: &[
            keys::LEADER_ELECTION_LEASE_DURATION.name(),
            keys::LEADER_ELECTION_RENEW_DEADLINE.name(),
            keys::LEADER_ELECTION_RETRY_PERIOD.name(),
        ],
        is_rising: false,
        advice: "lease duration, renew deadline and retry period must decrease in this order, such as 60s, 50s, 10s",
    },
    Order {
        keys: &[
            keys::PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD.name(),
            keys::PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD.name(),
            keys::PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD.name(),
        ],
        is_rising: true,
        advice: "fresh, stale and unavailable threshold must not decrease in this order, such as 1m, 2m, 5m",
    },
];

type IsInvalid = fn(&Values<'_>) -> bool;

/// A check, and the problem if it is true.
const COMBINATIONS: &[(IsInvalid, SettingsProblem)] = &[
    (
        |v| v.is_off(keys::WVA_WEBHOOK) && v.is_off(keys::WVA_CONTROLLER),
        SettingsProblem {
            keys: &[keys::WVA_WEBHOOK.name(), keys::WVA_CONTROLLER.name()],
            advice: "admission and controller are both off, so nothing would run; set one of them to true",
        },
    ),
    (
        |v| v.is_on(keys::WVA_WEBHOOK) && v.has(keys::WEBHOOK_CONFIGURATION) && !v.has(keys::WEBHOOK_SERVICE),
        SettingsProblem {
            keys: &[
                keys::WEBHOOK_CONFIGURATION.name(),
                keys::WEBHOOK_SERVICE.name(),
                keys::WVA_WEBHOOK.name(),
            ],
            advice: "WEBHOOK_SERVICE is empty; set it to the Service of the webhook configurations, or leave WEBHOOK_CONFIGURATION empty",
        },
    ),
    (
        |v| v.is_on(keys::WVA_WEBHOOK) && v.get(keys::WEBHOOK_BIND_ADDRESS) == Some(None),
        SettingsProblem {
            keys: &[keys::WEBHOOK_BIND_ADDRESS.name(), keys::WVA_WEBHOOK.name()],
            advice: "admission has no address; set one such as \":9443\", or WVA_WEBHOOK=false (--webhook=false) to disable admission",
        },
    ),
    (
        |v| v.is(keys::WVA_CERT_MODE, &["files"]) && !v.has(keys::WEBHOOK_CERT_PATH),
        SettingsProblem {
            keys: &[keys::WVA_CERT_MODE.name(), keys::WEBHOOK_CERT_PATH.name()],
            advice: "mode files needs a folder; set WEBHOOK_CERT_PATH to the folder with tls.crt, tls.key and ca.crt, or use mode self",
        },
    ),
    (
        |v| v.is(keys::WVA_CERT_MODE, &["off"]) && v.is_on(keys::WVA_WEBHOOK),
        SettingsProblem {
            keys: &[keys::WVA_CERT_MODE.name(), keys::WVA_WEBHOOK.name()],
            advice: "admission needs a certificate, because API servers require HTTPS; use mode self or files, or WVA_WEBHOOK=false (--webhook=false) to disable admission",
        },
    ),
    (
        |v| {
            v.is(keys::WVA_CERT_MODE, &["off"])
                && v.is_on(keys::METRICS_SECURE)
                && matches!(v.get(keys::METRICS_BIND_ADDRESS), Some(Some(_)))
                && !v.has(keys::METRICS_CERT_PATH)
        },
        SettingsProblem {
            keys: &[keys::WVA_CERT_MODE.name(), keys::METRICS_SECURE.name(), keys::METRICS_CERT_PATH.name()],
            advice: "secure metrics need a certificate; set METRICS_CERT_PATH, use mode self or files, or METRICS_SECURE=false for plain HTTP",
        },
    ),
    (
        |v| {
            v.is(keys::WVA_CERT_MODE, &["off"])
                && v.is_on(keys::WVA_CONTROLLER)
                && matches!(v.get(keys::EXTERNAL_METRICS_BIND_ADDRESS), Some(Some(_)))
        },
        SettingsProblem {
            keys: &[keys::WVA_CERT_MODE.name(), keys::EXTERNAL_METRICS_BIND_ADDRESS.name()],
            advice: "the external metrics API needs a certificate; use mode self or files, or EXTERNAL_METRICS_BIND_ADDRESS=0",
        },
    ),
    (
        |v| v.is_on(keys::WVA_CONTROLLER) && !v.has(keys::PROMETHEUS_BASE_URL),
        SettingsProblem {
            keys: &[keys::PROMETHEUS_BASE_URL.name()],
            advice: "is required; set the URL of Prometheus, such as https://prometheus.monitoring.svc:9090, or WVA_CONTROLLER=false (--controller=false) to serve only admission",
        },
    ),
    (
        |v| v.has(keys::PROMETHEUS_CLIENT_CERT_PATH) != v.has(keys::PROMETHEUS_CLIENT_KEY_PATH),
        SettingsProblem {
            keys: &[keys::PROMETHEUS_CLIENT_CERT_PATH.name(), keys::PROMETHEUS_CLIENT_KEY_PATH.name()],
            advice: "a client certificate needs its key; set both files or neither",
        },
    ),
    (
        |v| v.has(keys::EPP_METRIC_READER_CLIENT_CERT_PATH) != v.has(keys::EPP_METRIC_READER_CLIENT_KEY_PATH),
        SettingsProblem {
            keys: &[
                keys::EPP_METRIC_READER_CLIENT_CERT_PATH.name(),
                keys::EPP_METRIC_READER_CLIENT_KEY_PATH.name(),
            ],
            advice: "a client certificate needs its key; set both files or neither",
        },
    ),
];

struct Values<'a>(&'a dyn Fn(&'static str) -> Option<Value>);

impl Values<'_> {
    fn get<T: SettingType>(&self, key: Key<T>) -> Option<T> {
        (self.0)(key.name()).as_ref().and_then(T::of)
    }

    fn is_on(&self, key: Key<bool>) -> bool {
        self.get(key) == Some(true)
    }

    fn is_off(&self, key: Key<bool>) -> bool {
        self.get(key) == Some(false)
    }

    fn has(&self, key: Key<String>) -> bool {
        self.get(key).is_some_and(|text| !text.is_empty())
    }

    fn is(&self, key: Key<String>, words: &[&str]) -> bool {
        self.get(key).is_some_and(|text| words.contains(&text.as_str()))
    }
}

/// Ignores invalid values. Also works on a single file, because all these settings have defaults.
#[must_use]
pub fn find_order_problems(value: impl Fn(&'static str) -> Option<Value>) -> Vec<SettingsProblem> {
    let is_violated = |order: &&Order| {
        let values: Vec<_> = order.keys.iter().map(|key| value(key)).collect();
        values.windows(2).any(|pair| match (&pair[0], &pair[1]) {
            (Some(Value::Duration(a)), Some(Value::Duration(b))) => {
                if order.is_rising {
                    b < a
                } else {
                    b >= a
                }
            }
            _ => false,
        })
    };
    let violated = ORDERS.iter().filter(is_violated);
    violated.map(|order| SettingsProblem { keys: order.keys, advice: order.advice }).collect()
}

/// All invalid combinations, including orders. They also depend on the environment, so only the start checks them.
#[must_use]
pub fn find_problems(value: impl Fn(&'static str) -> Option<Value>) -> Vec<SettingsProblem> {
    let mut problems = find_order_problems(&value);
    let values = Values(&value);
    problems.extend(
        COMBINATIONS.iter().filter(|(is_invalid, _)| is_invalid(&values)).map(|(_, problem)| *problem),
    );
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Setting;

    const URL: (&str, &str) = ("PROMETHEUS_BASE_URL", "http://p");

    /// The first keys of the problems.
    fn check(set: &[(&str, &str)]) -> Vec<&'static str> {
        let found = find_problems(|key| {
            let setting = Setting::by_key(key)?;
            let text = set.iter().find(|(k, _)| *k == key).map(|(_, v)| *v).or(setting.default)?;
            setting.kind.parse(text).ok()
        });
        found.iter().map(|problem| problem.keys[0]).collect()
    }

    #[test]
    fn finds_settings_out_of_order() {
        let lease = "LEADER_ELECTION_LEASE_DURATION";
        let stale = "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD";
        let fresh = "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD";
        assert!(check(&[URL]).is_empty());
        assert_eq!(check(&[URL, (lease, "50s")]), [lease], "must decrease");
        assert!(check(&[URL, (stale, "5m")]).is_empty(), "may be equal");
        assert_eq!(check(&[URL, (stale, "6m")]), [fresh]);
        assert!(check(&[URL, (stale, "long")]).is_empty(), "an invalid value is reported elsewhere");
    }

    #[test]
    fn finds_invalid_combinations() {
        let (webhook, controller) = (("WVA_WEBHOOK", "false"), ("WVA_CONTROLLER", "false"));
        let (address, mode) = (("WEBHOOK_BIND_ADDRESS", "0"), ("WVA_CERT_MODE", "files"));
        let (off, metrics) = (("WVA_CERT_MODE", "off"), ("METRICS_BIND_ADDRESS", ":8443"));
        let (configuration, service) = (("WEBHOOK_CONFIGURATION", "c"), ("WEBHOOK_SERVICE", "s"));
        let (cert, key) = (("PROMETHEUS_CLIENT_CERT_PATH", "c"), ("PROMETHEUS_CLIENT_KEY_PATH", "k"));
        for (set, want) in [
            (&[][..], &["PROMETHEUS_BASE_URL"][..]),
            (&[controller], &[]),
            (&[webhook, URL], &[]),
            (&[webhook, controller], &["WVA_WEBHOOK"]),
            (&[URL, ("LEADER_ELECT", "1")], &[]),
            (&[URL, configuration], &["WEBHOOK_CONFIGURATION"]),
            (&[URL, configuration, service], &[]),
            (&[URL, configuration, webhook], &[]),
            (&[URL, cert], &["PROMETHEUS_CLIENT_CERT_PATH"]),
            (&[URL, key], &["PROMETHEUS_CLIENT_CERT_PATH"]),
            (&[URL, cert, key], &[]),
            (&[URL, ("EPP_METRIC_READER_CLIENT_KEY_PATH", "k")], &["EPP_METRIC_READER_CLIENT_CERT_PATH"]),
            (&[URL, address], &["WEBHOOK_BIND_ADDRESS"]),
            (&[URL, address, webhook], &[]),
            (&[URL, mode], &["WVA_CERT_MODE"]),
            (&[URL, mode, ("WEBHOOK_CERT_PATH", "/certs")], &[]),
            (&[URL, ("WVA_CERT_MODE", "self")], &[]),
            (&[URL, off], &["WVA_CERT_MODE"]),
            (&[URL, off, webhook], &[]),
            (&[URL, off, webhook, metrics], &["WVA_CERT_MODE"]),
            (&[URL, off, webhook, metrics, ("METRICS_SECURE", "false")], &[]),
            (&[URL, off, webhook, metrics, ("METRICS_CERT_PATH", "/certs")], &[]),
            (&[URL, off, webhook, ("EXTERNAL_METRICS_BIND_ADDRESS", ":6443")], &["WVA_CERT_MODE"]),
        ] {
            assert_eq!(check(set), want, "{set:?}");
        }
    }
}
