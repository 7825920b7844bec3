//! Requests for metrics pages of pods, bounded in time and length. Redirects are not followed.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, StatusCode};
use rustls::pki_types::CertificateDer;
use wva_runtime::text::causes;
use wva_runtime::tls::{ClientIdentity, TlsFault, Trust, client_config};

use super::{InvalidPage, Page, PageReader};

/// Limits of one page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLimits {
    /// Bytes of text, and of the answer.
    bytes: usize,
    /// Time limit of the request with its answer. User requests wait for the decision.
    timeout: Duration,
}

/// A picker of 1,000 tenants needs a second to write its page, of up to 37 kilobytes for each tenant and adapter.
pub(crate) const OF_PICKER: PageLimits = PageLimits { bytes: 64 << 20, timeout: Duration::from_secs(3) };
pub(crate) const OF_SERVER: PageLimits = PageLimits { bytes: 4 << 20, timeout: Duration::from_secs(1) };
/// Distinguishes an unreachable pod from a slow one.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Reading this many bytes of text costs as much as a byte of the answer. Pages of pickers are packed to a thirtieth.
const TEXT_PER_BYTE: usize = 32;
/// Bytes that are unpacked at once. They have at most four megabytes of text.
const SLICE: usize = 4 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error("the pod cannot be reached: {0}")]
    Unreachable(String),
    #[error("the pod did not answer within {} s", .0.as_secs())]
    TooSlow(Duration),
    /// A status other than 200, such as a redirect.
    #[error("the pod answered {0} instead of its metrics")]
    Refused(StatusCode),
    #[error("{0}")]
    Certificates(String),
    #[error("the metrics page is longer than {0} bytes")]
    TooLong(usize),
    #[error("the pages of this namespace cost more than their share, so this one was not read to its end")]
    OverBudget,
    #[error("the metrics page is encoded as {0:?}; only gzip is understood")]
    Encoding(String),
    #[error("the metrics page is not valid gzip: {0}")]
    InvalidGzip(String),
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
        // Without verification no roots are needed.
        let builder = builder().tls_certs_only([]).tls_danger_accept_invalid_certs(true);
        Ok(Self(builder.build()?))
    }

    /// Reads the page at `url`, packed if the pod can pack it, with the bearer token if there is one. `spend` gets the bytes
    /// that it costs as they come, also on an error, and returns false to stop.
    ///
    /// # Errors
    /// [`PageError`], within the time limit.
    pub(crate) async fn read<R: PageReader>(
        &self,
        url: &str,
        token: Option<HeaderValue>,
        reader: R,
        limits: PageLimits,
        spend: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<R, PageError> {
        let reading = self.read_page(url, token, reader, limits.bytes, spend);
        tokio::time::timeout(limits.timeout, reading).await.map_err(|_| PageError::TooSlow(limits.timeout))?
    }

    async fn read_page<R: PageReader>(
        &self,
        url: &str,
        token: Option<HeaderValue>,
        reader: R,
        limit: usize,
        spend: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<R, PageError> {
        let mut request = self.0.get(url).header(ACCEPT_ENCODING, "gzip");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let mut answer = request.send().await?;
        if answer.status() != StatusCode::OK {
            return Err(PageError::Refused(answer.status()));
        }
        let mut body = Body::new(answer.headers().get(CONTENT_ENCODING), reader, limit)?;
        let (mut wire, mut charged) = (0, 0);
        while let Some(chunk) = answer.chunk().await? {
            for slice in chunk.chunks(SLICE) {
                wire += slice.len();
                let fed = body.feed(slice);
                let cost = wire.max(body.text_bytes() / TEXT_PER_BYTE);
                let may_continue = spend(cost - charged);
                charged = cost;
                fed?;
                if wire > limit {
                    return Err(PageError::TooLong(limit));
                }
                if !may_continue {
                    return Err(PageError::OverBudget);
                }
                // Other tasks run, and the time limit counts, while a slice of a packed page unpacks to megabytes.
                tokio::task::yield_now().await;
            }
        }
        body.finish()
    }
}

/// Answer as it arrives.
enum Body<R: PageReader> {
    Plain(Text<R>),
    /// Go's server writes one member, and a proxy may write several.
    Gzip(Box<MultiGzDecoder<Text<R>>>),
}

impl<R: PageReader> Body<R> {
    fn new(encoding: Option<&HeaderValue>, reader: R, limit: usize) -> Result<Self, PageError> {
        let text = Text { page: Page::new(reader), read: 0, limit, error: None };
        let encoding = encoding.map_or(&b"identity"[..], HeaderValue::as_bytes).to_ascii_lowercase();
        match encoding.as_slice() {
            b"identity" | b"" => Ok(Self::Plain(text)),
            b"gzip" | b"x-gzip" => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(text)))),
            other => Err(PageError::Encoding(String::from_utf8_lossy(other).into_owned())),
        }
    }

    fn text_bytes(&self) -> usize {
        match self {
            Self::Plain(text) => text.read,
            Self::Gzip(decoder) => decoder.get_ref().read,
        }
    }

    fn feed(&mut self, chunk: &[u8]) -> Result<(), PageError> {
        match self {
            Self::Plain(text) => text.feed(chunk),
            Self::Gzip(decoder) => {
                // The decoder hands over its text in small pieces, so a page that unpacks to gigabytes ends at the limit.
                let written = decoder.write_all(chunk);
                written.map_err(|error| gzip_error(decoder.get_mut(), &error))
            }
        }
    }

    fn finish(self) -> Result<R, PageError> {
        let text = match self {
            Self::Plain(text) => text,
            Self::Gzip(mut decoder) => {
                let finished = decoder.try_finish();
                finished.map_err(|error| gzip_error(decoder.get_mut(), &error))?;
                decoder.finish().map_err(|error| PageError::InvalidGzip(error.to_string()))?
            }
        };
        Ok(text.page.finish()?)
    }
}

fn gzip_error<R: PageReader>(text: &mut Text<R>, error: &io::Error) -> PageError {
    text.error.take().unwrap_or_else(|| PageError::InvalidGzip(error.to_string()))
}

/// Unpacked text of an answer.
struct Text<R: PageReader> {
    page: Page<R>,
    /// Bytes.
    read: usize,
    limit: usize,
    /// Behind an error of the decoder.
    error: Option<PageError>,
}

impl<R: PageReader> Text<R> {
    fn feed(&mut self, text: &[u8]) -> Result<(), PageError> {
        self.read += text.len();
        if self.read > self.limit {
            return Err(PageError::TooLong(self.limit));
        }
        Ok(self.page.feed(text)?)
    }
}

impl<R: PageReader> Write for Text<R> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.feed(text) {
            self.error = Some(error);
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn builder() -> ClientBuilder {
    reqwest::Client::builder()
        // Proxies cannot reach pods.
        .no_proxy()
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0)
}

/// Certificates for pods that serve HTTPS.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageTls {
    /// CA of the pods. `None`: their certificates are not verified.
    pub(crate) roots: Option<Vec<CertificateDer<'static>>>,
    /// Client certificate.
    pub(crate) identity: Option<ClientIdentity>,
    /// Name in the certificates.
    pub(crate) server_name: Option<String>,
}

impl PageTls {
    /// Client and URL of the metrics of one pod; `None` without certificates: [`Client::new`] is enough. `service`: name in
    /// its certificate, if the settings have none.
    ///
    /// # Errors
    /// [`PageError::Certificates`].
    pub(crate) fn client(
        &self,
        pod: SocketAddr,
        service: Option<String>,
    ) -> Result<Option<(Client, String)>, PageError> {
        if self.roots.is_none() && self.identity.is_none() {
            return Ok(None);
        }
        let (mut builder, mut url) = (builder(), format!("https://{pod}/metrics"));
        let trust = match &self.roots {
            Some(roots) => {
                let name = self.server_name.clone().or(service).ok_or_else(|| {
                    PageError::Certificates(
                        "the name in the picker's certificate is unknown; set EPP_METRIC_READER_SERVER_NAME"
                            .to_owned(),
                    )
                })?;
                url = format!("https://{name}:{}/metrics", pod.port());
                builder = builder.resolve(&name, pod);
                Trust::Only(roots.clone())
            }
            None => Trust::Any,
        };
        let tls = client_config(trust, self.identity.clone());
        let tls = tls.map_err(|error| PageError::Certificates(causes(&error)))?;
        let client = builder.tls_backend_preconfigured(tls).build();
        let client = client.map_err(|error| PageError::Certificates(causes(&error)))?;
        Ok(Some((Client(client), url)))
    }
}

impl From<reqwest::Error> for PageError {
    fn from(error: reqwest::Error) -> Self {
        let remedy = match TlsFault::of(&error) {
            None => "",
            Some(TlsFault::UnknownIssuer) => {
                "; EPP_METRIC_READER_CA_CERT_PATH must name a file with the CA of its certificate, or with that certificate \
                 itself"
            }
            Some(TlsFault::OtherName(_)) => {
                "; set EPP_METRIC_READER_SERVER_NAME to the name in its certificate"
            }
            Some(TlsFault::Dates | TlsFault::Certificate) => "; renew its certificate",
            Some(TlsFault::NotTrustedByPeer | TlsFault::CertificateRequired) => {
                "; set EPP_METRIC_READER_CLIENT_CERT_PATH and EPP_METRIC_READER_CLIENT_KEY_PATH to a certificate that it \
                 trusts"
            }
            Some(TlsFault::NotTls) => "; its metrics port does not speak TLS",
            Some(TlsFault::Incompatible) => "; it has to offer TLS 1.2 or 1.3",
        };
        Self::Unreachable(format!("{}{remedy}", causes(&error.without_url())))
    }
}
