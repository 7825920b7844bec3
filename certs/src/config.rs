//! What certificates are kept for, and what such a wish must look like.

use std::time::Duration;

use rustls::pki_types::{DnsName, IpAddr};

/// Shortest lifetime of a certificate: below it, renewals chase each other.
const SHORTEST_LIFETIME: Duration = Duration::from_mins(1);

/// What to keep certificates for.
#[derive(Clone, Debug)]
pub struct CertsConfig {
    /// Namespace of the Secret: the controller's own.
    pub namespace: String,
    /// Name of the Secret.
    pub secret_name: String,
    /// DNS names (and IP addresses) of the serving certificate; [`CertsConfig::service_names`] gives a Service's.
    pub dns_names: Vec<String>,
    /// Life of a CA made here; at least a minute.
    pub ca_lifetime: Duration,
    /// Life of a serving certificate; at least a minute. Never longer than what its CA has left.
    pub cert_lifetime: Duration,
}

/// What is wrong with a [`CertsConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No name to serve.
    #[error("no DNS names for the serving certificate: name at least <service>.<namespace>.svc")]
    NoNames,
    /// A name that no certificate can carry.
    #[error("{name:?} is neither a DNS name nor an IP address")]
    BadName {
        /// The name.
        name: String,
    },
    /// A lifetime below a minute.
    #[error("{what} of {found:?} is too short: the least is {SHORTEST_LIFETIME:?}")]
    TooShort {
        /// Which lifetime.
        what: &'static str,
        /// What was set.
        found: Duration,
    },
}

impl CertsConfig {
    /// The names under which a cluster reaches Service `service` of `namespace`.
    #[must_use]
    pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
        let name = format!("{service}.{namespace}");
        vec![format!("{name}.svc"), format!("{name}.svc.cluster.local"), name]
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.dns_names.is_empty() {
            return Err(ConfigError::NoNames);
        }
        for name in &self.dns_names {
            if DnsName::try_from(name.as_str()).is_err() && IpAddr::try_from(name.as_str()).is_err() {
                return Err(ConfigError::BadName { name: name.clone() });
            }
        }
        for (what, found) in [("CA lifetime", self.ca_lifetime), ("certificate lifetime", self.cert_lifetime)]
        {
            if found < SHORTEST_LIFETIME {
                return Err(ConfigError::TooShort { what, found });
            }
        }
        Ok(())
    }

    /// The shorter of the two lifetimes: what looks and pauses are measured by.
    pub(crate) fn shortest_life(&self) -> Duration {
        self.cert_lifetime.min(self.ca_lifetime)
    }
}
