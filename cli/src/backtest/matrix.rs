//! Answers of Prometheus, reduced while they arrive.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use wva_runtime::prometheus::{RangeSeries, RangeSink};
use wva_simulator::backtest::WINDOW;
use wva_simulator::backtest::history::{Histogram, ModelKey};
use wva_simulator::backtest::plan::Span;
use wva_simulator::backtest::scrapes::{Scrapes, SeriesId};
use wva_simulator::backtest::signals::Counter;

/// An absent label is empty, as in Prometheus.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Labels {
    #[serde(rename = "__name__")]
    name: String,
    namespace: String,
    pod: String,
    pod_name: String,
    instance: String,
    model_name: String,
    engine: String,
    dp_rank: String,
    is_streaming: String,
    /// Label of SGLang. The series without it counts the requests of all priorities.
    priority: String,
    finished_reason: String,
    le: String,
}

impl Labels {
    fn key(&self) -> ModelKey {
        ModelKey { namespace: self.namespace.clone(), model: self.model_name.clone() }
    }

    fn pod(&self) -> &str {
        [&self.pod, &self.pod_name, &self.instance]
            .into_iter()
            .find(|name| !name.is_empty())
            .map_or("", |n| n)
    }
}

/// Scrapes of counters and gauges.
#[derive(Default)]
pub(super) struct ScrapeSink(pub(super) Scrapes);

impl RangeSink for ScrapeSink {
    type Labels = Labels;

    fn push_range(&mut self, series: RangeSeries<Labels>) {
        let labels = &series.labels;
        let Some(counter) = Counter::of_metric(&labels.name) else { return };
        // Two names of one counter are parts of their own only if a server exports one of them.
        let Labels { engine, dp_rank, is_streaming, priority, finished_reason, .. } = labels;
        let part = format!("{engine}/{dp_rank}/{is_streaming}/{finished_reason}");
        let id = SeriesId { key: labels.key(), pod: labels.pod().to_owned(), counter, part };
        if !id.key.model.is_empty() && priority.is_empty() {
            self.0.add(id, series.samples.into_iter().map(|sample| (sample.at, sample.value)));
        }
    }
}

/// Times between two scrapes of a pod, seconds.
#[derive(Default)]
pub(super) struct IntervalSink(Vec<f64>);

impl IntervalSink {
    /// The median.
    pub(super) fn median(self) -> Option<f64> {
        median(self.0)
    }
}

impl RangeSink for IntervalSink {
    type Labels = Labels;

    fn push_range(&mut self, series: RangeSeries<Labels>) {
        self.0
            .extend(series.samples.windows(2).map(|pair| pair[1].at - pair[0].at).filter(|time| *time > 0.0));
    }
}

/// `None` without values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Increases by window, of each model and bound.
pub(super) struct WindowSink {
    span: Span,
    /// Infinite for the bucket of all, and for figures without buckets.
    pub(super) rows: BTreeMap<ModelKey, Vec<(f64, Vec<f32>)>>,
    pub(super) samples: u64,
}

impl WindowSink {
    pub(super) fn new(span: Span) -> Self {
        Self { span, rows: BTreeMap::new(), samples: 0 }
    }

    /// Histogram of each model.
    pub(super) fn histograms(self) -> BTreeMap<ModelKey, Histogram> {
        self.rows.into_iter().map(|(key, rows)| (key, histogram(rows))).collect()
    }

    /// Sums of each model.
    pub(super) fn sums(self) -> BTreeMap<ModelKey, Vec<f32>> {
        let first =
            |rows: Vec<(f64, Vec<f32>)>| rows.into_iter().next().map(|(_, row)| row).unwrap_or_default();
        self.rows.into_iter().map(|(key, rows)| (key, first(rows))).collect()
    }
}

impl RangeSink for WindowSink {
    type Labels = Labels;

    fn push_range(&mut self, series: RangeSeries<Labels>) {
        let bound = if series.labels.le.is_empty() { Ok(f64::INFINITY) } else { series.labels.le.parse() };
        let Some(bound) = bound.ok().filter(|bound| *bound > 0.0) else { return };
        let window = i64::from(WINDOW);
        let mut row = vec![f32::NAN; usize::try_from(self.span.seconds() / window).unwrap_or(0)];
        self.samples += series.samples.len() as u64;
        for sample in series.samples.iter().filter(|sample| sample.value.is_finite()) {
            #[expect(clippy::cast_possible_truncation, reason = "times of this century in seconds")]
            let index = (sample.at.round() as i64 - self.span.from) / window - 1;
            if let Some(place) = usize::try_from(index).ok().and_then(|index| row.get_mut(index)) {
                #[expect(clippy::cast_possible_truncation, reason = "counts of a window need no more")]
                let value = sample.value.max(0.0) as f32;
                *place = (value * 1000.0).round() / 1000.0;
            }
        }
        self.rows.entry(series.labels.key()).or_default().push((bound, row));
    }
}

/// Counts of each bucket, from those up to each bound.
fn histogram(mut rows: Vec<(f64, Vec<f32>)>) -> Histogram {
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged: Vec<(f64, Vec<f32>)> = Vec::new();
    for (bound, row) in rows {
        match merged.last_mut() {
            // `1` and `1.0` are two series.
            Some((last, sum))
                if (*last - bound).abs() < 1e-12 || (last.is_infinite() && bound.is_infinite()) =>
            {
                for (sum, value) in sum.iter_mut().zip(row) {
                    *sum = if sum.is_nan() { value } else { *sum + if value.is_nan() { 0.0 } else { value } };
                }
            }
            _ => merged.push((bound, row)),
        }
    }
    if merged.last().is_none_or(|(bound, _)| bound.is_finite()) {
        return Histogram::default();
    }
    let bounds: Vec<f64> = merged.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect();
    let count = merged.first().map_or(0, |(_, row)| row.len());
    let row = |window: usize| {
        let total = merged.last().map_or(f32::NAN, |(_, row)| row[window]);
        if total.is_nan() {
            return Vec::new();
        }
        let mut below = 0.0_f32;
        let own = merged.iter().map(|(_, row)| {
            // Sums over servers with different bounds may fall.
            let up_to = if row[window].is_nan() { below } else { row[window].max(below) };
            let count = up_to - below;
            below = up_to;
            count
        });
        own.collect()
    };
    Histogram { bounds, rows: (0..count).map(row).collect() }
}

/// Pods of each model by namespace and name.
pub(super) fn models_of_pods(scrapes: &Scrapes) -> BTreeMap<(String, String), BTreeSet<ModelKey>> {
    let mut pods: BTreeMap<(String, String), BTreeSet<ModelKey>> = BTreeMap::new();
    for (key, pod, _) in scrapes.first_scrapes() {
        pods.entry((key.namespace.clone(), pod.to_owned())).or_default().insert(key.clone());
    }
    pods
}

#[cfg(test)]
mod tests {
    use wva_runtime::prometheus::Sample;

    use super::*;

    fn series(le: &str, samples: &[(f64, f64)]) -> RangeSeries<Labels> {
        let labels = Labels { model_name: "m".to_owned(), le: le.to_owned(), ..Labels::default() };
        let samples = samples.iter().map(|(at, value)| Sample { at: *at, value: *value }).collect();
        RangeSeries { labels, samples }
    }

    /// SGLang counts requests with and without a stream in series of their own.
    #[test]
    fn requests_with_and_without_a_stream_are_added() {
        let mut sink = ScrapeSink::default();
        for (is_streaming, at) in [("true", 15.0), ("false", 5.0)] {
            let labels = Labels {
                name: "sglang:num_requests_total".to_owned(),
                model_name: "m".to_owned(),
                is_streaming: is_streaming.to_owned(),
                ..Labels::default()
            };
            sink.push_range(RangeSeries { labels, samples: vec![Sample { at: 60.0, value: at }] });
        }
        assert_eq!((sink.0.samples(), sink.0.duplicates()), (2, 0));
        let labels = Labels {
            name: "sglang:num_running_reqs".to_owned(),
            model_name: "m".to_owned(),
            priority: "1".to_owned(),
            ..Labels::default()
        };
        sink.push_range(RangeSeries { labels, samples: vec![Sample { at: 60.0, value: 5.0 }] });
        assert_eq!(sink.0.samples(), 2, "a part of what the series without a priority counts");
    }

    #[test]
    fn pods_that_are_new_have_the_interval_of_all() {
        let mut sink = IntervalSink::default();
        sink.push_range(series("", &[(900.0, 1.0), (915.0, 1.0), (930.0, 1.0)]));
        sink.push_range(series("", &[(1200.0, 1.0), (1215.0, 1.0)]));
        sink.push_range(series("", &[(1200.0, 1.0)]));
        assert_eq!(sink.median(), Some(15.0));
        assert_eq!(IntervalSink::default().median(), None);
    }

    #[test]
    fn windows_are_counts_of_buckets() {
        let mut sink = WindowSink::new(Span { from: 600, to: 1500 });
        sink.push_range(series("+Inf", &[(900.0, 10.0), (1200.0, 4.0)]));
        sink.push_range(series("0.5", &[(900.0, 3.0), (1200.0, 4.0)]));
        sink.push_range(series("1", &[(900.0, 5.0), (1200.0, f64::NAN)]));
        let histogram = sink.histograms().into_values().next().unwrap();
        assert_eq!(histogram.bounds, [0.5, 1.0]);
        assert_eq!(histogram.rows, [vec![3.0, 2.0, 5.0], vec![4.0, 0.0, 0.0], vec![]]);
    }
}
