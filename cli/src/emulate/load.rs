//! A load of completions at given rates.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::ArgMatches;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use wva_crds::duration::GoDuration;
use wva_runtime::Signals;
use wva_simulator::random::{Stream, Varying, stream};

use crate::output::print;

/// A line is printed this often.
const EVERY: Duration = Duration::from_secs(10);
/// An answer that takes longer has failed.
const LONGEST: Duration = Duration::from_mins(5);
/// At the end, for requests under way.
const DRAIN: Duration = Duration::from_secs(10);

/// Reads a rate in requests per second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1000.0).contains(&rate) => Ok(rate),
        _ => Err(format!("{text:?} is not a rate: give requests per second, from 0 to 1000, such as 2.5")),
    }
}

/// What became of requests since the last line.
#[derive(Default)]
struct Window {
    seconds: Vec<f64>,
    failed: u64,
    dropped: u64,
    /// The last failure, in words.
    failure: Option<String>,
}

impl Window {
    /// Counts the end of a request: the seconds to its answer, or its failure.
    fn record(&mut self, ended: Result<f64, String>) {
        match ended {
            Ok(seconds) => self.seconds.push(seconds),
            Err(failure) => {
                self.failed += 1;
                self.failure = Some(failure);
            }
        }
    }

    fn line(&mut self, elapsed: Duration, rate: f64, under_way: usize) -> String {
        self.seconds.sort_by(f64::total_cmp);
        let times = match (percentile(&self.seconds, 50), percentile(&self.seconds, 95)) {
            (Some(median), Some(p95)) => format!(" (p50 {median:.1} s, p95 {p95:.1} s)"),
            _ => String::new(),
        };
        let failure = self.failure.as_ref().map(|text| format!("; last failure: {text}")).unwrap_or_default();
        let (seconds, answered) = (elapsed.as_secs(), self.seconds.len());
        let Self { failed, dropped, .. } = self;
        format!(
            "{seconds:>6} s  {rate} requests/s: {answered} answered{times}, {failed} failed, {dropped} dropped, \
             {under_way} under way{failure}\n"
        )
    }
}

/// Nearest rank of sorted values.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).checked_sub(1)?;
    sorted.get(rank).copied()
}

/// Sends until the last step ends, or until a signal.
pub(super) async fn run(arguments: &ArgMatches) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let rates: Vec<f64> = arguments.get_many("rates").into_iter().flatten().copied().collect();
    let step =
        arguments.get_one::<GoDuration>("step").copied().map_or(Duration::from_mins(3), Duration::from);
    let number = |key| arguments.get_one::<u32>(key).copied().unwrap_or(1);
    let text = |key| arguments.get_one::<String>(key).cloned().unwrap_or_default();
    let sender = Sender {
        // Each request has a connection of its own, so that a Service spreads them over all pods.
        client: reqwest::Client::builder().pool_max_idle_per_host(0).timeout(LONGEST).build()?,
        url: format!("{}/v1/completions", text("url").trim_end_matches('/')),
        body: json!({
            "model": text("model"),
            "prompt": "word".repeat(number("prompt-tokens") as usize),
            "max_tokens": number("output-tokens"),
        }),
    };
    reqwest::Url::parse(&sender.url).with_context(|| format!("--url: {:?} is not a URL", text("url")))?;
    let mut load = Load {
        sender: Arc::new(sender),
        places: Arc::new(Semaphore::new(number("most") as usize)),
        requests: JoinSet::new(),
        window: Window::default(),
    };
    tokio::select! {
        _ = signals.received() => Ok(()),
        sent = load.run(&rates, step, arguments.get_flag("repeat")) => sent,
    }
}

struct Sender {
    client: reqwest::Client,
    url: String,
    body: Value,
}

impl Sender {
    /// Seconds until the answer was there.
    async fn send(&self) -> Result<f64, String> {
        let began = Instant::now();
        let failed = |error: reqwest::Error| wva_crds::text::causes(&error.without_url());
        let response = self.client.post(&self.url).json(&self.body).send().await.map_err(failed)?;
        let status = response.status();
        let text = response.text().await.map_err(failed)?;
        if status.is_success() {
            Ok(began.elapsed().as_secs_f64())
        } else {
            Err(format!("{status}: {}", excerpt(&text)))
        }
    }
}

fn excerpt(text: &str) -> String {
    crate::output::printable(&text.chars().take(200).collect::<String>())
}

/// Requests under way, and those that ended since the last line.
struct Load {
    sender: Arc<Sender>,
    /// One for each request that may be under way.
    places: Arc<Semaphore>,
    requests: JoinSet<Result<f64, String>>,
    window: Window,
}

impl Load {
    async fn run(&mut self, rates: &[f64], step: Duration, repeat: bool) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut random = stream(std::process::id().into(), Stream::Arrivals);
        let mut lines = interval_at(began + EVERY, EVERY);
        lines.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let steps = if repeat { usize::MAX } else { rates.len() };
        for (i, rate) in (0_u32..).zip(rates.iter().cycle().take(steps)) {
            let ends = began + step.saturating_mul(i + 1);
            let gaps = Varying::gamma(1.0 / rate, 1.0);
            // At rate 0 nothing arrives.
            let mut gap = || Duration::try_from_secs_f64(gaps.draw(&mut random)).unwrap_or(step);
            let mut next = Instant::now() + gap();
            loop {
                tokio::select! {
                    () = sleep_until(next.min(ends)) => {
                        if next >= ends {
                            break;
                        }
                        next += gap();
                        self.start_request();
                    }
                    Some(ended) = self.requests.join_next() => {
                        self.window.record(ended.unwrap_or_else(|error| Err(error.to_string())));
                    }
                    _ = lines.tick() => {
                        // The reader of the lines has gone.
                        if !print(&self.window.line(began.elapsed(), *rate, self.requests.len()))? {
                            return Ok(());
                        }
                        self.window = Window::default();
                    }
                }
            }
        }
        let drained = timeout(DRAIN, async { while self.requests.join_next().await.is_some() {} }).await;
        let left = if drained.is_ok() { 0 } else { self.requests.len() };
        let seconds = began.elapsed().as_secs();
        print(&format!("{seconds:>6} s  the load has ended; {left} requests are left unanswered\n"))?;
        Ok(())
    }

    /// Sends a request, or drops it where the most allowed are under way.
    fn start_request(&mut self) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            self.window.dropped += 1;
            return;
        };
        let sender = self.sender.clone();
        self.requests.spawn(async move {
            let _place = place;
            sender.send().await
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_within_bounds() {
        assert_eq!(rate("2.5"), Ok(2.5));
        for wrong in ["", "-1", "NaN", "inf", "1001", "fast"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let sorted: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!((percentile(&sorted, 50), percentile(&sorted, 95)), (Some(10.0), Some(19.0)));
        assert_eq!(percentile(&[], 50), None);
        assert_eq!(percentile(&[7.0], 95), Some(7.0));
    }
}
