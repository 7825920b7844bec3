//! Limits how often waiting requests wake the engine.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use wva_scaling::ModelKey;

/// Least time between two reports about the same models.
const REPEAT: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct WakeDebounce {
    waiting: BTreeSet<ModelKey>,
    at: Option<Instant>,
}

impl WakeDebounce {
    /// True at once for a new model, else every [`REPEAT`].
    pub(super) fn is_due(&mut self, waiting: BTreeSet<ModelKey>, now: Instant) -> bool {
        let again = self.at.is_none_or(|at| now.saturating_duration_since(at) >= REPEAT);
        let due = !waiting.is_empty() && (again || !waiting.is_subset(&self.waiting));
        self.waiting = waiting;
        if due {
            self.at = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_the_engine_at_once_for_new_models() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let key = |model: &str| ModelKey::new("ns", model);
        let mut debounce = WakeDebounce::default();
        assert!(!debounce.is_due(BTreeSet::new(), at(0)));
        assert!(debounce.is_due([key("a")].into(), at(0)));
        assert!(!debounce.is_due([key("a")].into(), at(500)));
        assert!(debounce.is_due([key("a"), key("b")].into(), at(600)));
        assert!(!debounce.is_due([key("b")].into(), at(2500)));
        assert!(debounce.is_due([key("b")].into(), at(2600)));
        assert!(!debounce.is_due(BTreeSet::new(), at(5000)));
        assert!(debounce.is_due([key("b")].into(), at(5100)));
    }
}
