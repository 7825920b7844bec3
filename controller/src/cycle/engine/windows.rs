//! The windows in which completed requests are counted. Each is asked for the namespaces that need it and for no other,
//! in a part of its own: loads never wait for counts, and no namespace changes the windows of another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use wva_crds::GoDuration;
use wva_crds::entries::{PositiveDuration, ScaleToZeroEntry};
use wva_scaling::resolve::Entries;
use wva_scaling::snapshot::Config;

use super::Engine;
use super::state::{Sampling, State};
use crate::collect::scope::Scope;
use crate::collect::signals::{Query, Retention};
use crate::collect::{self, Answer};
use crate::observe::variants::ManagedVariant;
use crate::observe::workloads;

/// How long a cycle waits for counts that were asked for together with its loads.
pub(super) const COUNT_PATIENCE: Duration = Duration::from_secs(1);
/// Windows that a namespace may have exactly as its retention periods are. Those of one with more are rounded up.
const MOST_EXACT: usize = 4;

/// Namespaces by the window that they need.
pub(super) type Windows = BTreeMap<Retention, BTreeSet<String>>;

/// An answer to the query of one window, with the time that it was asked at.
pub(super) type Counted = (Instant, Answer);

/// Which counts are asked for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DueCounts {
    /// Those of models on their way to zero.
    Leaving,
    /// All.
    All,
}

/// What is carried from one part of counts to the next.
#[derive(Debug, Default)]
pub(super) struct Counts {
    windows: Windows,
    due: Option<DueCounts>,
    /// The first failure of the part under way.
    error: Option<String>,
    /// The last part had a failure.
    is_failing: bool,
    /// The first query of the part under way that failed: the next part begins with it, so that none always comes too late.
    failed: Option<(Query, Scope)>,
    /// How long the last part took.
    pub(super) took: Duration,
    /// Models whose retention period is over the maximum, by the names of their entries.
    capped: BTreeSet<String>,
}

impl Counts {
    /// Counts are to be asked for.
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some() && !self.windows.is_empty()
    }

    /// Asks for counts when the last ones are there.
    pub(super) fn request(&mut self, due: DueCounts) {
        self.due = self.due.max(Some(due));
    }

    /// Takes over the windows of a cycle. Counts of new ones are asked for at once.
    pub(super) fn change(&mut self, windows: Windows) {
        if windows != self.windows {
            self.windows = windows;
            self.request(DueCounts::All);
        }
    }

    /// Namespaces by window.
    pub(super) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Bounds the retention periods of a cycle, and logs the models that are new among those over the maximum.
    pub(super) fn cap(&mut self, entries: &mut BTreeMap<String, ScaleToZeroEntry>, maximum: Duration) {
        let mut capped = BTreeSet::new();
        for (name, entry) in entries {
            let Some(period) = entry.retention_period.filter(|period| period.get().get() > maximum) else {
                continue;
            };
            entry.retention_period = PositiveDuration::try_from(GoDuration::from(maximum)).ok();
            if !self.capped.contains(name) {
                tracing::warn!(
                    entry = name,
                    retention_period = period.get().to_string(),
                    maximum = GoDuration::from(maximum).to_string(),
                    "A retention_period is over WVA_MAX_RETENTION_PERIOD: the maximum counts; shorten the period"
                );
            }
            capped.insert(name.clone());
        }
        self.capped = capped;
    }

    /// The queries to make now: those of the namespaces with the fewest windows first, so that one with many delays no
    /// other. `leaving`: the namespaces of models on their way to zero.
    fn asks<'a>(&mut self, leaving: impl Iterator<Item = &'a str>) -> Vec<(Query, Scope)> {
        let due = self.due.take();
        let leaving: BTreeSet<&str> = leaving.collect();
        let is_asked = |name: &str| due == Some(DueCounts::All) || leaving.contains(name);
        let mut windows_of: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.windows.values().flatten() {
            *windows_of.entry(name).or_default() += 1;
        }
        let mut asks = Vec::new();
        for (window, names) in &self.windows {
            let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_asked(name)).collect();
            let fewest = names.iter().filter_map(|name| windows_of.get(name)).min().copied();
            let scopes = Scope::split(&names).into_iter();
            asks.extend(scopes.map(|scope| (fewest, (Query::Completed(*window), scope))));
        }
        asks.sort_by_key(|(fewest, _)| *fewest);
        let mut asks: Vec<_> = asks.into_iter().map(|(_, ask)| ask).collect();
        let first = self.failed.take().and_then(|failed| asks.iter().position(|ask| *ask == failed));
        asks.rotate_left(first.unwrap_or_default());
        asks
    }
}

/// The windows that namespaces need: the retention periods of their models that may go to zero and have a workload.
pub(super) fn windows(
    config: &Config,
    managed: &[ManagedVariant],
    exists: impl Fn(&ManagedVariant) -> bool,
) -> Windows {
    let entries = Entries::of(config);
    let mut periods: BTreeMap<&str, BTreeSet<Retention>> = BTreeMap::new();
    for m in managed.iter().filter(|m| exists(m)) {
        let Ok(declared) = m.spec() else { continue };
        let to_zero = entries.scale_to_zero(&m.key.namespace, &declared.model_id);
        if to_zero.enabled {
            periods.entry(&m.key.namespace).or_default().insert(Retention::new(to_zero.retention.get()));
        }
    }
    let mut windows = Windows::new();
    for (namespace, periods) in periods {
        for window in few(&periods) {
            windows.entry(window).or_default().insert(namespace.to_owned());
        }
    }
    windows
}

/// The windows for the periods of one namespace: the periods themselves where they are few. Of many, each is rounded up
/// to less than twice as long, and to no more than the longest.
fn few(periods: &BTreeSet<Retention>) -> BTreeSet<Retention> {
    if periods.len() <= MOST_EXACT {
        return periods.clone();
    }
    let longest = periods.last().copied();
    periods.iter().map(|period| longest.map_or(*period, |longest| period.rounded_up().min(longest))).collect()
}

impl Engine {
    /// Takes over what a cycle's configuration says of windows.
    pub(super) fn change_windows(
        &self,
        sampling: &mut Sampling,
        config: &Config,
        managed: &[ManagedVariant],
    ) {
        let exists = |m: &ManagedVariant| {
            m.spec().is_ok_and(|d| workloads::find_workload(&self.sources.watches, &d.workload).is_some())
        };
        sampling.counts.change(windows(config, managed, exists));
        sampling.samples.remove_windows(|window| sampling.counts.windows().contains_key(&window));
    }

    /// Asks for the counts that are due. Each answer comes as soon as it is there.
    pub(super) fn count<'a>(&'a self, state: &mut State) -> BoxStream<'a, Counted> {
        let began = Instant::now();
        let within = self.config().longest_round();
        let asks = state.sampling.counts.asks(state.steps.namespaces());
        collect::stream_answers(&self.sources.prometheus, asks, &self.metrics.telemetry, within)
            .map(move |answer| (began, answer))
            .boxed()
    }
}

impl Sampling {
    /// Takes in one answer of a part of counts.
    pub(super) fn take_count(&mut self, (began, answer): Counted) {
        self.has_news = true;
        if let Err(error) = &answer.rows {
            self.counts.error.get_or_insert_with(|| error.to_string());
            self.counts.failed.get_or_insert_with(|| (answer.query, answer.scope.clone()));
        }
        self.counts.took = began.elapsed();
        self.samples.add_completed(began, answer);
    }

    /// All counts that were asked for are there, or failed.
    pub(super) fn end_count(&mut self) {
        let error = self.counts.error.take();
        let was_failing = std::mem::replace(&mut self.counts.is_failing, error.is_some());
        match error {
            Some(error) if !was_failing => tracing::warn!(
                error,
                "Prometheus did not count completed requests: models concerned do not go to zero"
            ),
            None if was_failing => tracing::info!("Prometheus counts completed requests again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retention(seconds: u64) -> Retention {
        Retention::new(Duration::from_secs(seconds))
    }

    #[test]
    fn few_periods_of_a_namespace_are_asked_exactly() {
        let periods: BTreeSet<Retention> = [7, 20, 333, 604_800].map(retention).into();
        assert_eq!(few(&periods), periods);
    }

    #[test]
    fn no_period_is_rounded_up_to_twice_as_long() {
        let periods: BTreeSet<Retention> = (1..=604_800).step_by(97).map(retention).collect();
        let windows = few(&periods);
        assert!(windows.len() <= 31 && windows.last() == periods.last(), "{windows:?}");
        for period in &periods {
            let window = windows.range(period..).next().unwrap();
            assert!(window.get() < period.get() * 2, "{period} is counted in {window}");
        }
    }

    #[test]
    fn a_stored_period_over_the_maximum_counts_as_it() {
        let entry =
            |text: &str| ScaleToZeroEntry { retention_period: text.parse().ok(), ..Default::default() };
        let mut entries: BTreeMap<_, _> =
            [("ns/a", "2500000h"), ("ns/b", "10m")].map(|(name, text)| (name.to_owned(), entry(text))).into();
        let mut counts = Counts::default();
        counts.cap(&mut entries, Duration::from_hours(168));
        assert_eq!(counts.capped, ["ns/a".to_owned()].into());
        assert_eq!((&entries["ns/a"], &entries["ns/b"]), (&entry("168h"), &entry("10m")));
    }

    #[test]
    fn namespaces_with_the_fewest_windows_are_asked_first() {
        let mut counts = Counts::default();
        let many = (1..=4).map(|n| (retention(n), ["many".to_owned()].into()));
        let mut windows: Windows = many.collect();
        windows.insert(retention(9), ["few".to_owned()].into());
        counts.change(windows);
        let asks = counts.asks(std::iter::empty());
        assert_eq!((asks.len(), &asks[0]), (5, &(Query::Completed(retention(9)), Scope::one("few"))));
        assert!(!counts.is_due());
        counts.request(DueCounts::Leaving);
        assert_eq!(counts.asks(["few"].into_iter()).len(), 1, "the namespaces of models that leave alone");
    }
}
