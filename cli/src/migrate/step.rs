//! An object to apply.

use serde_json::Value;

use super::variant::Conversion;
use crate::validate::SourceObject;

#[derive(Debug)]
pub(super) struct Step {
    pub(super) place: String,
    pub(super) object: Value,
    pub(super) changes: Vec<String>,
}

impl Step {
    pub(super) fn new(source: &SourceObject, Conversion { object, changes }: Conversion) -> Self {
        Self { place: source.place.clone(), object, changes }
    }
}
