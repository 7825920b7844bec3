//! Types that all parts of the controller share. A leaf: it knows no other folder.

pub(crate) mod conditions;
pub(crate) mod gpus;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod moment;
pub(crate) mod orphan;
pub(crate) mod published;
pub(crate) mod refusals;
pub(crate) mod reported;
pub(crate) mod step;
pub(crate) mod written;
