//! Parts of a Kubernetes controller that kube lacks: watch caches, leader election, delegated authentication, an HTTP
//! server with limits, supervised tasks, and a client of Prometheus.

mod age;
pub mod api_call;
pub mod auth;
mod backoff;
pub mod cache;
pub mod client;
mod clock;
mod connections;
pub mod crd;
mod handshakes;
mod interruption_logger;
pub mod leadership;
pub mod optional;
pub mod pem;
pub mod prometheus;
pub mod repeats;
pub mod server;
mod signals;
pub mod spans;
mod sync_status;
mod tasks;
pub mod terminal;
pub mod text;
pub mod tls;
pub mod watch;

pub use age::age;
pub use backoff::Backoff;
pub use cache::Cache;
pub use clock::{Clock, system_clock};
pub use interruption_logger::InterruptionLogger;
pub use optional::{Availability, OptionalCache};
pub use signals::{EndSignal, Signals};
pub use sync_status::SyncStatus;
#[cfg(debug_assertions)]
pub use tasks::Fault;
pub use tasks::{TaskExit, Tasks};
