//! HTTP client for a controller's debug endpoint, at an address or by port-forward.

use std::fmt;
use std::sync::Once;
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
use wva_crds::envelope::{self, CYCLE_HEADER, VERSION_HEADER};

use crate::output::{newer_writer_note, print_warning};

const TIMEOUT: Duration = Duration::from_secs(15);
/// Snapshots of large installs have a few megabytes.
const LIMIT: usize = 256 << 20;

pub(crate) enum DebugEndpoint {
    Address(String),
    /// A pod, reached by port-forward.
    Pod {
        pods: Box<Api<Pod>>,
        namespace: String,
        name: String,
        port: u16,
    },
}

impl fmt::Display for DebugEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => f.write_str(address),
            Self::Pod { namespace, name, .. } => write!(f, "pod {namespace}/{name}"),
        }
    }
}

pub(crate) struct DebugResponse {
    pub(crate) status: StatusCode,
    pub(crate) cycle: Option<String>,
    /// `None`: the controller does not tell.
    version: Option<String>,
    pub(crate) text: String,
}

impl DebugResponse {
    pub(crate) fn ensure_success(self) -> anyhow::Result<Self> {
        let text = self.text.trim();
        anyhow::ensure!(self.status.is_success() || text.is_empty(), "{text}");
        anyhow::ensure!(self.status.is_success(), "{}", self.status);
        Ok(self)
    }
}

impl DebugEndpoint {
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<DebugResponse> {
        let exchange = async {
            match self {
                Self::Address(address) => {
                    let stream = TcpStream::connect(address)
                        .await
                        .with_context(|| format!("cannot reach {address}"))?;
                    send_request(stream, path).await
                }
                Self::Pod { pods, name, port, .. } => {
                    let mut forwarded = pods
                        .portforward(name, &[*port])
                        .await
                        .context("cannot forward a port: you need `create` on pods/portforward")?;
                    let stream = forwarded.take_stream(*port).context("the port was not forwarded")?;
                    let port_error = forwarded.take_error(*port);
                    let response = send_request(stream, path).await;
                    // The error of the forwarded port says more than the end of its stream.
                    match (response, port_error) {
                        (Err(error), Some(port_error)) => {
                            forwarded.abort();
                            let cause = port_error.await;
                            Err(cause.map_or(error, |cause| anyhow::anyhow!("port {port}: {cause}")))
                        }
                        (response, _) => response,
                    }
                }
            }
        };
        let response = tokio::time::timeout(TIMEOUT, exchange)
            .await
            .with_context(|| format!("no answer within {} s", TIMEOUT.as_secs()))??;
        self.warn_if_newer(&response);
        Ok(response)
    }

    /// Once per command: `--watch` and `--record` ask for hours.
    fn warn_if_newer(&self, response: &DebugResponse) {
        static WARNED: Once = Once::new();
        if let Some(version) = response.version.as_deref().filter(|version| envelope::is_newer(version)) {
            let writer = format!("wva {version}");
            WARNED.call_once(|| print_warning(&newer_writer_note(&self.to_string(), "runs", &writer)));
        }
    }
}

async fn send_request<S>(stream: S, path: &str) -> anyhow::Result<DebugResponse>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let header = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let (cycle, version) = (header(CYCLE_HEADER), header(VERSION_HEADER));
        let body = Limited::new(response.into_body(), LIMIT).collect().await;
        let body = body.map_err(|e| anyhow::anyhow!(e).context("the answer is incomplete"))?.to_bytes();
        let text = String::from_utf8(body.to_vec()).context("the answer is not UTF-8 text")?;
        anyhow::Ok(DebugResponse { status, cycle, version, text })
    };
    tokio::pin!(exchange);
    tokio::select! {
        response = &mut exchange => response,
        closed = connection => {
            // A controller that shuts down closes the connection with the response.
            let response = exchange.await;
            if response.is_err() {
                closed?;
            }
            response.context("the connection closed before the answer")
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// The result of a request whose server sends `response` and closes the connection.
    async fn get_from(response: &'static str) -> anyhow::Result<DebugResponse> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = DebugEndpoint::Address(listener.local_addr()?.to_string());
        let serve = async {
            let (mut stream, _) = listener.accept().await?;
            let read = stream.read(&mut [0; 1024]).await?;
            anyhow::ensure!(read > 0, "no request");
            stream.write_all(response.as_bytes()).await?;
            Ok(stream.shutdown().await?)
        };
        let (served, response) = tokio::join!(serve, endpoint.get("/explain"));
        served?;
        response
    }

    #[tokio::test]
    async fn reads_a_response_that_closes_its_connection() {
        let close = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello";
        for response in [close, "HTTP/1.0 200 OK\r\n\r\nhello"] {
            assert_eq!(get_from(response).await.unwrap().text, "hello", "{response}");
        }
        for broken in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"] {
            assert!(get_from(broken).await.is_err(), "{broken}");
        }
    }
}
