//! A derived value with its source.

/// Value of an output object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Guess<T = String> {
    pub(super) value: T,
    /// `None`: a flag sets the value.
    pub(super) source: Option<String>,
}

impl<T> Guess<T> {
    pub(super) fn new(value: T, source: impl Into<String>) -> Self {
        Self { value, source: Some(source.into()) }
    }

    pub(super) fn from_flag(value: T) -> Self {
        Self { value, source: None }
    }
}
