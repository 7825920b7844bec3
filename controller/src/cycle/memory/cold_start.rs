//! Cold start of a variant, kept while it has no replicas.

use std::time::Duration;

/// Time from the creation of a replica to its readiness.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ColdStart {
    last: Option<Duration>,
    /// Seconds, rounded up.
    shown: Option<u32>,
}

impl ColdStart {
    pub(super) fn from_status(seconds: Option<u32>) -> Self {
        Self { last: seconds.map(|s| Duration::from_secs(s.into())), shown: seconds }
    }

    /// The last one if none is `measured` now.
    pub(crate) fn update(&mut self, measured: Option<Duration>) -> Option<Duration> {
        self.last = measured.or(self.last);
        let seconds = |time: Duration| u32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        if let Some(new) = measured.map(seconds)
            && self.shown.is_none_or(|shown| has_moved(shown, new))
        {
            self.shown = Some(new);
        }
        self.last
    }

    /// Seconds for the status. A small change writes none.
    pub(crate) const fn shown(self) -> Option<u32> {
        self.shown
    }
}

/// Whether the new value differs by more than a tenth.
fn has_moved(shown: u32, new: u32) -> bool {
    u64::from(shown.abs_diff(new)) * 10 > u64::from(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_without_replicas_keeps_the_last_cold_start() {
        let mut cold_start = ColdStart::from_status(Some(95));
        assert_eq!(cold_start.update(None), Some(Duration::from_secs(95)));
        let measured = Some(Duration::from_millis(120_400));
        assert_eq!((cold_start.update(measured), cold_start.shown()), (measured, Some(121)));
        assert_eq!((cold_start.update(None), cold_start.shown()), (measured, Some(121)));
        assert_eq!(ColdStart::default().update(None), None);
    }

    #[test]
    fn a_small_change_writes_no_status() {
        let mut cold_start = ColdStart::from_status(Some(100));
        let mut shown = |seconds| {
            cold_start.update(Some(Duration::from_secs(seconds)));
            cold_start.shown()
        };
        assert_eq!([shown(110), shown(90), shown(111), shown(0)], [100, 100, 111, 0].map(Some));
    }
}
