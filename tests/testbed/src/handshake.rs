//! TLS handshake with a replica, verified as kube-apiserver does: against a `caBundle`, for the name of the Service.
//! It sends no request.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::within;

const LIMIT: Duration = Duration::from_secs(5);

/// Makes a handshake with the server on `port` of loopback.
pub async fn handshake(port: u16, name: &str, bundle: &[u8]) -> anyhow::Result<()> {
    tls(port, name, bundle, &[]).await.map(drop)
}

/// The same with these ALPN protocols; returns the open connection.
pub async fn tls(
    port: u16,
    name: &str,
    bundle: &[u8],
    protocols: &[&str],
) -> anyhow::Result<TlsStream<TcpStream>> {
    let connector = connector(bundle, protocols)?;
    let name = ServerName::try_from(name.to_owned()).context("no name of a Service")?;
    within("a handshake", LIMIT, async {
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        anyhow::Ok(connector.connect(name, tcp).await?)
    })
    .await
}

/// TLS client that trusts only the CAs of a PEM bundle and offers these protocols.
pub fn connector(bundle: &[u8], protocols: &[&str]) -> anyhow::Result<TlsConnector> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate.context("a caBundle is not PEM")?).context("a caBundle holds no CA")?;
    }
    ensure!(!roots.is_empty(), "a caBundle is empty");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}
