//! Tests that share one control plane and one install of the program: each has a namespace of its own and touches no
//! other.

#[path = "../common/mod.rs"]
mod common;
mod explain;
mod groups;
mod scaling;
mod signals;
