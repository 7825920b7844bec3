//! Requests that a pod of an endpoint picker answered with an error: how much its counters rose between two pages. A
//! request that came and went between them counts too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A refused request counts this long. The engine decides within seconds.
pub(super) const MAX_AGE: Duration = Duration::from_secs(30);

/// Counters on one page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RefusedCounts {
    /// Of every model in the query.
    pub(super) by_model: BTreeMap<String, f64>,
    /// The model that all names counted for.
    pub(super) sole_model: Option<String>,
    /// Start of the picker's process, Unix seconds.
    pub(super) started: Option<f64>,
}

/// Rise of the counters of one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusedRequests {
    last: Option<RefusedCounts>,
    recent: BTreeMap<String, RecentRefusals>,
}

/// Refused requests of a model, and the time of the last one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RecentRefusals {
    pub(super) requests: f64,
    pub(super) at: Instant,
}

impl RecentRefusals {
    pub(super) fn is_recent(self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) <= MAX_AGE
    }

    pub(super) fn plus(self, other: Self) -> Self {
        // An infinite sum would be invalid.
        let requests = (self.requests + other.requests).min(f64::MAX);
        Self { requests, at: self.at.max(other.at) }
    }
}

impl RefusedRequests {
    /// Adds the rise since the last page. Earlier requests of a pod do not count, except if it `is_new`: it then started
    /// after its picker was first polled.
    pub(super) fn add(&mut self, counts: RefusedCounts, is_new: bool, now: Instant) {
        for (model, count) in &counts.by_model {
            let before = self.before(model, *count, &counts, is_new);
            let requests = if *count < before { *count } else { count - before };
            if requests > 0.0 {
                let rise = RecentRefusals { requests, at: now };
                let known = self.recent.get(model).filter(|known| known.is_recent(now));
                self.recent.insert(model.clone(), known.map_or(rise, |known| known.plus(rise)));
            }
        }
        self.last = Some(counts);
    }

    fn before(&self, model: &str, count: f64, counts: &RefusedCounts, is_new: bool) -> f64 {
        match &self.last {
            None if is_new => 0.0,
            None => count,
            // Other names count for the model than before.
            Some(last) if last.sole_model != counts.sole_model => count,
            Some(last) if last.started != counts.started => 0.0,
            Some(last) => last.by_model.get(model).copied().unwrap_or(count),
        }
    }

    pub(super) fn recent(&self, model: &str, now: Instant) -> Option<RecentRefusals> {
        self.recent.get(model).copied().filter(|refused| refused.is_recent(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(count: f64) -> RefusedCounts {
        RefusedCounts { by_model: [("m".to_owned(), count)].into(), started: Some(1.0), ..Default::default() }
    }

    /// Refused requests after these pages, half a second apart.
    fn requests(pages: &[RefusedCounts], is_new: bool) -> f64 {
        let (mut refused, start) = (RefusedRequests::default(), Instant::now());
        let mut now = start;
        for page in pages {
            now += Duration::from_millis(500);
            refused.add(page.clone(), is_new, now);
        }
        refused.recent("m", now).map_or(0.0, |recent| recent.requests)
    }

    #[track_caller]
    fn check(pages: &[RefusedCounts], is_new: bool, want: f64) {
        let found = requests(pages, is_new);
        assert!((found - want).abs() < 1e-9, "{found}, expected {want}: {pages:?}");
    }

    #[test]
    fn counts_the_rise_between_two_pages() {
        check(&[counts(0.0), counts(1.0)], false, 1.0);
        check(&[counts(7.0), counts(9.0), counts(9.0), counts(10.0)], false, 3.0);
        check(&[counts(7.0), counts(7.0)], false, 0.0);
    }

    #[test]
    fn first_page_of_an_old_pod_is_the_baseline() {
        check(&[counts(7.0)], false, 0.0);
        check(&[counts(7.0)], true, 7.0);
        // The model was not in the query before.
        let without = RefusedCounts { by_model: BTreeMap::new(), ..counts(0.0) };
        check(&[without, counts(7.0)], false, 0.0);
    }

    #[test]
    fn restarted_process_counts_from_zero() {
        let restarted = |count| RefusedCounts { started: Some(2.0), ..counts(count) };
        check(&[counts(7.0), restarted(0.0)], false, 0.0);
        check(&[counts(7.0), restarted(1.0)], false, 1.0);
        check(&[counts(7.0), restarted(9.0)], false, 9.0);
        check(&[counts(7.0), counts(2.0)], false, 2.0);
    }

    #[test]
    fn other_names_of_a_model_are_no_rise() {
        let sole = |count| RefusedCounts { sole_model: Some("m".into()), ..counts(count) };
        check(&[counts(1.0), sole(7.0)], false, 0.0);
        check(&[counts(1.0), sole(7.0), sole(8.0)], false, 1.0);
    }

    #[test]
    fn refused_requests_expire() {
        let (mut refused, start) = (RefusedRequests::default(), Instant::now());
        refused.add(counts(0.0), false, start);
        refused.add(counts(2.0), false, start);
        assert!(refused.recent("m", start + MAX_AGE).is_some());
        let late = start + MAX_AGE + Duration::from_millis(1);
        assert_eq!(refused.recent("m", late), None);
        refused.add(counts(3.0), false, late);
        assert!((refused.recent("m", late).unwrap().requests - 1.0).abs() < 1e-9, "only the new one counts");
    }
}
