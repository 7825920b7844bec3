//! The rules for the ConfigMaps that the program reads: the main map, whose settings mostly hold until a restart, and
//! the maps whose entries are thresholds. What a map is follows from its name and namespace alone.

pub(crate) mod entries;
pub(crate) mod facts;
pub(crate) mod immutable;
pub(crate) mod main_map;
pub(crate) mod merged;
pub(crate) mod names;
pub(crate) mod reading;
pub(crate) mod unread;

use crate::rule::{self, Rule};

/// What most rules that refuse a map have in common.
const DENY: Rule = Rule { field: "data", ..rule::DENY };
/// What most rules that warn of a map have in common.
const WARN: Rule = Rule { field: "data", ..rule::WARN };
