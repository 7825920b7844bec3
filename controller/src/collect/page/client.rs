//! One request for the metrics page of one pod. Whatever answers there is bounded in time and length: it may hang, send
//! for ever, or send us elsewhere.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;

use super::{Figures, NotMetrics, Page};

/// Longest time one request may take, its answer included. What is slower than this is of no use: requests wait for
/// what follows from it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time to a connection: who takes longer is out of reach, and who has taken one and says nothing is there.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest page that is read. A picker's page has some 75 kilobytes for each model and tenant.
const PAGE_LIMIT: usize = 4 << 20;

/// Why a pod gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// No connection, or it broke off.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It took the request, and too long.
    #[error("it did not answer within {} s", TIMEOUT.as_secs())]
    TooSlow,
    /// Any status but 200, a redirect among them.
    #[error(
        "it answered {0}: the metrics page is expected at /metrics, for the bearer token of this program where it is asked with one"
    )]
    Refused(StatusCode),
    /// The page goes on and on.
    #[error("its page is longer than {PAGE_LIMIT} bytes")]
    TooLong,
    /// The page is none.
    #[error(transparent)]
    NotMetrics(#[from] NotMetrics),
}

/// Asks pods for their pages. Clones share connections.
#[derive(Clone, Debug)]
pub(crate) struct Client(reqwest::Client);

impl Client {
    /// One that believes whoever answers over HTTPS: a pod's certificate does not name its address. So nothing secret
    /// may be sent that way, nor anything follow from the answer that would be worth a lie.
    ///
    /// # Errors
    /// Where the HTTP client cannot be made.
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            // A proxy knows no way to a pod.
            .no_proxy()
            .redirect(Policy::none())
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            // No socket stays open between two requests.
            .pool_max_idle_per_host(0)
            // Nothing is verified, and an image without roots is good enough.
            .tls_certs_only([])
            .tls_danger_accept_invalid_certs(true)
            .build()?;
        Ok(Self(http))
    }

    /// Reads the page at `url`, and shows the token there.
    ///
    /// # Errors
    /// [`NoAnswer`], within [`TIMEOUT`].
    pub(crate) async fn read<F: Figures>(
        &self,
        url: &str,
        token: Option<HeaderValue>,
        figures: F,
    ) -> Result<F, NoAnswer> {
        self.read_counted(url, token, figures, &mut 0).await
    }

    /// The same; adds the bytes that it reads to `bytes`, whatever comes of it.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub(crate) async fn read_counted<F: Figures>(
        &self,
        url: &str,
        token: Option<HeaderValue>,
        figures: F,
        bytes: &mut usize,
    ) -> Result<F, NoAnswer> {
        let mut request = self.0.get(url);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let mut answer = request.send().await?;
        if answer.status() != StatusCode::OK {
            return Err(NoAnswer::Refused(answer.status()));
        }
        let mut page = Page::new(figures);
        let mut left = PAGE_LIMIT;
        while let Some(chunk) = answer.chunk().await? {
            *bytes += chunk.len();
            left = left.checked_sub(chunk.len()).ok_or(NoAnswer::TooLong)?;
            page.feed(&chunk)?;
        }
        Ok(page.end()?)
    }
}

impl From<reqwest::Error> for NoAnswer {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() && !error.is_connect() {
            return Self::TooSlow;
        }
        Self::Unreachable(wva_crds::text::causes(&error.without_url()))
    }
}
