//! The admission server: HTTPS, the reviews of `VariantAutoscaling`, and the opening of the webhook configurations.
//! What is right and wrong stands in `wva-rules`; here it is asked over the network, within bounds that no client can
//! stretch, and from watch caches alone.

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
pub use config_maps::{Refusals, RefusalsToTell, refusals, tell};
pub use review::{CONFIG_MAP_PATH, MUTATE_PATH, Settings, State, VALIDATE_PATH};
pub use routes::router;
pub use server::{Limits, serve, serve_with};
pub use wva_runtime::server::End;
