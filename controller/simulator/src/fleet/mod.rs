//! The fleet: servers, the replicas they run in, and what stands in front of them.

pub(crate) mod batch;
pub mod engine;
pub mod server;
