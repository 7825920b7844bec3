//! Tests that share one control plane and one install of the program: each has a namespace of its own and touches no
//! other.

mod explain;
mod groups;
mod scaling;
mod signals;
