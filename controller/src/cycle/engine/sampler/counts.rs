//! Counts of completed requests, by window. Each window is queried only for its namespaces, in rounds of its own: loads
//! never wait for counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use wva_crds::GoDuration;
use wva_crds::entries::{DEFAULT_ENTRY, PositiveDuration};
use wva_scaling::ModelKey;
use wva_scaling::resolve::FleetSettings;
use wva_scaling::snapshot::Config;

use super::Sampler;
use super::series::model_filter;
use crate::collect::scope::Scope;
use crate::collect::signals::{Query, Retention};
use crate::collect::{self, Answer};
use crate::cycle::engine::inputs::Inputs;
use crate::observe::variants::ManagedVariant;
use crate::observe::workloads;

/// How long a cycle waits for counts.
pub(in crate::cycle::engine) const COUNT_WAIT: Duration = Duration::from_secs(1);
/// Windows per namespace. With more retention periods, windows are rounded up.
const MAX_EXACT_WINDOWS: usize = 4;

pub(super) type Windows = BTreeMap<Retention, BTreeSet<String>>;

/// An answer with the time of its query.
pub(in crate::cycle::engine) type WindowAnswer = (Instant, Answer);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DueCounts {
    ScalingToZero,
    All,
}

#[derive(Debug, Default)]
pub(in crate::cycle::engine) struct CompletedCounts {
    windows: Windows,
    due: Option<DueCounts>,
    /// First failure of the current counts.
    error: Option<String>,
    is_failing: bool,
    /// The next counts begin with it, so that no query always comes too late.
    failed: Option<(Query, Scope)>,
    pub(super) took: Duration,
    /// Models whose retention period exceeds the maximum.
    capped: BTreeSet<String>,
}

impl CompletedCounts {
    pub(in crate::cycle::engine) fn is_due(&self) -> bool {
        self.due.is_some() && !self.windows.is_empty()
    }

    pub(super) fn request(&mut self, due: DueCounts) {
        self.due = self.due.max(Some(due));
    }

    /// New windows are counted at once.
    pub(super) fn set_windows(&mut self, windows: Windows) {
        if windows != self.windows {
            self.windows = windows;
            self.request(DueCounts::All);
        }
    }

    pub(super) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Logs periods that newly exceed the maximum.
    pub(super) fn cap_retention(&mut self, fleet: &mut FleetSettings, maximum: Duration) {
        let models = fleet.models.iter_mut().map(|(model, settings)| (Some(model), settings));
        let mut capped = BTreeSet::new();
        for (model, settings) in models.chain([(None, &mut fleet.default)]) {
            let entry = &mut settings.scale_to_zero;
            let Some(period) = entry.retention_period.filter(|period| period.get().get() > maximum) else {
                continue;
            };
            entry.retention_period = PositiveDuration::try_from(GoDuration::from(maximum)).ok();
            let name = |model: &ModelKey| format!("{}/{}", model.namespace, model.model_id);
            let name = model.map_or_else(|| DEFAULT_ENTRY.to_owned(), name);
            if !self.capped.contains(&name) {
                tracing::warn!(
                    entry = name,
                    retention_period = period.get().to_string(),
                    maximum = GoDuration::from(maximum).to_string(),
                    "retention_period exceeds WVA_MAX_RETENTION_PERIOD; using the maximum. Shorten the period"
                );
            }
            capped.insert(name);
        }
        self.capped = capped;
    }

    /// Namespaces with the fewest windows come first, so that one with many delays no other. `to_zero`: namespaces with
    /// models on their way to zero.
    fn take_queries<'a>(&mut self, to_zero: impl Iterator<Item = &'a str>) -> Vec<(Query, Scope)> {
        let due = self.due.take();
        let to_zero: BTreeSet<&str> = to_zero.collect();
        let is_due = |name: &str| due == Some(DueCounts::All) || to_zero.contains(name);
        let mut windows_of: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.windows.values().flatten() {
            *windows_of.entry(name).or_default() += 1;
        }
        let mut queries = Vec::new();
        for (window, names) in &self.windows {
            let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_due(name)).collect();
            let fewest = names.iter().filter_map(|name| windows_of.get(name)).min().copied();
            let scopes = Scope::split(names).into_iter();
            queries.extend(scopes.map(|scope| (fewest, (Query::Completed(*window), scope))));
        }
        queries.sort_by_key(|(fewest, _)| *fewest);
        let mut queries: Vec<_> = queries.into_iter().map(|(_, query)| query).collect();
        let first = self.failed.take().and_then(|failed| queries.iter().position(|query| *query == failed));
        queries.rotate_left(first.unwrap_or_default());
        queries
    }
}

/// Retention periods of models that may scale to zero and have a workload, by namespace.
fn required_windows(
    config: &Config,
    fleet: &FleetSettings,
    managed: &[ManagedVariant],
    exists: impl Fn(&ManagedVariant) -> bool,
) -> Windows {
    let mut periods: BTreeMap<&str, BTreeSet<Retention>> = BTreeMap::new();
    for m in managed.iter().filter(|m| exists(m)) {
        let Ok(declared) = m.spec() else { continue };
        let settings = fleet.of(&ModelKey::new(&m.key.namespace, &declared.model_id));
        let to_zero = settings.scale_to_zero(config.scale_to_zero_default);
        if to_zero.enabled {
            periods.entry(&m.key.namespace).or_default().insert(Retention::new(to_zero.retention.get()));
        }
    }
    let mut windows = Windows::new();
    for (namespace, periods) in periods {
        for window in reduce_windows(&periods) {
            windows.entry(window).or_default().insert(namespace.to_owned());
        }
    }
    windows
}

/// A few periods are used as they are. Many are rounded up, to less than twice as long and at most the longest.
fn reduce_windows(periods: &BTreeSet<Retention>) -> BTreeSet<Retention> {
    if periods.len() <= MAX_EXACT_WINDOWS {
        return periods.clone();
    }
    let longest = periods.last().copied();
    periods.iter().map(|period| longest.map_or(*period, |longest| period.rounded_up().min(longest))).collect()
}

impl Sampler {
    pub(super) fn update_windows(
        &mut self,
        config: &Config,
        fleet: &FleetSettings,
        managed: &[ManagedVariant],
        inputs: Inputs<'_>,
    ) {
        let exists = |m: &ManagedVariant| {
            m.spec().is_ok_and(|d| workloads::find_workload(&inputs.sources.watches, &d.workload).is_some())
        };
        self.counts.set_windows(required_windows(config, fleet, managed, exists));
        self.samples.remove_windows(|window| self.counts.windows().contains_key(&window));
    }

    /// Returns each answer as it arrives. `to_zero`: namespaces with steps to zero that wait.
    pub(in crate::cycle::engine) fn query_counts<'e, 'n>(
        &mut self,
        inputs: Inputs<'e>,
        to_zero: impl Iterator<Item = &'n str>,
    ) -> BoxStream<'e, WindowAnswer> {
        let Inputs { sources, metrics, config } = inputs;
        let began = Instant::now();
        let queries = self.counts.take_queries(to_zero);
        let (filter, within) = (Arc::new(model_filter(&inputs.managed())), config.longest_round());
        collect::stream_answers(&sources.prometheus, queries, filter, &metrics.telemetry, within)
            .map(move |answer| (began, answer))
            .boxed()
    }

    pub(in crate::cycle::engine) fn add_count(&mut self, (began, answer): WindowAnswer) {
        if let Err(error) = &answer.rows {
            self.counts.error.get_or_insert_with(|| error.to_string());
            self.counts.failed.get_or_insert_with(|| (answer.query, answer.scope.clone()));
        }
        self.counts.took = began.elapsed();
        self.samples.add_completed(began, answer);
    }

    /// Logs a change between failure and success.
    pub(in crate::cycle::engine) fn end_counts(&mut self) {
        let error = self.counts.error.take();
        let was_failing = std::mem::replace(&mut self.counts.is_failing, error.is_some());
        match error {
            Some(error) if !was_failing => tracing::warn!(
                error,
                "Prometheus queries for completed requests failed; affected models do not scale to zero"
            ),
            None if was_failing => {
                tracing::info!("Prometheus queries for completed requests succeed again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use wva_crds::entries::ScaleToZeroEntry;
    use wva_scaling::snapshot::ModelSettings;

    use super::*;

    fn retention(seconds: u64) -> Retention {
        Retention::new(Duration::from_secs(seconds))
    }

    #[test]
    fn few_periods_have_exact_windows() {
        let periods: BTreeSet<Retention> = [7, 20, 333, 604_800].map(retention).into();
        assert_eq!(reduce_windows(&periods), periods);
    }

    #[test]
    fn no_period_is_rounded_up_to_twice_as_long() {
        let periods: BTreeSet<Retention> = (1..=604_800).step_by(97).map(retention).collect();
        let windows = reduce_windows(&periods);
        assert!(windows.len() <= 31 && windows.last() == periods.last(), "{windows:?}");
        for period in &periods {
            let window = windows.range(period..).next().unwrap();
            assert!(window.get() < period.get() * 2, "{period} has window {window}");
        }
    }

    #[test]
    fn a_period_over_the_maximum_is_capped() {
        let fleet = |a: &str, b: &str, default: &str| {
            let settings = |text: &str| {
                let scale_to_zero =
                    ScaleToZeroEntry { retention_period: text.parse().ok(), ..Default::default() };
                ModelSettings { scale_to_zero, ..ModelSettings::default() }
            };
            let models =
                [("a", a), ("b", b)].map(|(model, text)| (ModelKey::new("ns", model), settings(text)));
            FleetSettings { models: models.into(), default: settings(default) }
        };
        let mut capped = fleet("2500000h", "10m", "200h");
        let mut counts = CompletedCounts::default();
        counts.cap_retention(&mut capped, Duration::from_hours(168));
        assert_eq!(counts.capped, ["default".to_owned(), "ns/a".to_owned()].into());
        assert_eq!(capped, fleet("168h", "10m", "168h"));
    }

    #[test]
    fn namespaces_with_the_fewest_windows_come_first() {
        let mut counts = CompletedCounts::default();
        let many = (1..=4).map(|n| (retention(n), ["many".to_owned()].into()));
        let mut windows: Windows = many.collect();
        windows.insert(retention(9), ["few".to_owned()].into());
        counts.set_windows(windows);
        let queries = counts.take_queries(std::iter::empty());
        assert_eq!((queries.len(), &queries[0]), (5, &(Query::Completed(retention(9)), Scope::one("few"))));
        assert!(!counts.is_due());
        counts.request(DueCounts::ScalingToZero);
        assert_eq!(counts.take_queries(["few"].into_iter()).len(), 1, "only namespaces on their way to zero");
    }
}
