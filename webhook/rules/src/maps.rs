//! Rules for the ConfigMaps of the controller: the main map with settings, and the maps with entries. Name and namespace
//! determine the role of a map.

pub(crate) mod entries;
pub(crate) mod facts;
pub(crate) mod immutable;
pub(crate) mod main_map;
pub(crate) mod merged;
pub(crate) mod names;
pub(crate) mod parse;
pub(crate) mod unread_maps;

use crate::rule::{self, Rule};

/// Defaults of a deny rule for maps.
const DENY: Rule = Rule { field: "data", ..rule::DENY };
/// Defaults of a warning rule for maps.
const WARN: Rule = Rule { field: "data", ..rule::WARN };
