//! What holds between settings, and what this release cannot do yet. The start of the program asks for all of it, the
//! admission of its map for the orders.

use super::Value;

/// Settings that do not go together, or one that cannot be as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The settings; of those that have an order, in the order they should have.
    pub keys: &'static [&'static str],
    /// What is wrong and what would be right.
    pub right: &'static str,
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

/// Whether something is wrong with the values together.
type Broken = fn(&Values<'_>) -> bool;

/// Each a question to the values, and the problem where it is answered with yes.
const OTHERS: &[(Broken, Problem)] = &[
    (
        |v| v.is_off("WVA_WEBHOOK") && v.is_off("WVA_CONTROLLER"),
        Problem {
            keys: &["WVA_WEBHOOK", "WVA_CONTROLLER"],
            right: "with both switched off nothing is left to run: leave one of them on",
        },
    ),
    (
        |v| v.is_on("WVA_WEBHOOK") && v.has("WEBHOOK_CONFIGURATION") && !v.has("WEBHOOK_SERVICE"),
        Problem {
            keys: &["WEBHOOK_CONFIGURATION", "WEBHOOK_SERVICE", "WVA_WEBHOOK"],
            right: "WEBHOOK_SERVICE is empty: name the Service that the webhook configurations call, or leave WEBHOOK_CONFIGURATION empty",
        },
    ),
    (
        |v| v.is_on("WVA_WEBHOOK") && v.get("WEBHOOK_BIND_ADDRESS") == Some(Value::Address(None)),
        Problem {
            keys: &["WEBHOOK_BIND_ADDRESS", "WVA_WEBHOOK"],
            right: "admission without an address would be served nowhere: write one such as \":9443\", or WVA_WEBHOOK=false (--webhook=false) to do without admission",
        },
    ),
    (
        |v| v.is("WVA_CERT_MODE", &["files"]) && !v.has("WEBHOOK_CERT_PATH"),
        Problem {
            keys: &["WVA_CERT_MODE", "WEBHOOK_CERT_PATH"],
            right: "certificates are to be read from files and no folder is named: set WEBHOOK_CERT_PATH to where tls.crt, tls.key and ca.crt are mounted, or write self",
        },
    ),
    (
        |v| v.is("WVA_CERT_MODE", &["off"]) && v.is_on("WVA_WEBHOOK"),
        Problem {
            keys: &["WVA_CERT_MODE", "WVA_WEBHOOK"],
            right: "an API server sends reviews over HTTPS alone, and off leaves no certificate: write self or files, or WVA_WEBHOOK=false (--webhook=false) to do without admission",
        },
    ),
    (
        |v| {
            v.is("WVA_CERT_MODE", &["off"])
                && v.is_on("METRICS_SECURE")
                && matches!(v.get("METRICS_BIND_ADDRESS"), Some(Value::Address(Some(_))))
                && !v.has("METRICS_CERT_PATH")
        },
        Problem {
            keys: &["WVA_CERT_MODE", "METRICS_SECURE", "METRICS_CERT_PATH"],
            right: "secure metrics need a certificate, and off leaves none: set METRICS_CERT_PATH, or METRICS_SECURE=false for plain HTTP, or write self or files",
        },
    ),
    (
        |v| {
            v.is("WVA_CERT_MODE", &["off"])
                && v.is_on("WVA_CONTROLLER")
                && matches!(v.get("EXTERNAL_METRICS_BIND_ADDRESS"), Some(Value::Address(Some(_))))
        },
        Problem {
            keys: &["WVA_CERT_MODE", "EXTERNAL_METRICS_BIND_ADDRESS"],
            right: "the external metrics API is served over HTTPS alone, and off leaves no certificate: write self or files, or EXTERNAL_METRICS_BIND_ADDRESS=0",
        },
    ),
    (
        |v| v.is_on("WVA_CONTROLLER") && !v.has("PROMETHEUS_BASE_URL"),
        Problem {
            keys: &["PROMETHEUS_BASE_URL"],
            right: "is required: the URL of Prometheus, e.g. https://prometheus.monitoring.svc:9090 (or WVA_CONTROLLER=false, --controller=false, to serve admission alone)",
        },
    ),
    (
        |v| v.has("PROMETHEUS_CLIENT_CERT_PATH") != v.has("PROMETHEUS_CLIENT_KEY_PATH"),
        Problem {
            keys: &["PROMETHEUS_CLIENT_CERT_PATH", "PROMETHEUS_CLIENT_KEY_PATH"],
            right: "a client certificate needs its key: name both files, or none of the two",
        },
    ),
];

/// The values that hold, by key.
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

/// Settings that are out of order among each other. What has no valid value is not compared. Start and admission ask
/// this: the settings of an order all have defaults, so that a file can be judged without knowing the process.
#[must_use]
pub fn order_problems(value: impl Fn(&'static str) -> Option<Value>) -> Vec<Problem> {
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
    let orders = ORDERS.iter().filter(|(keys, rising, _)| broken(keys, *rising));
    orders.map(|(keys, _, right)| Problem { keys, right }).collect()
}

/// All that is wrong between settings, orders included. The start alone asks this: the rest depends on what the
/// environment gives, and on what this release cannot do yet.
#[must_use]
pub fn problems(value: impl Fn(&'static str) -> Option<Value>) -> Vec<Problem> {
    let mut found = order_problems(&value);
    let values = Values(&value);
    found.extend(OTHERS.iter().filter(|(is, _)| is(&values)).map(|(_, problem)| *problem));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Setting;

    const URL: (&str, &str) = ("PROMETHEUS_BASE_URL", "http://p");

    /// The first keys of the problems.
    fn check(set: &[(&str, &str)]) -> Vec<&'static str> {
        let found = problems(|key| {
            let setting = Setting::by_key(key)?;
            let text = set.iter().find(|(k, _)| *k == key).map(|(_, v)| *v).or(setting.default)?;
            setting.kind.parse(text).ok()
        });
        found.iter().map(|problem| problem.keys[0]).collect()
    }

    #[test]
    fn defaults_are_in_order_and_what_is_not_is_found() {
        let lease = "LEADER_ELECTION_LEASE_DURATION";
        let stale = "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD";
        let fresh = "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD";
        assert!(check(&[URL]).is_empty());
        assert_eq!(check(&[URL, (lease, "50s")]), [lease], "must fall");
        assert!(check(&[URL, (stale, "5m")]).is_empty(), "may be equal");
        assert_eq!(check(&[URL, (stale, "6m")]), [fresh]);
        assert!(check(&[URL, (stale, "long")]).is_empty(), "said elsewhere");
    }

    #[test]
    fn what_the_start_refuses_is_a_problem() {
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
