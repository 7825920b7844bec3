//! Settings of mode `self`.

use std::time::Duration;

use rustls::pki_types::{DnsName, IpAddr};
use wva_crds::events::EventSource;

/// Minimum lifetime of a certificate. A shorter one would be renewed all the time.
const MIN_LIFETIME: Duration = Duration::from_mins(1);

/// Settings of the CA and the serving certificates.
#[derive(Clone, Debug)]
pub struct CertsConfig {
    /// Namespace of the Secret: the controller's own.
    pub namespace: String,
    /// Name of the Secret.
    pub secret_name: String,
    /// DNS names and IP addresses of the serving certificate ([`CertsConfig::service_names`]).
    pub dns_names: Vec<String>,
    /// Lifetime of a new CA; at least a minute.
    pub ca_lifetime: Duration,
    /// Lifetime of a serving certificate; at least a minute, at most until the end of its CA.
    pub cert_lifetime: Duration,
    /// This process, in events.
    pub event_source: EventSource,
}

/// An invalid [`CertsConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No names for the serving certificate.
    #[error("no DNS names for the serving certificate; set at least <service>.<namespace>.svc")]
    NoNames,
    /// A name that is not valid in a certificate.
    #[error("{name:?} is neither a DNS name nor an IP address")]
    BadName {
        /// The name.
        name: String,
    },
    /// A lifetime below a minute.
    #[error("{setting} {found:?} is too short; use at least {MIN_LIFETIME:?}")]
    TooShort {
        /// `CA lifetime` or `certificate lifetime`.
        setting: &'static str,
        /// Configured value.
        found: Duration,
    },
}

impl CertsConfig {
    /// DNS names of Service `service` in `namespace`.
    #[must_use]
    pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
        let name = format!("{service}.{namespace}");
        vec![format!("{name}.svc"), format!("{name}.svc.cluster.local"), name, service.to_owned()]
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
        for (setting, found) in
            [("CA lifetime", self.ca_lifetime), ("certificate lifetime", self.cert_lifetime)]
        {
            if found < MIN_LIFETIME {
                return Err(ConfigError::TooShort { setting, found });
            }
        }
        Ok(())
    }

    /// The shorter lifetime. Check intervals are fractions of it.
    pub(crate) fn shortest_life(&self) -> Duration {
        self.cert_lifetime.min(self.ca_lifetime)
    }
}
