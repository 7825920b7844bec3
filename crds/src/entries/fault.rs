//! What is wrong with an entry.

use serde_json::Value;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The text is not YAML, too large, or of the wrong type.
    Form,
    /// Fields are entries of their own.
    Nested,
    /// A key appears twice.
    Duplicate,
    /// A field does not exist or is misspelt.
    Unknown,
    /// A required field is missing.
    Missing,
    /// A value has the wrong type or is out of range.
    Value,
}

/// One fault of an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.describe())]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Path inside the entry, such as `.kvCacheThreshold` or `.data[0].slo`; empty for the whole entry.
    pub path: String,
    /// Description of the found value; empty if it is missing.
    pub found: String,
    /// Description of the expected value or the remedy; may be empty.
    pub expected: String,
    /// Value that was checked.
    pub basis: Value,
}

impl Fault {
    fn describe(&self) -> String {
        let problem = match self.kind {
            FaultKind::Form | FaultKind::Nested => format!("cannot read the entry: {}", self.found),
            FaultKind::Duplicate => self.found.clone(),
            FaultKind::Unknown => "unknown field".to_owned(),
            FaultKind::Missing => "missing".to_owned(),
            FaultKind::Value => format!("{} is not valid", self.found),
        };
        let path = self.path.strip_prefix('.').unwrap_or(&self.path);
        let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
        let expected = if self.expected.is_empty() { String::new() } else { format!("; {}", self.expected) };
        format!("{path}{problem}{expected}")
    }
}
