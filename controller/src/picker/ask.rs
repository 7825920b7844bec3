//! One request for the metrics of one pod of an endpoint picker. Whatever answers there is bounded in time and length:
//! it may hang, send for ever, or send us elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use tokio::sync::watch;

use super::page::{NotMetrics, Page, Waiting};

/// Longest time one request may take, its answer included. What is slower than this is of no use: a request that waits
/// is to be seen within a second.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest page that is read. One with a hundred models is a few hundred kilobytes.
const PAGE_LIMIT: usize = 4 << 20;
/// Where every pod has the token of its service account.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// How often that file is read: its content is renewed minutes before it expires.
const LOOK_AT_TOKEN: Duration = Duration::from_secs(30);
/// Longest wait for the file.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a pod gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// No connection, or it broke off.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It took too long.
    #[error("it did not answer within {} s", TIMEOUT.as_secs())]
    TooSlow,
    /// Any status but 200, a redirect among them.
    #[error(
        "it answered {0}: the metrics page is expected at /metrics, for the bearer token of this program"
    )]
    Refused(StatusCode),
    /// The page goes on and on.
    #[error("its page is longer than {PAGE_LIMIT} bytes")]
    TooLong,
    /// The page is none.
    #[error(transparent)]
    NotMetrics(#[from] NotMetrics),
}

/// Asks pods for their metrics. Clones share connections and token.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    http: Client,
    token: watch::Receiver<Option<HeaderValue>>,
}

impl Asker {
    /// One that shows what `token` holds.
    ///
    /// # Errors
    /// Where the HTTP client cannot be made.
    pub(super) fn new(token: watch::Receiver<Option<HeaderValue>>) -> Result<Self, reqwest::Error> {
        let http = Client::builder()
            // A proxy knows no way to a pod.
            .no_proxy()
            .redirect(Policy::none())
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(1)
            // Nothing is verified over plain HTTP, and an image without roots is good enough.
            .tls_certs_only([])
            .build()?;
        Ok(Self { http, token })
    }

    /// What waits for each of these models at one pod, as its page says.
    ///
    /// # Errors
    /// [`NoAnswer`], within [`TIMEOUT`].
    pub(super) async fn ask(
        &self,
        pod: SocketAddr,
        models: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Waiting>, NoAnswer> {
        let mut request = self.http.get(format!("http://{pod}/metrics"));
        if let Some(token) = self.token.borrow().clone() {
            request = request.header(AUTHORIZATION, token);
        }
        let mut answer = request.send().await?;
        if answer.status() != StatusCode::OK {
            return Err(NoAnswer::Refused(answer.status()));
        }
        let mut page = Page::of(models);
        let mut left = PAGE_LIMIT;
        while let Some(chunk) = answer.chunk().await? {
            left = left.checked_sub(chunk.len()).ok_or(NoAnswer::TooLong)?;
            page.feed(&chunk)?;
        }
        Ok(page.end()?)
    }
}

impl From<reqwest::Error> for NoAnswer {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::TooSlow;
        }
        let error = error.without_url();
        let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
        Self::Unreachable(chain.map(ToString::to_string).collect::<Vec<_>>().join(": "))
    }
}

/// The bearer token: the one that is set, else that of the pod's service account.
#[derive(Clone)]
pub(super) struct Token {
    set: Option<HeaderValue>,
    file: PathBuf,
}

impl Token {
    /// `set` is `EPP_METRIC_READER_BEARER_TOKEN`. One that no header can carry is warned of, and none is sent.
    pub(super) fn new(set: Option<&str>) -> Self {
        let header = set.and_then(bearer);
        if set.is_some() && header.is_none() {
            tracing::warn!(
                "EPP_METRIC_READER_BEARER_TOKEN holds what no HTTP header can carry: this pod's own token is sent"
            );
        }
        Self { set: header, file: OWN_TOKEN.into() }
    }

    /// Keeps `shown` up to date. Never ends.
    pub(super) async fn keep(&self, shown: &watch::Sender<Option<HeaderValue>>) {
        let mut ticks = tokio::time::interval(LOOK_AT_TOKEN);
        loop {
            ticks.tick().await;
            // What cannot be read now stays as it was: outside a cluster there is none.
            if let Some(token) = self.read().await {
                shown.send_replace(Some(token));
            }
        }
    }

    /// The token as it is now.
    pub(super) async fn read(&self) -> Option<HeaderValue> {
        if self.set.is_some() {
            return self.set.clone();
        }
        let read = tokio::time::timeout(READ_TIMEOUT, tokio::fs::read_to_string(&self.file)).await;
        bearer(read.ok()?.ok()?.trim())
    }
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| !token.is_empty())?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests;
