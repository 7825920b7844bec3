//! Series that an answer has under their own names: gauges and counters of every model server.

use std::collections::HashMap;
use std::sync::LazyLock;

use wva_objects::servers::{MODEL_SERVERS, ServerKind, ServerMetric, server_series};

use crate::collect::work::Counter;

/// Meaning of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedSeries {
    pub(super) counter: Counter,
    pub(super) server: ServerKind,
    /// Rank of the name among those that the server has for the counter; 0 is the current one.
    pub(super) rank: usize,
    /// The value is added to that of the other names.
    pub(super) is_part: bool,
    /// Value of the label `request_type` or `reason`, if the name has several meanings.
    state: Option<&'static str>,
}

/// Keys: whole names.
static SERIES: LazyLock<HashMap<String, Vec<NamedSeries>>> = LazyLock::new(|| {
    let mut series: HashMap<String, Vec<NamedSeries>> = HashMap::new();
    for counter in Counter::GAUGES.into_iter().chain(Counter::COUNTERS) {
        let (signal, suffix) = counter.source();
        for row in &MODEL_SERVERS {
            let named = row.metrics(signal).iter().enumerate().map(|(rank, metric)| (rank, *metric, false));
            let parts = row.parts(signal).map(|metric| (0, metric, true));
            for (rank, metric, is_part) in named.chain(parts) {
                let state = metric.label.map(|(_, state)| state);
                let name = format!("{}{suffix}", metric.name);
                let server = row.kind;
                series.entry(name).or_default().push(NamedSeries { counter, server, rank, is_part, state });
            }
        }
    }
    series
});

/// Finds the meaning of a series. `state`: its label `request_type` or `reason`, empty if absent.
pub(super) fn find(name: &str, state: &str) -> Option<NamedSeries> {
    SERIES.get(name)?.iter().find(|series| series.state.is_none_or(|own| own == state)).copied()
}

/// Names of these counters over all servers, each once.
pub(super) fn names(counters: &[Counter]) -> Vec<String> {
    names_of(counters, |_| true)
}

/// Names of running and waiting requests, without those by reason: all wait.
pub(super) fn in_flight() -> Vec<String> {
    names_of(&Counter::GAUGES, |metric| !metric.is_by_reason())
}

fn names_of(counters: &[Counter], select: impl Fn(&ServerMetric) -> bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (signal, suffix) in counters.iter().map(|counter| counter.source()) {
        for (_, metric) in server_series(signal).filter(|(_, metric)| select(metric)) {
            let name = format!("{}{suffix}", metric.name);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}
