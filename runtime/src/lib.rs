//! What any Kubernetes controller needs and kube does not have: watch caches, Lease election, delegated authentication,
//! HTTP serving with limits, tasks that end the process when they end. It knows no word of autoscaling.

mod age;
pub mod api_call;
pub mod auth;
mod backoff;
pub mod cache;
pub mod client;
mod clock;
mod connections;
mod interruptions;
pub mod leadership;
pub mod optional;
pub mod repeats;
pub mod server;
mod signals;
pub mod spans;
mod synced;
mod tasks;
pub mod watch;

pub use age::age;
pub use backoff::Backoff;
pub use cache::Cache;
pub use clock::{Clock, system_clock};
pub use interruptions::Interruptions;
pub use optional::{Availability, Optional};
pub use signals::{EndSignal, Signals};
pub use synced::Synced;
#[cfg(debug_assertions)]
pub use tasks::Fault;
pub use tasks::{Ended, Tasks};
