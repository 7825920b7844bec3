//! What a Prometheus has: metrics by name, models, series and scrape interval.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use wva_runtime::prometheus::{Query, Series};
use wva_simulator::backtest::plan::{SeriesCount, Span};
use wva_simulator::backtest::signals::{Counter, Figure, Selector};

use super::super::matrix::{IntervalSink, median};
use super::super::options::Options;
use super::super::store::Header;
use super::{query_error, to_f64};
use crate::prometheus::Prometheus;

/// Cells of longer intervals are whole windows, and nothing tells then what is lost within them, seconds.
const LONGEST_INTERVAL: f64 = 200.0;
/// Times at which the series are counted.
const PROBES: i64 = 4;

/// What a Prometheus has.
#[derive(Debug)]
pub(super) struct Discovery {
    names: BTreeSet<String>,
    /// Names of each figure that exist.
    figures: Vec<(Figure, Vec<String>)>,
    /// Series at the busiest of some times.
    pub(super) count: SeriesCount,
    /// Usual scrape interval, seconds.
    interval: Option<f64>,
}

impl Discovery {
    pub(super) async fn read(client: &Prometheus, selector: &Selector, span: Span) -> anyhow::Result<Self> {
        let counters: Vec<String> = Counter::ALL.into_iter().flat_map(Counter::metrics).collect();
        let figures: Vec<String> = Figure::ALL.into_iter().flat_map(Figure::metrics).collect();
        let all = [counters.clone(), figures].concat();
        let mut names = BTreeSet::new();
        let mut count = SeriesCount::default();
        let mut intervals = Vec::new();
        let each = (span.seconds() / PROBES).max(600);
        for probe in 1..=PROBES {
            let at = (span.from + probe * each).min(span.to);
            let look = |expression: String| async move {
                let query = Query { at: Some(to_f64(at)), is_raw: true, ..Query::now(&expression) };
                client.series_at(&query).await.map_err(|error| query_error(&error))
            };
            // Ten minutes: with a longer scrape interval no hour is judged.
            let found = look(selector.discovery(&all, 600)).await?;
            names.extend(found.iter().map(|series| series.label("__name__").to_owned()));
            count = greatest(count, counted(&found, &counters));
            let scrapes = selector.scrapes();
            let query = Query { at: Some(to_f64(at)), is_raw: true, ..Query::now(&scrapes) };
            let answer = client.samples(&query, IntervalSink::default).await;
            intervals.extend(answer.map_err(|error| query_error(&error))?.0.median());
        }
        let figures = Figure::ALL.into_iter().filter_map(|figure| {
            let own: Vec<String> = figure.metrics().into_iter().filter(|name| names.contains(name)).collect();
            (!own.is_empty()).then(|| (figure, one_of_each_server(own)))
        });
        let figures = figures.collect();
        Ok(Self { figures, names, count, interval: median(intervals) })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn figures(&self) -> impl Iterator<Item = (Figure, &[String])> {
        self.figures.iter().map(|(figure, names)| (*figure, names.as_slice()))
    }

    /// Span and cells of a new history.
    pub(super) fn header(&self, options: &Options, span: Span) -> anyhow::Result<Header> {
        let interval = options.step.map(f64::from).or(self.interval);
        let Some(interval) = interval else { anyhow::bail!(options.nothing_found()) };
        ensure!(
            interval < LONGEST_INTERVAL,
            "the samples are {interval:.0} s apart: an hour would have too few of them. Does this URL \
             serve downsampled data (Thanos)? Choose a time of which raw samples are kept, or name a store that has them"
        );
        Ok(Header {
            from: span.from,
            to: span.to,
            step: cell_of(interval),
            interval,
            namespace: options.selector.namespace.clone(),
            model: options.selector.model.clone(),
        })
    }
}

/// The divisor of five minutes that is nearest to a scrape interval.
fn cell_of(interval: f64) -> u32 {
    let divisors = (5..=300).filter(|n| 300 % n == 0);
    divisors.min_by(|a, b| distance(*a, interval).total_cmp(&distance(*b, interval))).unwrap_or(15)
}

fn distance(cell: u32, interval: f64) -> f64 {
    (f64::from(cell) / interval).ln().abs()
}

/// A server has a histogram under its current and its old name: the first of the table counts.
fn one_of_each_server(names: Vec<String>) -> Vec<String> {
    let mut by_server: BTreeMap<String, String> = BTreeMap::new();
    for name in names {
        let server = name.split(':').next().unwrap_or_default().to_owned();
        by_server.entry(server).or_insert(name);
    }
    by_server.into_values().collect()
}

fn counted(found: &[Series], counters: &[String]) -> SeriesCount {
    let mut count = SeriesCount::default();
    let mut models = BTreeSet::new();
    for series in found {
        if counters.iter().any(|name| name == series.label("__name__")) {
            count.samples += series.value;
        } else {
            count.histograms += series.value;
        }
        models.insert((series.label("namespace"), series.label("model_name")));
    }
    count.models = f64::from(u32::try_from(models.len()).unwrap_or(u32::MAX));
    count
}

fn greatest(a: SeriesCount, b: SeriesCount) -> SeriesCount {
    SeriesCount {
        samples: a.samples.max(b.samples),
        histograms: a.histograms.max(b.histograms),
        models: a.models.max(b.models),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_divide_a_window() {
        for (interval, cell) in
            [(15.0, 15), (14.3, 15), (31.0, 30), (60.0, 60), (10.0, 10), (1.0, 5), (44.0, 50)]
        {
            assert_eq!(cell_of(interval), cell, "{interval}");
        }
    }

    #[test]
    fn an_old_name_does_not_count_twice() {
        let names = ["vllm:new", "vllm:old", "sglang:x"].map(str::to_owned).to_vec();
        assert_eq!(one_of_each_server(names), ["sglang:x", "vllm:new"]);
    }
}
