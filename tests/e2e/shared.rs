//! Tests that share one control plane and one install of the program: each has a namespace of its own and touches no
//! other. A control plane of its own: what decides every two seconds, by real load, is the same for all of them.

mod explain;
mod groups;
mod scaling;
mod signals;
