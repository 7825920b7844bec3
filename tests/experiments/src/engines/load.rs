//! Requests to model servers: Poisson arrivals, or so many at once. Every prompt is new, so that no prefix cache helps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde_json::json;
use tokio::task::JoinSet;

use super::server::{MAX_SEQS, MODEL};

/// Prompt and output, in tokens.
const INPUT: std::ops::RangeInclusive<u32> = 60..=400;
const OUTPUT: std::ops::RangeInclusive<u32> = 16..=128;
/// Token ids that are words, not marks.
const TOKENS: std::ops::Range<u32> = 3..300;
/// Requests in flight; more are not sent, and the run fails.
const MAX_IN_FLIGHT: usize = 600;
/// Time limit of a request, and of the requests that remain when a load ends.
const ENDS_WITHIN: Duration = Duration::from_mins(4);

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentRequest {
    pub(super) at: Instant,
    /// `None`: it is not complete, or the client cancelled it.
    pub(super) completed: Option<Instant>,
    pub(super) first_token: Option<Instant>,
    pub(super) tokens: u32,
    pub(super) failed: bool,
}

/// What a server does with as many requests at once as it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedLoop {
    /// Requests a second.
    pub(super) throughput: f64,
    /// Mean seconds between two tokens.
    pub(super) token_gap: f64,
}

/// Sends requests to servers in turn.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    urls: Vec<String>,
    sent: Arc<Mutex<Vec<SentRequest>>>,
    random: Mutex<Pcg64>,
    running: tokio::sync::Mutex<JoinSet<()>>,
}

/// What the client asks for.
struct Ask {
    prompt: Vec<u32>,
    output: u32,
    /// The client closes the connection after so many tokens.
    cancel_after: Option<u32>,
}

impl Client {
    /// `urls`: of the servers, without a path.
    pub(super) fn new(urls: Vec<String>, seed: u64) -> anyhow::Result<Self> {
        ensure!(!urls.is_empty(), "no server to send to");
        let http = reqwest::Client::builder().no_proxy().timeout(ENDS_WITHIN).build()?;
        Ok(Self {
            http,
            urls,
            sent: Arc::default(),
            random: Mutex::new(Pcg64::seed_from_u64(seed)),
            running: tokio::sync::Mutex::default(),
        })
    }

    /// Requests so far, in the order of their arrival.
    pub(super) fn sent(&self) -> Vec<SentRequest> {
        self.sent.lock().clone()
    }

    /// Sends requests as [`Client::arrive`] does, and waits until all have ended.
    pub(super) async fn poisson(&self, rate: f64, lasts: Duration, cancelled: f64) -> anyhow::Result<()> {
        self.arrive(rate, lasts, cancelled).await?;
        self.finish().await
    }

    /// Sends `rate` requests a second for `lasts`; the gaps are exponential. The client cancels this share of them after
    /// some tokens.
    pub(super) async fn arrive(&self, rate: f64, lasts: Duration, cancelled: f64) -> anyhow::Result<()> {
        let mut running = self.running.lock().await;
        let end = Instant::now() + lasts;
        let mut next = Instant::now();
        loop {
            next += Duration::from_secs_f64(-(1.0 - self.random.lock().random::<f64>()).ln() / rate);
            tokio::time::sleep_until(next.min(end).into()).await;
            if next >= end {
                break;
            }
            while running.try_join_next().is_some() {}
            ensure!(running.len() < MAX_IN_FLIGHT, "{MAX_IN_FLIGHT} requests are in flight");
            let ask = self.ask(cancelled);
            running.spawn(self.send(ask));
        }
        Ok(())
    }

    /// Waits until all requests have ended.
    pub(super) async fn finish(&self) -> anyhow::Result<()> {
        let running = std::mem::take(&mut *self.running.lock().await);
        tokio::time::timeout(ENDS_WITHIN, running.join_all()).await.context("requests do not end").map(drop)
    }

    /// Keeps [`MAX_SEQS`] requests in flight for `lasts`, and measures after the first quarter.
    pub(super) async fn measure(&self, lasts: Duration) -> anyhow::Result<ClosedLoop> {
        let (begins, ends) = (Instant::now() + lasts / 4, Instant::now() + lasts);
        let before = self.sent.lock().len();
        let workers = (0..MAX_SEQS).map(|_| async {
            while Instant::now() < ends {
                self.send(self.ask(0.0)).await;
            }
        });
        futures::future::join_all(workers).await;
        let sent = self.sent.lock();
        let (mut completed, mut gaps, mut gap_seconds) = (0_u32, 0_u32, 0.0);
        for request in &sent[before..] {
            let Some((first, last)) = request.first_token.zip(request.completed) else { continue };
            if (begins..ends).contains(&last) {
                completed += 1;
                gaps += request.tokens.saturating_sub(1);
                gap_seconds += last.duration_since(first).as_secs_f64();
            }
        }
        ensure!(gaps > 0, "no request was completed within {lasts:?}");
        let throughput = f64::from(completed) / (ends - begins).as_secs_f64();
        Ok(ClosedLoop { throughput, token_gap: gap_seconds / f64::from(gaps) })
    }

    fn ask(&self, cancelled: f64) -> Ask {
        let mut random = self.random.lock();
        let prompt = (0..random.random_range(INPUT)).map(|_| random.random_range(TOKENS)).collect();
        let output = random.random_range(OUTPUT);
        let cancel_after = random.random_bool(cancelled).then(|| random.random_range(1..=output / 2));
        Ask { prompt, output, cancel_after }
    }

    /// One request, which ends by itself.
    fn send(&self, ask: Ask) -> impl Future<Output = ()> + Send + use<> {
        let at = Instant::now();
        let i = {
            let mut sent = self.sent.lock();
            sent.push(SentRequest { at, completed: None, first_token: None, tokens: 0, failed: false });
            sent.len() - 1
        };
        let (http, url, sent) =
            (self.http.clone(), self.urls[i % self.urls.len()].clone(), self.sent.clone());
        async move {
            let body = json!({
                "model": MODEL, "prompt": ask.prompt, "max_tokens": ask.output, "ignore_eos": true, "stream": true,
            });
            let request = http.post(format!("{url}/v1/completions")).json(&body);
            let answered = stream(request, ask.cancel_after, |tokens| {
                let request = &mut sent.lock()[i];
                request.first_token.get_or_insert_with(Instant::now);
                request.tokens = tokens;
            });
            match answered.await {
                Ok(true) => sent.lock()[i].completed = Some(Instant::now()),
                Ok(false) => {}
                Err(_) => sent.lock()[i].failed = true,
            }
        }
    }
}

/// Reads the tokens of an answer, an event each, and reports how many there are. An event that lies in two chunks is not
/// counted, which is rare. Returns `false` if the client cancelled it.
async fn stream(
    request: reqwest::RequestBuilder,
    cancel_after: Option<u32>,
    seen: impl Fn(u32),
) -> anyhow::Result<bool> {
    let mut answer = request.send().await?.error_for_status()?;
    let mut tokens = 0;
    while let Some(chunk) = answer.chunk().await? {
        let events = chunk.windows(7).filter(|window| window == b"data: {").count();
        tokens += u32::try_from(events)?;
        if tokens > 0 {
            seen(tokens);
        }
        if cancel_after.is_some_and(|after| tokens >= after) {
            return Ok(false);
        }
    }
    Ok(true)
}
