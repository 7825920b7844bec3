//! End-to-end tests on real control planes. Each module is a group, whose tests share a control plane. `tests/run.sh`
//! runs each group as a process.

mod admission;
#[path = "../fixtures/admission_policies.rs"]
mod admission_policies;
mod annotations;
mod chart;
mod config_maps;
mod control_plane;
mod dashboards;
mod from_zero;
mod front_door;
#[path = "../fixtures/history.rs"]
mod history;
mod install;
mod lifecycle;
mod migration;
mod old_objects;
mod operations;
mod outage;
#[path = "../fixtures/printed_commands.rs"]
mod printed_list;
mod readiness;
mod releases;
mod rollout;
mod router;
mod scaling;
mod secure_metrics;
mod shared;
mod signal;
mod support;
mod tenants;
mod to_zero;
mod versions;
