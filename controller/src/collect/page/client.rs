//! Requests for metrics pages of pods, bounded in time and length. Redirects are not followed.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;

use super::{InvalidPage, Page, PageReader};

/// Limit for a request with its answer. User requests wait for the decision.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);
/// Distinguishes an unreachable pod from a slow one.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Bytes. A picker's page has some 75 kilobytes for each model and tenant.
const PAGE_LIMIT: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error("the pod cannot be reached: {0}")]
    Unreachable(String),
    #[error("the pod did not answer within {} s", TIMEOUT.as_secs())]
    TooSlow,
    /// A status other than 200, such as a redirect.
    #[error(
        "the pod answered {0}; it must serve /metrics, and accept the bearer token if the controller sends one"
    )]
    Refused(StatusCode),
    #[error("the metrics page is longer than {PAGE_LIMIT} bytes")]
    TooLong,
    #[error(transparent)]
    InvalidPage(#[from] InvalidPage),
}

#[derive(Clone, Debug)]
pub(crate) struct Client(reqwest::Client);

impl Client {
    /// Verifies no certificates, because a pod's does not contain its address. Do not send secrets, and do not trust
    /// the answers with security decisions.
    ///
    /// # Errors
    /// [`reqwest::Error`].
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            // Proxies cannot reach pods.
            .no_proxy()
            .redirect(Policy::none())
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(0)
            // Without verification no roots are needed.
            .tls_certs_only([])
            .tls_danger_accept_invalid_certs(true)
            .build()?;
        Ok(Self(http))
    }

    /// Reads the page at `url`, with the bearer token if there is one. Adds the bytes read to `bytes`, also on an error.
    ///
    /// # Errors
    /// [`PageError`], within [`TIMEOUT`].
    pub(crate) async fn read<R: PageReader>(
        &self,
        url: &str,
        token: Option<HeaderValue>,
        reader: R,
        bytes: &mut usize,
    ) -> Result<R, PageError> {
        let mut request = self.0.get(url);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let mut answer = request.send().await?;
        if answer.status() != StatusCode::OK {
            return Err(PageError::Refused(answer.status()));
        }
        let mut page = Page::new(reader);
        let mut left = PAGE_LIMIT;
        while let Some(chunk) = answer.chunk().await? {
            *bytes += chunk.len();
            left = left.checked_sub(chunk.len()).ok_or(PageError::TooLong)?;
            page.feed(&chunk)?;
        }
        Ok(page.finish()?)
    }
}

impl From<reqwest::Error> for PageError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() && !error.is_connect() {
            return Self::TooSlow;
        }
        Self::Unreachable(wva_crds::text::causes(&error.without_url()))
    }
}
