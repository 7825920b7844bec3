//! The history that the command would read of a Prometheus, without one: the same series, reduced in memory.

use std::collections::BTreeMap;

use anyhow::Context as _;
use wva_simulator::backtest::WINDOW;
use wva_simulator::backtest::history::{Chunk, Histogram, History, ModelKey, Windows};
use wva_simulator::backtest::plan::Span;
use wva_simulator::backtest::scrapes::{Grid, Reduced, Scrapes, SeriesId};
use wva_simulator::backtest::signals::{Counter, Figure};

use super::driver::FleetRun;
use super::remote_write::Series;
use super::series::{Names, PodSeries};

/// Some time in 2026, a multiple of a window.
const EPOCH: i64 = 1_790_000_100;

/// Increases of each figure and bound by window.
type Increases = BTreeMap<(Figure, String), Vec<f64>>;

/// The history of what a fleet showed.
pub(super) fn history(ran: &FleetRun, interval: u32, seconds: f64) -> anyhow::Result<History> {
    let window = i64::from(WINDOW);
    #[expect(clippy::cast_possible_truncation, reason = "some days")]
    let length = (seconds as i64 + window - 1) / window * window;
    let span = Span { from: EPOCH, to: EPOCH + length };
    let key = ModelKey { namespace: "recorded".to_owned(), model: "acme/model".to_owned() };
    let mut scrapes = Scrapes::default();
    let mut increases = Increases::new();
    for (serial, pod) in &ran.pods {
        let name = serial.to_string();
        let names = Names { namespace: &key.namespace, model: &key.model, pod: &name };
        for series in PodSeries::new(ran, pod, names, EPOCH).take(f64::INFINITY) {
            read(series, &key, &name, span, &mut scrapes, &mut increases);
        }
    }
    let grid = Grid { span, step: interval, interval: f64::from(interval) };
    let reduced = scrapes.reduce(grid).remove(&key).context("no series")?;
    let Reduced { cells, mut engine, gap_seconds, gaps, points } = reduced;
    let to_f64 = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    (engine.kv_tokens, engine.block_size) =
        (Some(to_f64(ran.kv_blocks * ran.block_size)), Some(to_f64(ran.block_size)));
    let windows = Windows {
        prompt: histogram(&increases, Figure::Prompt),
        output: histogram(&increases, Figure::Output),
        ttft: histogram(&increases, Figure::Ttft),
        request_gap: histogram(&increases, Figure::RequestGap),
        gap_seconds,
        gaps,
        ..Windows::default()
    };
    let mut history = History::new(key.clone(), span.from, span.to, interval);
    history.add(Chunk { key, from: span.from, cells, windows, engine, points, gpus: None });
    Ok(history)
}

fn read(
    series: &Series,
    key: &ModelKey,
    pod: &str,
    span: Span,
    scrapes: &mut Scrapes,
    increases: &mut Increases,
) {
    let label = |name: &str| {
        series.labels.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let metric = label("__name__");
    #[expect(clippy::cast_precision_loss, reason = "times of this century in milliseconds")]
    let samples: Vec<(f64, f64)> =
        series.samples.iter().map(|(at, value)| (*at as f64 / 1000.0, *value)).collect();
    if let Some(counter) = Counter::of_metric(&metric) {
        let part = label("finished_reason");
        let id = SeriesId { key: key.clone(), pod: pod.to_owned(), counter, part };
        scrapes.add(id, samples.iter().copied());
    }
    let figures = Figure::ALL.into_iter().filter(|figure| figure.metrics().contains(&metric));
    for figure in figures {
        let windows = usize::try_from(span.seconds() / i64::from(WINDOW)).unwrap_or(0);
        let row = increases.entry((figure, label("le"))).or_insert_with(|| vec![0.0; windows]);
        for (from, place) in (span.from..).step_by(WINDOW as usize).zip(row) {
            #[expect(clippy::cast_precision_loss, reason = "times of this century in seconds")]
            let from = from as f64;
            *place += increase(&samples, from, from + f64::from(WINDOW)).unwrap_or(0.0);
        }
    }
}

/// `increase()` of Prometheus: extrapolated to the ends of the window, or by half an interval if they are far.
fn increase(samples: &[(f64, f64)], from: f64, to: f64) -> Option<f64> {
    let (first, last) =
        (samples.partition_point(|(at, _)| *at <= from), samples.partition_point(|(at, _)| *at <= to));
    let inside = samples.get(first..last)?;
    let [(begin, low), .., (end, high)] = inside else { return None };
    let (covered, grown) = (end - begin, high - low);
    let interval = covered / f64::from(u32::try_from(inside.len() - 1).ok()?);
    let reach = |gap: f64| if gap < 1.1 * interval { gap } else { interval / 2.0 };
    let mut before = reach(begin - from);
    if grown > 0.0 {
        // A counter is not below zero.
        before = before.min(covered * low / grown);
    }
    Some((grown * (covered + before + reach(to - end)) / covered).max(0.0))
}

fn histogram(increases: &Increases, figure: Figure) -> Histogram {
    let own = increases.iter().filter(|((own, _), _)| *own == figure);
    let mut rows: Vec<(f64, &Vec<f64>)> =
        own.map(|((_, le), row)| (le.parse().unwrap_or(f64::INFINITY), row)).collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let bounds = rows.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect();
    let windows = rows.first().map_or(0, |(_, row)| row.len());
    let row = |window: usize| {
        let mut below = 0.0_f64;
        let counts = rows.iter().map(|(_, row)| {
            let up_to = row[window].max(below);
            let count = up_to - below;
            below = up_to;
            #[expect(clippy::cast_possible_truncation, reason = "counts of a window")]
            let count = count as f32;
            count
        });
        counts.collect()
    };
    Histogram { bounds, rows: (0..windows).map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_increase_is_extrapolated_as_in_prometheus() {
        let samples: Vec<(f64, f64)> = (0..30).map(|i| (5.0 + 10.0 * f64::from(i), f64::from(i))).collect();
        assert!((increase(&samples, 100.0, 200.0).unwrap() - 10.0).abs() < 1e-9);
        assert!((increase(&samples, 0.0, 100.0).unwrap() - 9.5).abs() < 1e-9, "it begins at zero");
        assert_eq!(increase(&samples, 0.0, 10.0), None);
    }
}
