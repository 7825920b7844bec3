//! Types that all parts of the controller share.

pub(crate) mod conditions;
pub(crate) mod demand;
pub(crate) mod gpus;
pub(crate) mod keys;
pub(crate) mod moment;
pub(crate) mod published;
pub(crate) mod quantity;
pub(crate) mod refusals;
pub(crate) mod reported;
pub(crate) mod serving_pod;
pub(crate) mod status_fingerprint;
pub(crate) mod step;
pub(crate) mod to_zero;
