//! CA and serving certificates of wva. In mode `self` one Secret holds the CA; every replica signs a serving
//! certificate of its own, in memory, and swaps it without a restart or a dropped connection. No serving key is
//! ever stored or shared. In mode `files` somebody else makes the certificates, and their files are read again and
//! again. [`connections`] is what every server accepts its clients with.

mod authority;
pub mod ca;
mod clients;
mod config;
pub mod connections;
mod files;
mod handle;
pub mod inspect;
mod leader;
mod news;
mod rest;
mod rotation;
pub mod serving;
pub mod set;
mod store;
mod trial;
mod trust;
mod why;
pub mod x509;

#[cfg(test)]
mod fixture;

use std::sync::Arc;

use jiff::Timestamp;

pub use config::{CertsConfig, ConfigError};
pub use handle::Certs;
pub use serving::{Serving, server_config, server_config_asking_clients};
pub use trust::Trust;

/// Where the wall-clock time comes from. Tests move it; a program uses [`system_clock`].
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The machine's wall clock.
#[must_use]
pub fn system_clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// Not-before lies this far in the past, so that a peer whose clock is slow does not refuse a fresh certificate.
pub(crate) const BACKDATED: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
