//! CA and serving certificates of wva. In mode `self` one Secret holds the CA; every replica signs a serving
//! certificate of its own, in memory, and swaps it without a restart or a dropped connection. No serving key is
//! ever stored or shared. In mode `files` somebody else makes the certificates, and their files are read again and
//! again.

mod authority;
pub mod ca;
mod clients;
mod config;
mod files;
mod handle;
pub mod inspect;
mod leader;
mod news;
mod rest;
mod rotation;
pub mod serving;
pub mod set;
mod state;
mod store;
mod trial;
mod trust;
mod why;
pub mod x509;

#[cfg(test)]
mod fixture;

pub use config::{CertsConfig, ConfigError};
pub use handle::Certs;
pub use serving::{Serving, server_config, server_config_asking_clients};
pub use trust::Trust;

/// Not-before lies this far in the past, so that a peer whose clock is slow does not refuse a fresh certificate.
pub(crate) const BACKDATED: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
