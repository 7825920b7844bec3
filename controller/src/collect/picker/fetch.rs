//! Requests for the metrics pages of endpoint pickers.

use reqwest::header::HeaderValue;
use tokio::sync::watch;

use super::PickerKey;
use super::page::{PickerPage, QueueReader};
use super::pod::PickerPod;
use super::selection::PickerQuery;
use super::tls::Certificates;
use crate::collect::page::{self, OF_PICKER, PageError};

/// Clones share client, token and certificates.
#[derive(Clone, Debug)]
pub(super) struct PageFetcher {
    pages: page::Client,
    token: watch::Receiver<Option<HeaderValue>>,
    certificates: watch::Receiver<Certificates>,
}

impl PageFetcher {
    /// Sends this token where a query says so.
    ///
    /// # Errors
    /// [`reqwest::Error`].
    pub(super) fn new(
        token: watch::Receiver<Option<HeaderValue>>,
        certificates: watch::Receiver<Certificates>,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self { pages: page::Client::new()?, token, certificates })
    }

    /// Whether there is a token.
    pub(super) fn has_token(&self) -> bool {
        self.token.borrow().is_some()
    }

    /// `spend` gets the bytes that the page costs, and returns false to stop.
    ///
    /// # Errors
    /// [`PageError`].
    pub(super) async fn fetch(
        &self,
        pod: PickerPod,
        of: &PickerKey,
        query: &PickerQuery,
        spend: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<PickerPage, PageError> {
        let token = self.token.borrow().clone().filter(|_| query.sends_token);
        let reader = QueueReader::new(query);
        let own = if pod.tls {
            let certificates = self.certificates.borrow().clone().map_err(PageError::Certificates)?;
            let service = of.picker.service_name().map(|name| format!("{name}.{}.svc", of.namespace));
            certificates.client(pod.address, service)?
        } else {
            None
        };
        let (client, url) = own.unwrap_or_else(|| (self.pages.clone(), pod.url()));
        Ok(client.read(&url, token, reader, OF_PICKER, spend).await?.into_page())
    }
}

#[cfg(test)]
mod tests;
