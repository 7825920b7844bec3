//! A real Kubernetes control plane as plain child processes on loopback, for end-to-end tests and the demo.
//!
//! [`Testbed::start`] brings up etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok and Prometheus;
//! nodes and pods are kwok's, everything else is the real program. [`Fleet`] emulates vLLM for the pods that exist.
//! Every child runs under a watchdog that ends it when this process ends, for whatever reason, and every wait has
//! a deadline and an error that shows the log of the process it waited for.
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    reason = "for tests alone: every error ends its test and shows its cause, and plain names need no comment"
)]

mod accept;
mod components;
mod fault_proxy;
pub mod fixtures;
mod fleet;
pub mod handshake;
mod helm;
pub mod install;
mod kubelet;
mod nodes;
pub mod picker;
mod pki;
mod ports;
mod process;
pub mod programs;
mod protected;
pub mod replicas;
pub mod reviews;
mod testbed;

mod tools;
mod wait;

pub use components::Component;
pub use fault_proxy::{FaultProxy, ProxyMode};
pub use fleet::{Engine, ExportFault, Fleet, FleetConfig, PodLoad, Request, serving_name};
pub use helm::Helm;
pub use kubelet::{Kubelet, NetworkProxy, Pods};
pub use nodes::NodeGroup;
pub use ports::free_port;
pub use process::Process;
pub use protected::ProtectedServer;
pub use rustix::process::Signal;
pub use testbed::access::{CommandOutput, run};
pub use testbed::audit;
pub use testbed::prometheus::Sample;
pub use testbed::{Options, Testbed};
pub use tools::Tools;
pub use wait::{eventually, within};
