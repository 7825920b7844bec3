//! HTTPS proxy that requires a bearer token, in front of a plain HTTP server, like a Prometheus behind an
//! authenticating proxy.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::accept::accept;
use crate::within;

/// Above the number of connections of a metrics client.
const CONNECTIONS: usize = 256;
/// Above the size of a request line and headers.
const HEAD_BYTES: usize = 64 * 1024;
/// Time limit of a handshake and the head of a request.
const HEAD: Duration = Duration::from_secs(10);

/// The server. Drop it to stop.
pub struct ProtectedServer {
    port: u16,
    _serving: JoinSet<()>,
}

impl ProtectedServer {
    /// Serves with `tls.crt` and `tls.key` of this folder and forwards to the server at `to`, `HOST:PORT`. Checks the
    /// token of the first request of each connection.
    pub async fn start(certificate: &Path, token: &str, to: &str) -> anyhow::Result<Self> {
        let acceptor = acceptor(certificate)?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a protected server")?;
        let port = listener.local_addr()?.port();
        let (token, to): (Arc<str>, Arc<str>) = (token.into(), to.into());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            accept(listener, CONNECTIONS, |stream| {
                let (acceptor, token, to) = (acceptor.clone(), token.clone(), to.clone());
                // A client notices a lost connection by itself.
                async move { lead(stream, &acceptor, &token, &to).await.unwrap_or_default() }
            })
            .await;
        });
        Ok(Self { port, _serving: serving })
    }

    /// URL with the name `localhost`.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }
}

/// TLS with `tls.crt` and `tls.key` of this folder.
pub(crate) fn acceptor(folder: &Path) -> anyhow::Result<TlsAcceptor> {
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(folder.join("tls.crt"))?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(folder.join("tls.key"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn lead(stream: TcpStream, acceptor: &TlsAcceptor, token: &str, to: &str) -> anyhow::Result<()> {
    let (mut stream, head) = within("reading a request", HEAD, async {
        let mut stream = acceptor.accept(stream).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            ensure!(head.len() < HEAD_BYTES, "no end of the request within {HEAD_BYTES} bytes");
            head.push(stream.read_u8().await?);
        }
        anyhow::Ok((stream, head))
    })
    .await?;
    if !is_authorized(&String::from_utf8_lossy(&head), token) {
        stream
            .write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await?;
        return Ok(stream.shutdown().await?);
    }
    let mut server = TcpStream::connect(to).await?;
    server.write_all(&head).await?;
    copy_bidirectional(&mut stream, &mut server).await?;
    Ok(())
}

/// Whether the headers of a request contain the token.
fn is_authorized(head: &str, token: &str) -> bool {
    head.lines().filter_map(|line| line.split_once(':')).any(|(name, value)| {
        name.eq_ignore_ascii_case("authorization") && value.trim().strip_prefix("Bearer ") == Some(token)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorizes_only_the_right_token() {
        let head = |header: &str| format!("GET / HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n");
        assert!(is_authorized(&head("authorization: Bearer right"), "right"));
        assert!(!is_authorized(&head("Authorization: Bearer wrong"), "right"));
        assert!(!is_authorized(&head("Accept: */*"), "right"));
    }
}
