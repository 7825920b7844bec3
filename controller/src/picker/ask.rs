//! One request for the metrics of one pod of an endpoint picker, and the bearer token that goes along.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::HeaderValue;
use tokio::sync::watch;

use super::page::{PickerPage, QueueFigures};
use super::wanted::PickerQuery;
use crate::page::{self, NoAnswer};

/// Where every pod has the token of its service account.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// How often that file is read: its content is renewed minutes before it expires.
const LOOK_AT_TOKEN: Duration = Duration::from_secs(30);
/// Longest wait for the file.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks pods for their metrics. Clones share connections and token.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pages: page::Client,
    token: watch::Receiver<Option<HeaderValue>>,
}

impl Asker {
    /// One that shows what `token` holds.
    ///
    /// # Errors
    /// Where the HTTP client cannot be made.
    pub(super) fn new(token: watch::Receiver<Option<HeaderValue>>) -> Result<Self, reqwest::Error> {
        Ok(Self { pages: page::Client::new()?, token })
    }

    /// What the page of one pod says. Adds the bytes of the page to `bytes`.
    ///
    /// # Errors
    /// [`NoAnswer`], after a second at the latest.
    pub(super) async fn ask(
        &self,
        pod: SocketAddr,
        query: &PickerQuery,
        bytes: &mut usize,
    ) -> Result<PickerPage, NoAnswer> {
        let token = self.token.borrow().clone();
        let url = format!("http://{pod}/metrics");
        let figures = QueueFigures::of(query);
        Ok(self.pages.read_counted(&url, token, figures, bytes).await?.into_page())
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
