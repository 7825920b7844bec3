//! Proxy in front of Prometheus that passes bytes through or answers by itself. It simulates outages that a real
//! Prometheus cannot produce.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::protected::acceptor;

/// Behavior of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    /// Passes everything through. If Prometheus does not listen, the connection ends.
    Open,
    /// Answers every request with 503.
    Unavailable,
    /// Answers every request with 401, like a proxy in front of Prometheus after the token has expired.
    Unauthorized,
    /// Answers every query with an empty vector.
    Empty,
    /// Accepts requests and never answers.
    Hung,
    /// Passes each answer on after this time.
    Slow(Duration),
    /// Gives pods other names in every answer: those of another cluster, with the same namespaces and models.
    OtherPods,
    /// Presents a certificate that its client does not trust. Only with [`FaultProxy::open_https`].
    WrongCertificate,
    /// Passes everything through and adds this warning to every answer, like a query layer that lost a store.
    Warns(&'static str),
}

/// A running proxy; drop it to stop.
pub struct FaultProxy {
    scheme: &'static str,
    address: SocketAddr,
    mode: Arc<watch::Sender<ProxyMode>>,
    _serving: JoinSet<()>,
}

/// Certificates of an HTTPS proxy.
#[derive(Clone)]
struct Certificates {
    trusted: TlsAcceptor,
    /// For [`ProxyMode::WrongCertificate`].
    wrong: TlsAcceptor,
}

impl FaultProxy {
    /// Starts a proxy to the server at `to`, `HOST:PORT`.
    pub async fn open(to: &str) -> anyhow::Result<Self> {
        Self::start(to, None).await
    }

    /// Starts an HTTPS proxy to the plain server at `to`, `HOST:PORT`. Both folders have a `tls.crt` and a `tls.key`
    /// for `localhost`; the client trusts the first.
    pub async fn open_https(to: &str, trusted: &Path, wrong: &Path) -> anyhow::Result<Self> {
        let certificates = Certificates { trusted: acceptor(trusted)?, wrong: acceptor(wrong)? };
        Self::start(to, Some(certificates)).await
    }

    async fn start(to: &str, certificates: Option<Certificates>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the proxy")?;
        let address = listener.local_addr()?;
        let scheme = if certificates.is_some() { "https" } else { "http" };
        let mode = Arc::new(watch::Sender::new(ProxyMode::Open));
        let (to, modes) = (to.to_owned(), mode.subscribe());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A connection lives as long as the mode it began in.
                let (to, mut modes, certificates) = (to.clone(), modes.clone(), certificates.clone());
                let mode = *modes.borrow_and_update();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = modes.changed() => {}
                        _ = lead(stream, certificates, &to, mode) => {}
                    }
                });
            }
        });
        Ok(Self { scheme, address, mode, _serving: serving })
    }

    /// URL of the proxy.
    pub fn url(&self) -> String {
        format!("{}://localhost:{}", self.scheme, self.address.port())
    }

    /// Changes the mode; open connections end.
    pub fn set(&self, mode: ProxyMode) {
        self.mode.send_replace(mode);
    }
}

async fn lead(
    stream: TcpStream,
    certificates: Option<Certificates>,
    to: &str,
    mode: ProxyMode,
) -> std::io::Result<()> {
    let Some(Certificates { trusted, wrong }) = certificates else { return pass(stream, to, mode).await };
    let acceptor = if mode == ProxyMode::WrongCertificate { wrong } else { trusted };
    pass(acceptor.accept(stream).await?, to, mode).await
}

async fn pass(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    to: &str,
    mode: ProxyMode,
) -> std::io::Result<()> {
    let answer = match mode {
        ProxyMode::Open | ProxyMode::WrongCertificate => {
            let mut server = TcpStream::connect(to).await?;
            tokio::io::copy_bidirectional(&mut stream, &mut server).await?;
            return Ok(());
        }
        ProxyMode::Hung => return std::future::pending().await,
        ProxyMode::Unavailable => {
            request(&mut stream).await?;
            http("503 Service Unavailable", "down for maintenance")
        }
        ProxyMode::Unauthorized => {
            request(&mut stream).await?;
            http("401 Unauthorized", "token expired")
        }
        ProxyMode::Empty => {
            request(&mut stream).await?;
            http("200 OK", r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#)
        }
        ProxyMode::Slow(delay) => {
            let body = answered(to, &request(&mut stream).await?).await?;
            tokio::time::sleep(delay).await;
            http("200 OK", &body)
        }
        ProxyMode::OtherPods => {
            let body = answered(to, &request(&mut stream).await?).await?;
            http("200 OK", &body.replace("\"pod\":\"", "\"pod\":\"elsewhere-"))
        }
        ProxyMode::Warns(warning) => {
            let body = answered(to, &request(&mut stream).await?).await?;
            let begin = r#"{"status":"success","#;
            http("200 OK", &body.replacen(begin, &format!("{begin}\"warnings\":[{warning:?}],"), 1))
        }
    };
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads a whole request. A client treats an answer before the end of its request as a broken connection.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut read = Vec::new();
    let mut wanted = usize::MAX;
    while read.len() < wanted {
        let mut chunk = [0; 4096];
        let n = stream.read(&mut chunk).await?;
        if n == 0 {
            break;
        }
        read.extend_from_slice(&chunk[..n]);
        let head = String::from_utf8_lossy(&read).to_ascii_lowercase();
        if let Some(end) = head.find("\r\n\r\n") {
            let length =
                head[..end].lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse().ok());
            wanted = end + 4 + length.unwrap_or(0);
        }
    }
    Ok(read)
}

/// Body of the answer of the server at `to`.
async fn answered(to: &str, request: &[u8]) -> std::io::Result<String> {
    // An HTTP/1.0 client gets the answer in one piece, and the connection ends.
    let request = String::from_utf8_lossy(request).replacen("HTTP/1.1", "HTTP/1.0", 1);
    let mut server = TcpStream::connect(to).await?;
    server.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok(body.to_owned())
}

fn http(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
