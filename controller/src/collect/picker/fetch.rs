//! Requests for the metrics pages of endpoint pickers.

use std::net::SocketAddr;

use reqwest::header::HeaderValue;
use tokio::sync::watch;

use super::page::{PickerPage, QueueReader};
use super::selection::PickerQuery;
use crate::collect::page::{self, PageError};

/// Clones share client and token.
#[derive(Clone, Debug)]
pub(super) struct PageFetcher {
    pages: page::Client,
    token: watch::Receiver<Option<HeaderValue>>,
}

impl PageFetcher {
    /// Sends this token where a query says so.
    ///
    /// # Errors
    /// [`reqwest::Error`].
    pub(super) fn new(token: watch::Receiver<Option<HeaderValue>>) -> Result<Self, reqwest::Error> {
        Ok(Self { pages: page::Client::new()?, token })
    }

    /// Adds the size of the page to `bytes`.
    ///
    /// # Errors
    /// [`PageError`], within a second.
    pub(super) async fn fetch(
        &self,
        pod: SocketAddr,
        query: &PickerQuery,
        bytes: &mut usize,
    ) -> Result<PickerPage, PageError> {
        let token = self.token.borrow().clone().filter(|_| query.sends_token);
        let url = format!("http://{pod}/metrics");
        let reader = QueueReader::new(query);
        Ok(self.pages.read(&url, token, reader, bytes).await?.into_page())
    }
}

#[cfg(test)]
mod tests;
