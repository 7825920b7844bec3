//! Admission server: HTTPS, reviews, and the registration of the webhooks. It applies the rules of `wva-rules` with
//! bounded resources and only from watch caches.

mod client_ca;
mod cluster;
mod config_maps;
mod decode;
mod metrics;
pub mod registration;
mod review;
mod routes;
mod server;

pub use client_ca::{ClientCa, ClientCaError};
pub use cluster::{
    ClusterFacts, Index, Key, TargetReaders, TargetState, autoscaler_index, scaled_object_index,
    variant_index,
};
pub use config_maps::{Refusal, refusal_channel, write_refusal_events};
pub use review::{CONFIG_MAP_PATH, MUTATE_PATH, Settings, State, VALIDATE_PATH};
pub use routes::router;
pub use server::{Limits, serve};
pub use wva_runtime::server::ShutdownSignals;
