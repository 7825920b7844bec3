//! Load generator: sends completion requests at given rates.

use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use wva_crds::duration::GoDuration;
use wva_runtime::Signals;
use wva_simulator::random::{RandomQuantity, Stream, random_stream};

use crate::output::print;

const PRINT_INTERVAL: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_mins(5);
const DRAIN: Duration = Duration::from_secs(10);

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1000.0).contains(&rate) => Ok(rate),
        _ => Err(format!("{text:?} is not a rate: use requests per second from 0 to 1000, such as 2.5")),
    }
}

pub(super) fn step(text: &str) -> Result<GoDuration, String> {
    let step: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    if step.get().is_zero() {
        Err("a step needs time: use a duration such as 3m".to_owned())
    } else {
        Ok(step)
    }
}

#[derive(Default)]
struct Window {
    /// Latencies of answered requests, in seconds.
    latencies: Vec<f64>,
    failed: u64,
    dropped: u64,
    last_error: Option<String>,
}

impl Window {
    /// Counts a request: its latency in seconds, or its error.
    fn record(&mut self, result: Result<f64, String>) {
        match result {
            Ok(seconds) => self.latencies.push(seconds),
            Err(error) => {
                self.failed += 1;
                self.last_error = Some(error);
            }
        }
    }

    fn line(&mut self, elapsed: Duration, rate: f64, in_flight: usize) -> String {
        self.latencies.sort_by(f64::total_cmp);
        let latency = match (percentile(&self.latencies, 50), percentile(&self.latencies, 95)) {
            (Some(median), Some(p95)) => format!(" (p50 {median:.1} s, p95 {p95:.1} s)"),
            _ => String::new(),
        };
        let error = self.last_error.as_ref().map(|text| format!("; last error: {text}")).unwrap_or_default();
        let (seconds, answered) = (elapsed.as_secs(), self.latencies.len());
        let Self { failed, dropped, .. } = self;
        format!(
            "{seconds:>6} s  {rate} requests/s: {answered} answered{latency}, {failed} failed, {dropped} dropped, \
             {in_flight} in flight{error}\n"
        )
    }
}

/// Nearest-rank percentile of sorted values.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).checked_sub(1)?;
    sorted.get(rank).copied()
}

pub(super) async fn run(arguments: &ArgMatches) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let rates: Vec<f64> = arguments.get_many("rates").into_iter().flatten().copied().collect();
    let step =
        arguments.get_one::<GoDuration>("step").copied().map_or(Duration::from_mins(3), Duration::from);
    let number = |key| arguments.get_one::<u32>(key).copied().unwrap_or(1);
    let text = |key| arguments.get_one::<String>(key).cloned().unwrap_or_default();
    let sender = Sender {
        // A new connection per request, so that a Service spreads requests over all pods.
        client: reqwest::Client::builder().pool_max_idle_per_host(0).timeout(REQUEST_TIMEOUT).build()?,
        url: format!("{}/v1/completions", text("url").trim_end_matches('/')),
        body: json!({
            "model": text("model"),
            "prompt": "word".repeat(number("prompt-tokens") as usize),
            "max_tokens": number("output-tokens"),
        }),
    };
    let mut load = Load {
        sender: Arc::new(sender),
        slots: Arc::new(Semaphore::new(number("most") as usize)),
        requests: JoinSet::new(),
        window: Window::default(),
    };
    tokio::select! {
        _ = signals.recv() => Ok(()),
        result = load.run(&rates, step, arguments.get_flag("repeat")) => result,
    }
}

struct Sender {
    client: reqwest::Client,
    url: String,
    body: Value,
}

impl Sender {
    async fn send(&self) -> Result<f64, String> {
        let started = Instant::now();
        let failed = |error: reqwest::Error| wva_runtime::text::causes(&error.without_url());
        let response = self.client.post(&self.url).json(&self.body).send().await.map_err(failed)?;
        let status = response.status();
        let text = response.text().await.map_err(failed)?;
        if status.is_success() {
            Ok(started.elapsed().as_secs_f64())
        } else {
            Err(format!("{status}: {}", excerpt(&text)))
        }
    }
}

fn excerpt(text: &str) -> String {
    crate::output::printable(&text.chars().take(200).collect::<String>())
}

struct Load {
    sender: Arc<Sender>,
    slots: Arc<Semaphore>,
    requests: JoinSet<Result<f64, String>>,
    window: Window,
}

impl Load {
    async fn run(&mut self, rates: &[f64], step: Duration, repeat: bool) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut random = random_stream(std::process::id().into(), Stream::Arrivals);
        let mut lines = interval_at(started + PRINT_INTERVAL, PRINT_INTERVAL);
        lines.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let steps = if repeat { usize::MAX } else { rates.len() };
        for (i, rate) in (0_u32..).zip(rates.iter().cycle().take(steps)) {
            let end = started + step.saturating_mul(i + 1);
            let gaps = RandomQuantity::gamma(1.0 / rate, 1.0);
            // The gap is infinite at rate 0.
            let mut gap = || Duration::try_from_secs_f64(gaps.draw(&mut random)).unwrap_or(step);
            let mut next = Instant::now() + gap();
            loop {
                tokio::select! {
                    () = sleep_until(next.min(end)) => {
                        if next >= end {
                            break;
                        }
                        next += gap();
                        self.start_request();
                    }
                    Some(result) = self.requests.join_next() => {
                        self.window.record(result.unwrap_or_else(|error| Err(error.to_string())));
                    }
                    _ = lines.tick() => {
                        if !print(&self.window.line(started.elapsed(), *rate, self.requests.len()))? {
                            return Ok(());
                        }
                        self.window = Window::default();
                    }
                }
            }
        }
        let drained = timeout(DRAIN, async { while self.requests.join_next().await.is_some() {} }).await;
        let left = if drained.is_ok() { 0 } else { self.requests.len() };
        let seconds = started.elapsed().as_secs();
        print(&format!("{seconds:>6} s  end of the load, {left} requests unanswered\n"))?;
        Ok(())
    }

    fn start_request(&mut self) {
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            self.window.dropped += 1;
            return;
        };
        let sender = self.sender.clone();
        self.requests.spawn(async move {
            let _slot = slot;
            sender.send().await
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_rates_out_of_bounds() {
        assert_eq!(rate("2.5"), Ok(2.5));
        for invalid in ["", "-1", "NaN", "inf", "1001", "fast"] {
            assert!(rate(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn computes_nearest_rank_percentiles() {
        let sorted: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!((percentile(&sorted, 50), percentile(&sorted, 95)), (Some(10.0), Some(19.0)));
        assert_eq!(percentile(&[], 50), None);
        assert_eq!(percentile(&[7.0], 95), Some(7.0));
    }
}
