//! Steady reviews through kube-apiserver: server-side dry-run creates, alternately of a valid variant and of one with
//! a fault that only the webhook detects. The rate is fixed and requests are not retried, so that every failed review
//! is counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::fixtures::{invalid_variant, valid_spec, variant};
use crate::{Testbed, eventually};

/// Limit of pending reviews: five seconds' worth, when kube-apiserver gives up on a webhook. More are skipped.
const MAX_PENDING: usize = 256;
/// Largest share of skipped reviews, as 1 in this number; with more, the load was too low.
const SKIPPED_ONE_IN: u64 = 100;
/// Time limit of an answer: more than two webhooks of 5 s.
const ANSWER: Duration = Duration::from_secs(15);
/// Number of failures kept with their messages.
const MAX_FAILURES: usize = 10_000;
/// Number of different failure messages reported.
const MAX_MESSAGES: usize = 5;
/// Rule that the invalid variant violates. No CRD schema covers annotations.
const RULE: &str = "[WVA-VA-017]";
/// Time limit until the webhooks work for the first time.
const FIRST_VERDICT: Duration = Duration::from_mins(1);

/// A review that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub sent: Instant,
    pub at: Instant,
    /// Message of kube-apiserver.
    pub text: String,
}

/// Counts of reviews by outcome.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Valid variants admitted.
    pub admitted: u64,
    /// Invalid variants denied with the rule's code.
    pub refused: u64,
    /// Invalid variants admitted.
    pub let_through: u64,
    /// Reviews without a verdict.
    pub failed: u64,
    /// Failed reviews, up to 10,000.
    pub failures: Vec<Failure>,
    /// Reviews skipped because too many were pending.
    pub skipped: u64,
}

impl Tally {
    pub fn sent(&self) -> u64 {
        self.admitted + self.refused + self.let_through + self.failed
    }

    /// Describes violations where every review had to get the right verdict.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.let_through > 0 {
            faults.push(format!("{} invalid objects were admitted", self.let_through));
        }
        if self.failed > 0 {
            faults.push(format!("{} reviews failed: {}", self.failed, summarize_failures(&self.failures)));
        }
        if self.admitted == 0 || self.refused == 0 {
            faults.push("no valid or no invalid object was judged".to_owned());
        }
        faults
    }

    /// Whether too many reviews were skipped: answers or this machine were slow.
    pub fn has_skipped_too_many(&self) -> bool {
        self.skipped * SKIPPED_ONE_IN > self.sent()
    }

    fn record(&mut self, verdict: Verdict, sent: Instant) {
        match verdict {
            Verdict::Admitted => self.admitted += 1,
            Verdict::Refused => self.refused += 1,
            Verdict::LetThrough => self.let_through += 1,
            Verdict::Failed(text) => {
                self.failed += 1;
                if self.failures.len() < MAX_FAILURES {
                    self.failures.push(Failure { sent, at: Instant::now(), text });
                }
            }
        }
    }
}

/// Different messages of failed reviews, and their counts.
fn summarize_failures(failures: &[Failure]) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for failure in failures {
        *counts.entry(&failure.text).or_default() += 1;
    }
    counts
        .into_iter()
        .take(MAX_MESSAGES)
        .map(|(text, times)| format!("{times} x {text}"))
        .collect::<Vec<_>>()
        .join(" / ")
}

#[derive(Debug)]
enum Verdict {
    Admitted,
    Refused,
    LetThrough,
    Failed(String),
}

/// Requests to send, and their address.
#[derive(Clone)]
struct Target {
    client: reqwest::Client,
    url: String,
    token: String,
}

/// Running reviews. Drop to stop.
pub struct Reviews {
    tally: Arc<Mutex<Tally>>,
    stop: watch::Sender<()>,
    running: JoinSet<()>,
}

impl Reviews {
    /// Sends `rate` reviews per second in this namespace, half of them of an invalid variant. Starts once both get
    /// the right verdict.
    pub async fn start(testbed: &Testbed, namespace: &str, rate: u32) -> anyhow::Result<Self> {
        let target = Target::new(testbed, namespace)?;
        eventually("reviews to be answered", FIRST_VERDICT, async || {
            for is_invalid in [false, true] {
                match target.review(is_invalid).await {
                    Verdict::Admitted | Verdict::Refused => {}
                    other => anyhow::bail!("{other:?}"),
                }
            }
            Ok(())
        })
        .await?;
        let tally = Arc::new(Mutex::new(Tally::default()));
        let (stop, stopped) = watch::channel(());
        let mut running = JoinSet::new();
        running.spawn(send(target, rate, tally.clone(), stopped));
        Ok(Self { tally, stop, running })
    }

    /// Counts of the answered reviews so far.
    pub fn so_far(&self) -> Tally {
        self.tally.lock().clone()
    }

    /// Stops sending, and waits for pending answers.
    pub async fn end(self) -> anyhow::Result<Tally> {
        self.stop.send_replace(());
        let Self { tally, mut running, .. } = self;
        running.join_next().await.context("no sender")?.context("the sender of reviews panicked")?;
        Ok(tally.lock().clone())
    }
}

async fn send(target: Target, rate: u32, tally: Arc<Mutex<Tally>>, mut stopped: watch::Receiver<()>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let permits = Arc::new(Semaphore::new(MAX_PENDING));
    let mut pending = JoinSet::new();
    let mut is_invalid = false;
    loop {
        tokio::select! {
            // An error means that the receiver is gone.
            _ = stopped.changed() => break,
            _ = ticks.tick() => {}
        }
        is_invalid = !is_invalid;
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tally.lock().skipped += 1;
            continue;
        };
        let (target, tally, sent) = (target.clone(), tally.clone(), Instant::now());
        pending.spawn(async move {
            let verdict = target.review(is_invalid).await;
            tally.lock().record(verdict, sent);
            drop(permit);
        });
        while pending.try_join_next().is_some() {}
    }
    while pending.join_next().await.is_some() {}
}

impl Target {
    fn new(testbed: &Testbed, namespace: &str) -> anyhow::Result<Self> {
        let pem = std::fs::read(testbed.ca()).context("cannot read the CA of kube-apiserver")?;
        // HTTP/1.1 opens as many connections as there are pending reviews.
        let client = reqwest::Client::builder()
            .no_proxy()
            .http1_only()
            .retry(reqwest::retry::never())
            .tls_certs_only([reqwest::Certificate::from_pem(&pem)?])
            .timeout(ANSWER)
            .build()
            .context("cannot make an HTTP client")?;
        let url = format!(
            "https://127.0.0.1:{}/apis/llmd.ai/v1alpha1/namespaces/{namespace}/variantautoscalings?dryRun=All",
            testbed.apiserver_port()?
        );
        Ok(Self { client, url, token: testbed.admin_token().to_owned() })
    }

    async fn review(&self, is_invalid: bool) -> Verdict {
        let request = self.client.post(&self.url).bearer_auth(&self.token);
        let object =
            if is_invalid { invalid_variant("wrong") } else { variant("right", &valid_spec("right")) };
        let answer = match request.json(&object).send().await {
            Ok(answer) => answer,
            Err(error) => return Verdict::Failed(format!("{:#}", anyhow::Error::from(error))),
        };
        let status = answer.status().as_u16();
        match answer.text().await {
            Ok(text) => judge(status, &text, is_invalid),
            Err(error) => Verdict::Failed(format!("{:#}", anyhow::Error::from(error))),
        }
    }
}

fn judge(status: u16, text: &str, is_invalid: bool) -> Verdict {
    match (status, is_invalid) {
        (201, false) => Verdict::Admitted,
        (201, true) => Verdict::LetThrough,
        (422 | 403, true) if text.contains(RULE) => Verdict::Refused,
        _ => {
            let object: Value = serde_json::from_str(text).unwrap_or_default();
            let message = object["message"].as_str().unwrap_or(text);
            Verdict::Failed(format!("{status}: {}", message.chars().take(600).collect::<String>()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_answer_by_validity_of_request() {
        let refusal = r#"{"message": "invalid: [WVA-VA-017] found sometimes"}"#;
        assert!(matches!(judge(201, "{}", false), Verdict::Admitted));
        assert!(matches!(judge(201, "{}", true), Verdict::LetThrough));
        assert!(matches!(judge(422, refusal, true), Verdict::Refused));
        // Neither this message about the valid variant nor a failed call about the invalid one is a verdict.
        assert!(matches!(judge(422, refusal, false), Verdict::Failed(_)));
        let failed = r#"{"message": "failed calling webhook: EOF"}"#;
        let Verdict::Failed(text) = judge(500, failed, true) else { panic!("expected a failed review") };
        assert_eq!(text, "500: failed calling webhook: EOF");
    }

    #[test]
    fn tally_reports_every_wrong_verdict() {
        let mut tally = Tally::default();
        assert_eq!(tally.faults(), ["no valid or no invalid object was judged"]);
        for verdict in [Verdict::Admitted, Verdict::Refused] {
            tally.record(verdict, Instant::now());
        }
        assert!(tally.faults().is_empty());
        tally.record(Verdict::LetThrough, Instant::now());
        tally.record(Verdict::Failed("EOF".to_owned()), Instant::now());
        assert_eq!(tally.faults(), ["1 invalid objects were admitted", "1 reviews failed: 1 x EOF"]);
        assert_eq!(tally.sent(), 4);
        assert!(!tally.has_skipped_too_many());
        tally.skipped = 1;
        assert!(tally.has_skipped_too_many());
    }
}
