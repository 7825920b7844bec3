//! One abusive client: connects to the admission port on loopback, performs its action, and reports the outcome. It
//! ends by itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wva_testbed::handshake::connector;

/// Time limit of an answer: longer than the server's limit for a review.
const ANSWER: Duration = Duration::from_secs(8);
/// Pause between the bytes of a slow client.
const DRIP: Duration = Duration::from_millis(500);

/// Action of a client.
#[derive(Clone, Debug)]
pub(super) enum ClientAction {
    /// Sends each of these bodies, and reads the answers.
    Post { path: &'static str, content_type: &'static str, bodies: Arc<Vec<Vec<u8>>>, chunked: bool },
    /// Sends these bytes after the handshake, then one more every half second until the connection closes or time is
    /// up.
    Drip(Arc<Vec<u8>>),
    /// Sends these bytes after the handshake, then nothing.
    Hold(Arc<Vec<u8>>),
    /// Sends these bytes instead of a handshake, then nothing.
    NoHandshake(&'static [u8]),
    /// Sends these bytes and resets the connection.
    Reset(Arc<Vec<u8>>),
}

/// Address of the admission port, and the CA that clients trust.
#[derive(Clone)]
pub(super) struct WebhookAddress {
    address: SocketAddr,
    tls: TlsConnector,
}

impl WebhookAddress {
    /// The admission port on loopback; `ca` is PEM.
    pub(super) fn new(port: u16, ca: &[u8]) -> anyhow::Result<Self> {
        Ok(Self { address: SocketAddr::from(([127, 0, 0, 1], port)), tls: connector(ca, &[])? })
    }

    async fn tcp(&self) -> anyhow::Result<TcpStream> {
        Ok(timeout(ANSWER, TcpStream::connect(self.address)).await.context("no connection in time")??)
    }

    async fn connect_tls(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost")?;
        let tcp = self.tcp().await?;
        Ok(timeout(ANSWER, self.tls.connect(name, tcp)).await.context("no handshake in time")??)
    }
}

/// Performs the action, at most until `end`, and calls `record` with each outcome: a status, or what happened to the
/// connection. `ready` is called once the connection is open, so that the next client connects.
pub(super) async fn run(
    webhook: &WebhookAddress,
    action: &ClientAction,
    end: Instant,
    ready: impl FnOnce(),
    mut record: impl FnMut(String),
) {
    match action {
        ClientAction::Post { path, content_type, bodies, chunked } => {
            for body in bodies.iter() {
                let answer = post(webhook, path, content_type, body, *chunked).await;
                record(answer.map_or_else(str::to_owned, |answer| status(&answer)));
            }
            ready();
        }
        ClientAction::NoHandshake(bytes) => {
            let stream = webhook.tcp().await;
            ready();
            let Ok(mut stream) = stream else { return record("not connected".to_owned()) };
            let _ = stream.write_all(bytes).await;
            record(until_closed(&mut stream, end).await);
        }
        ClientAction::Drip(bytes) | ClientAction::Hold(bytes) => {
            let stream = webhook.connect_tls().await;
            ready();
            let Ok(mut stream) = stream else { return record("closed in the handshake".to_owned()) };
            let _ = timeout_at(end, stream.write_all(bytes)).await;
            record(match action {
                ClientAction::Drip(_) => drip_until_closed(&mut stream, end).await,
                _ => until_closed(&mut stream, end).await,
            });
        }
        ClientAction::Reset(bytes) => {
            let stream = webhook.connect_tls().await;
            ready();
            let Ok(mut stream) = stream else { return record("closed in the handshake".to_owned()) };
            let _ = timeout(ANSWER, stream.write_all(bytes)).await;
            let _ = timeout(ANSWER, stream.flush()).await;
            // With zero linger time, closing sends RST.
            let reset = stream.get_ref().0.set_zero_linger();
            record(if reset.is_ok() { "reset by us" } else { "not reset" }.to_owned());
        }
    }
}

const OPEN: &str = "still open at the end";

/// Reads until the server closes; returns the status of its answer, if any.
async fn until_closed(stream: &mut (impl tokio::io::AsyncRead + Unpin), end: Instant) -> String {
    let mut answer = [0; 64];
    match timeout_at(end, stream.read(&mut answer)).await {
        Err(_) => OPEN.to_owned(),
        Ok(Ok(read)) if read > 0 => status(&answer[..read]),
        Ok(_) => "closed by the server".to_owned(),
    }
}

/// Sends a byte every half second until the server closes the connection.
async fn drip_until_closed(stream: &mut TlsStream<TcpStream>, end: Instant) -> String {
    while Instant::now() < end {
        let _ = timeout(DRIP, stream.write_all(b"x")).await;
        let outcome = until_closed(stream, (Instant::now() + DRIP).min(end)).await;
        if outcome != OPEN {
            return outcome;
        }
    }
    OPEN.to_owned()
}

/// Sends one request; returns the answer, or what happened to the connection.
async fn post(
    webhook: &WebhookAddress,
    path: &str,
    content_type: &str,
    body: &[u8],
    chunked: bool,
) -> Result<Vec<u8>, &'static str> {
    let mut stream = webhook.connect_tls().await.map_err(|_| "closed in the handshake")?;
    let length = if chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {}", body.len())
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n{length}\r\nConnection: close\r\n\r\n"
    );
    let send = async {
        stream.write_all(head.as_bytes()).await?;
        if chunked {
            stream.write_all(format!("{:x}\r\n", body.len()).as_bytes()).await?;
        }
        stream.write_all(body).await?;
        if chunked {
            stream.write_all(b"\r\n0\r\n\r\n").await?;
        }
        stream.flush().await
    };
    // A server that rejects a body by its size may stop reading: only its answer counts.
    let _ = timeout(ANSWER, send).await;
    let mut answer = Vec::new();
    let read = timeout(ANSWER, (&mut stream).take(4 << 20).read_to_end(&mut answer)).await;
    match (read, answer.is_empty()) {
        (_, false) => Ok(answer),
        (Err(_), true) => Err("no answer in time"),
        (Ok(_), true) => Err("closed by the server"),
    }
}

fn status(answer: &[u8]) -> String {
    let code = answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.map_or_else(|| "no HTTP".to_owned(), |code| String::from_utf8_lossy(code).into_owned())
}

/// Fails unless the server reviews this object and allows it.
pub(super) async fn is_admitted(webhook: &WebhookAddress, path: &str, review: &Value) -> anyhow::Result<()> {
    let answer = post(webhook, path, "application/json", review.to_string().as_bytes(), false).await;
    let answer = String::from_utf8(answer.map_err(anyhow::Error::msg)?)?;
    ensure!(answer.contains("\"allowed\":true"), "the valid review is not admitted: {answer}");
    Ok(())
}

/// Waits for a short time.
pub(super) async fn pause() {
    sleep(Duration::from_millis(500)).await;
}
