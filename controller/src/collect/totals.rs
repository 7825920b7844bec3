/// Waiting requests at an endpoint picker, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct QueueTotals {
    pub(super) size: f64,
    pub(super) bytes: f64,
}

impl QueueTotals {
    /// Whether requests are waiting.
    pub(super) fn has_requests(self) -> bool {
        self.size > 0.0 || self.bytes > 0.0
    }

    /// Each replica of a picker has a part of the queue.
    pub(super) fn plus(self, other: Self) -> Self {
        // An infinite sum would be invalid.
        Self { size: (self.size + other.size).min(f64::MAX), bytes: (self.bytes + other.bytes).min(f64::MAX) }
    }

    /// The larger of two readings of one queue, such as under both metric names.
    pub(super) fn max(self, other: Self) -> Self {
        Self { size: self.size.max(other.size), bytes: self.bytes.max(other.bytes) }
    }
}
