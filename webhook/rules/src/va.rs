//! Rules for `VariantAutoscaling`, one file for each subject.

pub(crate) mod bounds;
pub(crate) mod cost;
pub(crate) mod instance;
pub(crate) mod intent;
pub(crate) mod keys;
pub(crate) mod labels;
pub(crate) mod model;
pub(crate) mod namespace;
pub(crate) mod readers;
pub(crate) mod shape;
pub(crate) mod sharing;
pub(crate) mod target;
