//! One request to the debug endpoint of a controller, at an address or through a port that is forwarded to its pod.
//! Times and sizes are bounded.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The endpoint answers from memory; a forwarded port adds a little.
const PATIENCE: Duration = Duration::from_secs(15);
/// Snapshots of the largest installs are a few megabytes.
const LIMIT: usize = 256 << 20;
/// Says which cycle an answer is of.
const CYCLE: &str = "wva-cycle";

/// Where a controller can be asked.
pub(crate) enum DebugEndpoint {
    /// An address that can be reached from here.
    Address(String),
    /// A port of a pod, through the API server.
    Pod { pods: Box<Api<Pod>>, namespace: String, name: String, port: u16 },
}

impl fmt::Display for DebugEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => f.write_str(address),
            Self::Pod { namespace, name, .. } => write!(f, "pod {namespace}/{name}"),
        }
    }
}

/// An answer, whatever its status.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The cycle it is of, where it says so.
    pub(crate) cycle: Option<String>,
    pub(crate) text: String,
}

impl Answer {
    /// Fails where the controller refused, with what it said.
    pub(crate) fn success(self) -> anyhow::Result<Self> {
        let said = self.text.trim();
        anyhow::ensure!(self.status.is_success() || said.is_empty(), "{said}");
        anyhow::ensure!(self.status.is_success(), "{}", self.status);
        Ok(self)
    }
}

impl DebugEndpoint {
    /// Asks for a path.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        let asked = async {
            match self {
                Self::Address(address) => {
                    let stream = TcpStream::connect(address)
                        .await
                        .with_context(|| format!("cannot reach {address}"))?;
                    request(stream, path).await
                }
                Self::Pod { pods, name, port, .. } => {
                    let mut forwarded = pods
                        .portforward(name, &[*port])
                        .await
                        .context("cannot forward a port: you need `create` on pods/portforward")?;
                    let stream = forwarded.take_stream(*port).context("the port was not forwarded")?;
                    let refused = forwarded.take_error(*port);
                    let answer = request(stream, path).await;
                    // What the pod's side says of the port tells more than a stream that ended.
                    match (answer, refused) {
                        (Err(error), Some(refused)) => {
                            forwarded.abort();
                            let said = refused.await;
                            Err(said.map_or(error, |said| anyhow::anyhow!("port {port}: {said}")))
                        }
                        (answer, _) => answer,
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, asked)
            .await
            .with_context(|| format!("no answer within {} s", PATIENCE.as_secs()))?
    }
}

async fn request<S>(stream: S, path: &str) -> anyhow::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new())?;
    let asked = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let cycle = response.headers().get(CYCLE).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let body = Limited::new(response.into_body(), LIMIT).collect().await;
        let body = body.map_err(|e| anyhow::anyhow!(e).context("the answer broke off"))?.to_bytes();
        let text = String::from_utf8(body.to_vec()).context("the answer is no text")?;
        anyhow::Ok(Answer { status, cycle, text })
    };
    tokio::pin!(asked);
    tokio::select! {
        answer = &mut asked => answer,
        ended = connection => {
            // It may have ended with the answer, as those of a process that is told to end do.
            let answer = asked.await;
            if answer.is_err() {
                ended?;
            }
            answer.context("the connection ended before the answer")
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What comes of an answer after which the connection is closed.
    async fn told(answer: &'static str) -> anyhow::Result<Answer> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = DebugEndpoint::Address(listener.local_addr()?.to_string());
        let serve = async {
            let (mut stream, _) = listener.accept().await?;
            let read = stream.read(&mut [0; 1024]).await?;
            anyhow::ensure!(read > 0, "no request");
            stream.write_all(answer.as_bytes()).await?;
            Ok(stream.shutdown().await?)
        };
        let (served, answer) = tokio::join!(serve, endpoint.get("/explain"));
        served?;
        answer
    }

    #[tokio::test]
    async fn an_answer_that_ends_its_connection_is_read() {
        let close = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello";
        for answer in [close, "HTTP/1.0 200 OK\r\n\r\nhello"] {
            assert_eq!(told(answer).await.unwrap().text, "hello", "{answer}");
        }
        for broken in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"] {
            assert!(told(broken).await.is_err(), "{broken}");
        }
    }
}
