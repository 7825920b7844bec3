//! One request for the metrics of one pod of an endpoint picker.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use reqwest::header::HeaderValue;
use tokio::sync::watch;

use super::page::{QueueFigures, Waiting};
use crate::page::{self, NoAnswer};

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

    /// What waits for each of these models at one pod, as its page says.
    ///
    /// # Errors
    /// [`NoAnswer`], after a second at the latest.
    pub(super) async fn ask(
        &self,
        pod: SocketAddr,
        models: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Waiting>, NoAnswer> {
        let token = self.token.borrow().clone();
        let url = format!("http://{pod}/metrics");
        Ok(self.pages.read(&url, token, QueueFigures::of(models)).await?.by_model())
    }
}

#[cfg(test)]
mod tests;
