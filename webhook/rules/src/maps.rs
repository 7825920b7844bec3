//! Rules for the ConfigMaps of the controller. Name and namespace determine the role of a map.

pub(crate) mod binary_data;
pub(crate) mod entries;
pub(crate) mod facts;
pub(crate) mod immutable;
pub(crate) mod main_map;
pub(crate) mod merged;
pub(crate) mod names;
pub(crate) mod parse;
pub(crate) mod unread_maps;

use crate::rule::{self, Rule};

const DENY: Rule = Rule { field: "data", ..rule::DENY };
pub(crate) const WARN: Rule = Rule { field: "data", ..rule::WARN };
