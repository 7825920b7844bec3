//! Tests that share one control plane and one install. Each test has a namespace of its own and changes no other.
//! Why a control plane of its own: these tests decide every two seconds, by real load.

mod alerts;
mod backtest;
mod explain;
mod generate;
mod groups;
mod network;
mod scaling;
mod servers;
mod signals;
mod sleeping;
