//! Totals of a queue at an endpoint picker.

/// The requests that wait in a queue, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct QueueTotals {
    /// Requests.
    pub(super) size: f64,
    /// Their bytes.
    pub(super) bytes: f64,
}

impl QueueTotals {
    /// Whether requests wait.
    pub(super) fn is_any(self) -> bool {
        self.size > 0.0 || self.bytes > 0.0
    }

    /// Replicas of a picker have parts of one queue.
    pub(super) fn plus(self, other: Self) -> Self {
        // A sum that overflows would not be a number.
        Self { size: (self.size + other.size).min(f64::MAX), bytes: (self.bytes + other.bytes).min(f64::MAX) }
    }

    /// A picker that shows a queue under both names of its metrics has one queue.
    pub(super) fn greater(self, other: Self) -> Self {
        Self { size: self.size.max(other.size), bytes: self.bytes.max(other.bytes) }
    }
}
