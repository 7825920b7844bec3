//! What the objects of a cluster say. Controller, rules and commands ask this crate, so that they agree. The crate has no
//! clock, no I/O and no Kubernetes client.
#![warn(clippy::disallowed_methods)]

pub mod hardware;
