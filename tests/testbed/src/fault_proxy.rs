//! A proxy in front of Prometheus: bytes go through, or an answer of its own is given in place of Prometheus's. For
//! outages that a real Prometheus cannot be told to have.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the proxy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    /// Everything goes through. A Prometheus that does not listen ends the connection.
    Open,
    /// Every request is answered with 503.
    Unavailable,
    /// Every query is answered with an empty vector.
    Empty,
    /// Requests are taken and never answered.
    Hung,
    /// Everything goes through, and every answer carries this warning as well: the fake of a query layer that lost a
    /// store.
    Warns(&'static str),
}

/// A proxy; dropping it closes it.
pub struct FaultProxy {
    address: SocketAddr,
    mode: Arc<watch::Sender<ProxyMode>>,
    _serving: JoinSet<()>,
}

impl FaultProxy {
    /// Opens a proxy to the server at `to`, `HOST:PORT`.
    pub async fn open(to: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the proxy")?;
        let address = listener.local_addr()?;
        let mode = Arc::new(watch::Sender::new(ProxyMode::Open));
        let (to, modes) = (to.to_owned(), mode.subscribe());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A connection lives as long as the mode it began in.
                let (to, mut modes) = (to.clone(), modes.clone());
                let mode = *modes.borrow_and_update();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = modes.changed() => {}
                        _ = pass(stream, &to, mode) => {}
                    }
                });
            }
        });
        Ok(Self { address, mode, _serving: serving })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it does from now on; connections end that began before.
    pub fn set(&self, mode: ProxyMode) {
        self.mode.send_replace(mode);
    }
}

async fn pass(mut stream: TcpStream, to: &str, mode: ProxyMode) -> std::io::Result<()> {
    let answer = match mode {
        ProxyMode::Open => {
            let mut server = TcpStream::connect(to).await?;
            tokio::io::copy_bidirectional(&mut stream, &mut server).await?;
            return Ok(());
        }
        ProxyMode::Hung => return std::future::pending().await,
        ProxyMode::Unavailable => http("503 Service Unavailable", "down for maintenance"),
        ProxyMode::Empty => {
            http("200 OK", r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#)
        }
        ProxyMode::Warns(warning) => {
            let request = request(&mut stream).await?;
            http("200 OK", &warned(to, &request, warning).await?)
        }
    };
    if !matches!(mode, ProxyMode::Warns(_)) {
        request(&mut stream).await?;
    }
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads a request to its end: the client would take an answer that comes before it for a broken connection.
async fn request(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
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

/// What the server at `to` answers to a request, with a warning.
async fn warned(to: &str, request: &[u8], warning: &str) -> std::io::Result<String> {
    // The answer to an older client comes in one piece and ends with the connection.
    let request = String::from_utf8_lossy(request).replacen("HTTP/1.1", "HTTP/1.0", 1);
    let mut server = TcpStream::connect(to).await?;
    server.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let begin = r#"{"status":"success","#;
    Ok(body.replacen(begin, &format!("{begin}\"warnings\":[{warning:?}],"), 1))
}

fn http(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
