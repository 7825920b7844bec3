//! Rules between settings. The start checks all of them, admission only the orders.

use super::Value;

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
            "LEADER_ELECTION_LEASE_DURATION", "LEADER_ELECTION_RENEW_DEADLINE",
            "LEADER_ELECTION_RETRY_PERIOD",
        ],
        is_rising: false,
        advice: "lease duration, renew deadline and retry period must decrease in this order, such as 60s, 50s, 10s",
    },
    Order {
        keys: &[
            "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD",
            "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD",
            "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD",
        ],
        is_rising: true,
        advice: "fresh, stale and unavailable threshold must not decrease in this order, such as 1m, 2m, 5m",
    },
];

type IsInvalid = fn(&Values<'_>) -> bool;

/// A check, and the problem if it is true.
const COMBINATIONS: &[(IsInvalid, SettingsProblem)] = &[
    (
        |v| v.is_off("WVA_WEBHOOK") && v.is_off("WVA_CONTROLLER"),
        SettingsProblem {
            keys: &["WVA_WEBHOOK", "WVA_CONTROLLER"],
            advice: "admission and controller are both off, so nothing would run; set one of them to true",
        },
    ),
    (
        |v| v.is_on("WVA_WEBHOOK") && v.has("WEBHOOK_CONFIGURATION") && !v.has("WEBHOOK_SERVICE"),
        SettingsProblem {
            keys: &["WEBHOOK_CONFIGURATION", "WEBHOOK_SERVICE", "WVA_WEBHOOK"],
            advice: "WEBHOOK_SERVICE is empty; set it to the Service of the webhook configurations, or leave WEBHOOK_CONFIGURATION empty",
        },
    ),
    (
        |v| v.is_on("WVA_WEBHOOK") && v.get("WEBHOOK_BIND_ADDRESS") == Some(Value::Address(None)),
        SettingsProblem {
            keys: &["WEBHOOK_BIND_ADDRESS", "WVA_WEBHOOK"],
            advice: "admission has no address; set one such as \":9443\", or WVA_WEBHOOK=false (--webhook=false) to disable admission",
        },
    ),
    (
        |v| v.is("WVA_CERT_MODE", &["files"]) && !v.has("WEBHOOK_CERT_PATH"),
        SettingsProblem {
            keys: &["WVA_CERT_MODE", "WEBHOOK_CERT_PATH"],
            advice: "mode files needs a folder; set WEBHOOK_CERT_PATH to the folder with tls.crt, tls.key and ca.crt, or use mode self",
        },
    ),
    (
        |v| v.is("WVA_CERT_MODE", &["off"]) && v.is_on("WVA_WEBHOOK"),
        SettingsProblem {
            keys: &["WVA_CERT_MODE", "WVA_WEBHOOK"],
            advice: "admission needs a certificate, because API servers require HTTPS; use mode self or files, or WVA_WEBHOOK=false (--webhook=false) to disable admission",
        },
    ),
    (
        |v| {
            v.is("WVA_CERT_MODE", &["off"])
                && v.is_on("METRICS_SECURE")
                && matches!(v.get("METRICS_BIND_ADDRESS"), Some(Value::Address(Some(_))))
                && !v.has("METRICS_CERT_PATH")
        },
        SettingsProblem {
            keys: &["WVA_CERT_MODE", "METRICS_SECURE", "METRICS_CERT_PATH"],
            advice: "secure metrics need a certificate; set METRICS_CERT_PATH, use mode self or files, or METRICS_SECURE=false for plain HTTP",
        },
    ),
    (
        |v| {
            v.is("WVA_CERT_MODE", &["off"])
                && v.is_on("WVA_CONTROLLER")
                && matches!(v.get("EXTERNAL_METRICS_BIND_ADDRESS"), Some(Value::Address(Some(_))))
        },
        SettingsProblem {
            keys: &["WVA_CERT_MODE", "EXTERNAL_METRICS_BIND_ADDRESS"],
            advice: "the external metrics API needs a certificate; use mode self or files, or EXTERNAL_METRICS_BIND_ADDRESS=0",
        },
    ),
    (
        |v| v.is_on("WVA_CONTROLLER") && !v.has("PROMETHEUS_BASE_URL"),
        SettingsProblem {
            keys: &["PROMETHEUS_BASE_URL"],
            advice: "is required; set the URL of Prometheus, such as https://prometheus.monitoring.svc:9090, or WVA_CONTROLLER=false (--controller=false) to serve only admission",
        },
    ),
    (
        |v| v.has("PROMETHEUS_CLIENT_CERT_PATH") != v.has("PROMETHEUS_CLIENT_KEY_PATH"),
        SettingsProblem {
            keys: &["PROMETHEUS_CLIENT_CERT_PATH", "PROMETHEUS_CLIENT_KEY_PATH"],
            advice: "a client certificate needs its key; set both files or neither",
        },
    ),
    (
        |v| v.has("EPP_METRIC_READER_CLIENT_CERT_PATH") != v.has("EPP_METRIC_READER_CLIENT_KEY_PATH"),
        SettingsProblem {
            keys: &["EPP_METRIC_READER_CLIENT_CERT_PATH", "EPP_METRIC_READER_CLIENT_KEY_PATH"],
            advice: "a client certificate needs its key; set both files or neither",
        },
    ),
];

struct Values<'a>(&'a dyn Fn(&'static str) -> Option<Value>);

impl Values<'_> {
    fn get(&self, key: &'static str) -> Option<Value> {
        (self.0)(key)
    }

    fn is_on(&self, key: &'static str) -> bool {
        self.get(key) == Some(Value::Bool(true))
    }

    fn is_off(&self, key: &'static str) -> bool {
        self.get(key) == Some(Value::Bool(false))
    }

    fn has(&self, key: &'static str) -> bool {
        matches!(self.get(key), Some(Value::Text(text)) if !text.is_empty())
    }

    fn is(&self, key: &'static str, words: &[&str]) -> bool {
        matches!(self.get(key), Some(Value::Text(text)) if words.contains(&text.as_str()))
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
