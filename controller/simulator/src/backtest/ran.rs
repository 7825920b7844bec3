//! Simulation of the replicas that really ran, observed as the servers' histograms observe.

use std::ops::Range;
use std::sync::Arc;

use super::WINDOW;
use super::history::{Histogram, History, Windows};
use crate::fleet::engine::{Engine, to_f64};
use crate::fleet::server::{Request, ServedRequest};
use crate::fleet::variant::{Gateway, Router, SlowStart, Variant};
use crate::measure::Objectives;
use crate::policy::SYNC;
use crate::policy::fixed::Schedule;
use crate::random::RandomQuantity;
use crate::run::{Setting, run_observed};
use crate::traffic::Traffic;

/// Windows before a part of a history that are simulated, too: requests under way at its start.
const WARM_UP: usize = 2;

/// Replicas that ran, at each sync of a simulation.
#[must_use]
pub fn replicas_at_syncs(history: &History) -> Vec<u32> {
    let step = f64::from(history.step);
    let mut at = 0.0;
    let mut replicas = Vec::new();
    while at < history.seconds() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the history")]
        let cell = (at / step) as usize;
        let held = history.cells.get(cell).map_or(0.0, |cell| cell.replicas + cell.missing);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        replicas.push(held.round() as u32);
        at += SYNC;
    }
    replicas
}

/// A fleet of the model. `initial`: replicas at the start; `most`: most replicas.
#[must_use]
pub fn variant(history: &History, engine: Engine, cost: f64, initial: u32, most: u32) -> Variant {
    Variant {
        name: "replicas".to_owned(),
        accelerator: "GPU".to_owned(),
        cost,
        gpus: 1,
        engine,
        engine_args: Vec::new(),
        initial,
        min: 0,
        max: most.max(1),
        start: RandomQuantity::log_normal(0.0, 0.0),
        slow_start: SlowStart::NEVER,
        time_to_failure: f64::INFINITY,
        slowness: RandomQuantity::log_normal(1.0, 0.0),
        prefix_hits: prefix_hits(history),
        speculation: Vec::new(),
        rollouts: Vec::new(),
        role: None,
    }
}

/// Hit rate of each hour.
fn prefix_hits(history: &History) -> Vec<(f64, f64)> {
    let windows_of_hour = (super::HOUR / WINDOW) as usize;
    let sum = |values: &[f32]| values.iter().map(|value| f64::from(*value)).sum::<f64>();
    let hours = history
        .windows
        .prefix_hits
        .chunks(windows_of_hour)
        .zip(history.windows.prefix_lookups.chunks(windows_of_hour));
    let rate = |(hour, (hits, lookups)): (u32, (&[f32], &[f32]))| {
        let (hits, lookups) = (sum(hits), sum(lookups));
        let rate = if lookups > 0.0 { (hits / lookups).clamp(0.0, 0.99) } else { 0.0 };
        (f64::from(super::HOUR) * f64::from(hour), rate)
    };
    (0..).zip(hours).map(rate).collect()
}

/// Latencies that the servers of a simulation would have shown.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Latencies by window.
    pub windows: Windows,
    /// Sum of the times to first tokens in each cell, seconds.
    pub first_token_seconds: Vec<f32>,
}

/// Simulates the replicas that ran in a part of the history.
#[must_use]
pub fn simulate(
    history: &History,
    engine: Engine,
    requests: &Arc<[Request]>,
    objectives: Objectives,
    part: Range<usize>,
) -> Latencies {
    let first = part.start.saturating_sub(WARM_UP);
    let (from, to) = (f64::from(WINDOW) * to_f64(first as u64), f64::from(WINDOW) * to_f64(part.end as u64));
    let inside = requests.partition_point(|r| r.arrived < from)..requests.partition_point(|r| r.arrived < to);
    let own: Vec<Request> =
        requests[inside].iter().map(|r| Request { arrived: r.arrived - from, ..*r }).collect();
    let replicas = replicas_at_syncs(history);
    let syncs_of_window = (f64::from(WINDOW) / SYNC).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "20")]
    let skipped = first * syncs_of_window as usize;
    let replicas = replicas.get(skipped..).unwrap_or_default();
    let most = replicas.iter().copied().max().unwrap_or(1);
    let mut own_variant = variant(history, engine, 1.0, replicas.first().copied().unwrap_or(1), most);
    for (at, _) in &mut own_variant.prefix_hits {
        *at -= from;
    }
    let setting = Setting {
        variants: vec![own_variant],
        gateway: Gateway::direct(Router::LeastLoaded),
        gpu_supply: Vec::new(),
        objectives,
        traffic: Traffic::Recorded(own.into()),
        duration: to - from,
    };
    let mut schedule = schedule(replicas);
    let mut observer = Observer::new(history, from);
    run_observed(&setting, &mut schedule, 1, |_| {}, &mut |served| observer.observe(served));
    observer.shown
}

/// The schedule of the replicas that ran.
#[must_use]
pub fn schedule(replicas: &[u32]) -> Schedule {
    let mut entries: Vec<(f64, Vec<u32>)> = Vec::new();
    for (i, count) in (0_u32..).zip(replicas) {
        if entries.last().is_none_or(|(_, last)| last[0] != *count) {
            entries.push((SYNC * f64::from(i), vec![*count]));
        }
    }
    Schedule { entries }
}

/// Histograms with the bounds of the servers.
struct Observer {
    shown: Latencies,
    /// Length of a cell, seconds.
    step: f64,
    /// Start of the simulation, seconds since the start of the history.
    offset: f64,
}

impl Observer {
    fn new(history: &History, offset: f64) -> Self {
        let (bounds, count) = (&history.windows, history.window_count());
        let like = |own: &Histogram| Histogram {
            bounds: own.bounds.clone(),
            rows: vec![vec![0.0; own.bounds.len() + 1]; count],
        };
        let windows = Windows {
            ttft: like(&bounds.ttft),
            request_gap: like(&bounds.request_gap),
            gap_seconds: vec![0.0; count],
            gaps: vec![0.0; count],
            ..Windows::default()
        };
        let shown = Latencies { windows, first_token_seconds: vec![0.0; history.cells.len()] };
        Self { shown, step: f64::from(history.step.max(1)), offset }
    }

    fn observe(&mut self, served: &ServedRequest) {
        let request = served.request;
        let Latencies { windows: Windows { ttft, request_gap, .. }, first_token_seconds } = &mut self.shown;
        let (at, seconds) = (self.offset + served.first_token, served.first_token - request.arrived);
        count(ttft, window(at), seconds);
        if let Some(sum) = first_token_seconds.get_mut(index(at, self.step)) {
            *sum += to_f32(seconds);
        }
        if request.output > 1 {
            let generating = served.ended - served.first_token;
            count(
                request_gap,
                window(self.offset + served.ended),
                generating / f64::from(request.output - 1),
            );
            self.spread(
                self.offset + served.first_token..self.offset + served.ended,
                f64::from(request.output - 1),
            );
        }
    }

    /// Counts tokens evenly over the time in which they were generated, seconds since the start of the history.
    fn spread(&mut self, time: Range<f64>, tokens: f64) {
        let length = time.end - time.start;
        let (first, last) = (window(time.start), window(time.end));
        let windows = &mut self.shown.windows;
        for i in first..=last.min(windows.gaps.len().saturating_sub(1)) {
            let start = f64::from(WINDOW) * to_f64(i as u64);
            let inside = (time.end.min(start + f64::from(WINDOW)) - time.start.max(start)).max(0.0);
            windows.gap_seconds[i] += to_f32(inside);
            windows.gaps[i] += to_f32(tokens * if length > 0.0 { inside / length } else { 1.0 });
        }
    }
}

fn count(histogram: &mut Histogram, window: usize, seconds: f64) {
    let bucket = histogram.bounds.partition_point(|bound| *bound < seconds);
    if let Some(place) = histogram.rows.get_mut(window).and_then(|row| row.get_mut(bucket)) {
        *place += 1.0;
    }
}

fn window(at: f64) -> usize {
    index(at, f64::from(WINDOW))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are within the history")]
fn index(at: f64, length: f64) -> usize {
    (at / length).max(0.0) as usize
}

#[expect(clippy::cast_possible_truncation, reason = "counts of a window need no more")]
fn to_f32(value: f64) -> f32 {
    value as f32
}
