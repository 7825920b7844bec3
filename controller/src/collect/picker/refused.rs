//! Requests that a pod of an endpoint picker answered with an error: how much its counters rose between two pages. A
//! request that came and went between them counts too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wva_crds::RefusedCount;

/// A refused request counts this long. The engine decides within seconds.
pub(super) const MAX_AGE: Duration = Duration::from_secs(30);

/// Counters on one page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RefusedCounts {
    /// Refused requests of every model in the query.
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

impl RefusedCounts {
    fn counts_all_names(&self, model: &str) -> bool {
        self.sole_model.as_deref() == Some(model)
    }
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
    /// Adds the rise since the last page. `first` is the count before the first page.
    pub(super) fn add(
        &mut self,
        counts: RefusedCounts,
        first: impl Fn(&str, &RefusedCounts) -> Option<f64>,
        now: Instant,
    ) {
        for (model, count) in &counts.by_model {
            let before = match &self.last {
                None => first(model, &counts),
                Some(last) => before(last, model, &counts),
            };
            let before = before.unwrap_or(*count);
            let requests = if *count < before { *count } else { count - before };
            if requests > 0.0 {
                let rise = RecentRefusals { requests, at: now };
                let known = self.recent.get(model).filter(|known| known.is_recent(now));
                self.recent.insert(model.clone(), known.map_or(rise, |known| known.plus(rise)));
            }
        }
        self.last = Some(counts);
    }

    pub(super) fn count(&self, pod: &str, model: &str) -> Option<RefusedCount> {
        let last = self.last.as_ref()?;
        let count = to_integer(*last.by_model.get(model)?);
        let all_names = last.counts_all_names(model);
        Some(RefusedCount { pod: pod.to_owned(), started: millis(last.started), count, all_names })
    }

    pub(super) fn recent(&self, model: &str, now: Instant) -> Option<RecentRefusals> {
        self.recent.get(model).copied().filter(|refused| refused.is_recent(now))
    }
}

/// `None` if the count of the last page cannot be compared.
fn before(last: &RefusedCounts, model: &str, counts: &RefusedCounts) -> Option<f64> {
    // Otherwise other names count for the model than before.
    let is_same = last.sole_model == counts.sole_model;
    let count = if last.started == counts.started { last.by_model.get(model).copied() } else { Some(0.0) };
    count.filter(|_| is_same)
}

/// What is known of a pod before its first page.
pub(super) struct PodStart<'a> {
    pub(super) pod: &'a str,
    /// The pod is new to the poller.
    pub(super) is_new: bool,
    /// Counts of the model that the last leader read.
    pub(super) last_leader: &'a [RefusedCount],
}

impl PodStart<'_> {
    /// Count before the first page. A pod that is new to the poller counts from 0, one that the last leader read from
    /// where it was. `None`: the first page is the start.
    pub(super) fn first_count(&self, model: &str, counts: &RefusedCounts) -> Option<f64> {
        let started = millis(counts.started);
        let known = self.last_leader.iter().find(|known| known.pod == self.pod);
        if known.is_some_and(|known| known.all_names != counts.counts_all_names(model)) {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let count = known.map(|known| if known.started == started { known.count as f64 } else { 0.0 });
        count.or(self.is_new.then_some(0.0))
    }
}

fn millis(started: Option<f64>) -> i64 {
    to_integer(started.unwrap_or_default() * 1000.0)
}

#[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
fn to_integer(value: f64) -> i64 {
    value.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(count: f64) -> RefusedCounts {
        RefusedCounts { by_model: [("m".to_owned(), count)].into(), started: Some(1.0), ..Default::default() }
    }

    /// Refused requests after these pages, half a second apart.
    fn requests(pages: &[RefusedCounts], first: Option<f64>) -> f64 {
        let (mut refused, start) = (RefusedRequests::default(), Instant::now());
        let mut now = start;
        for page in pages {
            now += Duration::from_millis(500);
            refused.add(page.clone(), |_, _| first, now);
        }
        refused.recent("m", now).map_or(0.0, |recent| recent.requests)
    }

    #[track_caller]
    fn check(pages: &[RefusedCounts], first: Option<f64>, want: f64) {
        let found = requests(pages, first);
        assert!((found - want).abs() < 1e-9, "{found}, expected {want}: {pages:?}");
    }

    #[test]
    fn counts_the_rise_between_two_pages() {
        check(&[counts(0.0), counts(1.0)], None, 1.0);
        check(&[counts(7.0), counts(9.0), counts(9.0), counts(10.0)], None, 3.0);
        check(&[counts(7.0), counts(7.0)], None, 0.0);
    }

    #[test]
    fn first_page_of_an_old_pod_is_the_baseline() {
        check(&[counts(7.0)], None, 0.0);
        check(&[counts(7.0)], Some(0.0), 7.0);
        check(&[counts(7.0)], Some(5.0), 2.0);
        // The model was not in the query before.
        let without = RefusedCounts { by_model: BTreeMap::new(), ..counts(0.0) };
        check(&[without, counts(7.0)], None, 0.0);
    }

    #[test]
    fn a_new_leader_continues_where_the_last_one_was() {
        let known = |pod: &str, started, count| RefusedCount {
            pod: pod.to_owned(),
            started,
            count,
            all_names: false,
        };
        let last_leader = [known("other", 1000, 3), known("epp-0", 1000, 5)];
        let first_of = |start: PodStart<'_>| start.first_count("m", &counts(7.0));
        let first = |is_new, pod| first_of(PodStart { pod, is_new, last_leader: &last_leader });
        assert_eq!(first(false, "epp-0"), Some(5.0));
        assert_eq!(first(false, "epp-1"), None, "it was not read before");
        assert_eq!(first(true, "epp-1"), Some(0.0), "it started later");
        let restarted = [known("epp-0", 2000, 5)];
        assert_eq!(first_of(PodStart { pod: "epp-0", is_new: false, last_leader: &restarted }), Some(0.0));
        // Other names count for the model than at the last leader.
        let of_all = [RefusedCount { all_names: true, ..known("epp-0", 1000, 67) }];
        assert_eq!(first_of(PodStart { pod: "epp-0", is_new: false, last_leader: &of_all }), None);
        let mut refused = RefusedRequests::default();
        refused.add(counts(5.0), |_, _| None, Instant::now());
        assert_eq!(refused.count("epp-0", "m"), Some(known("epp-0", 1000, 5)));
    }

    #[test]
    fn restarted_process_counts_from_zero() {
        let restarted = |count| RefusedCounts { started: Some(2.0), ..counts(count) };
        check(&[counts(7.0), restarted(0.0)], None, 0.0);
        check(&[counts(7.0), restarted(1.0)], None, 1.0);
        check(&[counts(7.0), restarted(9.0)], None, 9.0);
        check(&[counts(7.0), counts(2.0)], None, 2.0);
    }

    #[test]
    fn other_names_of_a_model_are_no_rise() {
        let sole = |count| RefusedCounts { sole_model: Some("m".into()), ..counts(count) };
        check(&[counts(1.0), sole(7.0)], None, 0.0);
        check(&[counts(1.0), sole(7.0), sole(8.0)], None, 1.0);
    }

    #[test]
    fn refused_requests_expire() {
        let (mut refused, start) = (RefusedRequests::default(), Instant::now());
        refused.add(counts(0.0), |_, _| None, start);
        refused.add(counts(2.0), |_, _| None, start);
        assert!(refused.recent("m", start + MAX_AGE).is_some());
        let late = start + MAX_AGE + Duration::from_millis(1);
        assert_eq!(refused.recent("m", late), None);
        refused.add(counts(3.0), |_, _| None, late);
        assert!((refused.recent("m", late).unwrap().requests - 1.0).abs() < 1e-9, "only the new one counts");
    }
}
