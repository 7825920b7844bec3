//! CA and serving certificates. In mode `self`, a Secret holds the CA, and each replica signs its own serving
//! certificate in memory. In mode `files`, an external issuer writes the files, and wva polls them.

mod authority;
mod backoff;
pub mod ca;
mod clients;
mod config;
mod events;
mod fault;
mod files;
mod handle;
pub mod inspect;
mod leader;
mod rotation;
pub mod serving;
pub mod set;
mod state;
mod store;
mod trust;
mod verify;
pub mod x509;

#[cfg(test)]
mod fixture;

pub use config::{CertsConfig, ConfigError};
pub use handle::Certs;
pub use serving::{ServingCert, server_config, server_config_with_client_certs};
pub use trust::TrustReporter;

/// Age of `notBefore` in a new certificate, for peers with a slow clock.
pub(crate) const BACKDATED: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
