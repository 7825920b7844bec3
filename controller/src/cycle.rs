//! Decision cycle: assembles a Snapshot, decides, and publishes.

pub(crate) mod assemble;
pub(crate) mod attainment;
pub(crate) mod conditions;
pub(crate) mod engine;
pub(crate) mod evidence;
pub(crate) mod follow;
pub(crate) mod inventory;
pub(crate) mod memory;
pub(crate) mod pending;
