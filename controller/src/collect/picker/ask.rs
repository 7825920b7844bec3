//! One request for the metrics of one pod of an endpoint picker.

use std::net::SocketAddr;

use reqwest::header::HeaderValue;
use tokio::sync::watch;

use super::page::{PickerPage, QueueReader};
use super::wanted::PickerQuery;
use crate::collect::page::{self, NoAnswer};

/// Asks pods for their metrics. Clones share connections and token.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pages: page::Client,
    token: watch::Receiver<Option<HeaderValue>>,
}

impl Asker {
    /// An asker that sends this token.
    ///
    /// # Errors
    /// Where the HTTP client cannot be made.
    pub(super) fn new(token: watch::Receiver<Option<HeaderValue>>) -> Result<Self, reqwest::Error> {
        Ok(Self { pages: page::Client::new()?, token })
    }

    /// Reads the page of one pod. Adds the bytes of the page to `bytes`.
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
        let figures = QueueReader::of(query);
        Ok(self.pages.read_counted(&url, token, figures, bytes).await?.into_page())
    }
}

#[cfg(test)]
mod tests;
