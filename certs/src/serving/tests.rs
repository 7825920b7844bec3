//! Real TLS handshakes over loopback against the resolver.

use std::net::SocketAddr;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::CertsConfig;
use crate::set::CaSet;

const NAME: &str = "wva-webhook.wva-system.svc";
const DAY: Duration = Duration::from_hours(24);

fn ca() -> CaSet {
    CaSet::new(Ca::generate(DAY, Timestamp::now()).unwrap())
}

fn renew(serving: &ServingCert, set: &CaSet) {
    let names = CertsConfig::service_names("wva-webhook", "wva-system");
    serving.renew(&set.current, &names, DAY, Timestamp::now()).unwrap();
}

/// A TLS echo server on loopback.
async fn echo(serving: Arc<ServingCert>) -> SocketAddr {
    let acceptor = TlsAcceptor::from(Arc::new(server_config(serving, false).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let (mut reader, mut writer) = tokio::io::split(tls);
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    address
}

async fn connect(address: SocketAddr, trusted: &CaSet) -> std::io::Result<TlsStream<TcpStream>> {
    connect_with(address, trusted, NAME, &[&TLS13, &TLS12]).await
}

async fn connect_with(
    address: SocketAddr,
    trusted: &CaSet,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(&trusted.bundle(Timestamp::now())) {
        roots.add(cert.unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

async fn echoes(stream: &mut TlsStream<TcpStream>) {
    stream.write_all(b"ping").await.unwrap();
    let mut got = [0; 4];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"ping");
}

fn served(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn verifies_only_for_names_of_the_service() {
    let (serving, set) = (Arc::new(ServingCert::default()), ca());
    renew(&serving, &set);
    let address = echo(serving).await;
    let both = [&TLS13, &TLS12];
    for name in [NAME, "wva-webhook.wva-system.svc.cluster.local", "wva-webhook.wva-system", "wva-webhook"] {
        echoes(&mut connect_with(address, &set, name, &both).await.unwrap()).await;
    }
    for name in ["wva-webhook2", "wva-webhook.other.svc", "a.wva-webhook.wva-system.svc", "localhost"] {
        let error = connect_with(address, &set, name, &both).await.unwrap_err().to_string();
        assert!(error.contains("not valid for name"), "{name}: {error}");
    }
    let error = connect(address, &ca()).await.unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{error}");
}

#[tokio::test]
async fn supports_tls_12_and_13_and_http_1_1() {
    let (serving, set) = (Arc::new(ServingCert::default()), ca());
    renew(&serving, &set);
    let address = echo(serving.clone()).await;
    for version in [&TLS12, &TLS13] {
        let stream = connect_with(address, &set, NAME, &[version]).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
    }
    assert_eq!(server_config(serving, true).unwrap().alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
}

#[tokio::test]
async fn swap_affects_only_new_handshakes() {
    let (serving, old) = (Arc::new(ServingCert::default()), ca());
    renew(&serving, &old);
    let address = echo(serving.clone()).await;
    let mut before = connect(address, &old).await.unwrap();
    echoes(&mut before).await;

    let new = CaSet { previous: vec![old.current.cert().clone()], ..ca() };
    renew(&serving, &new);
    echoes(&mut before).await;
    let mut after = connect(address, &new).await.unwrap();
    echoes(&mut after).await;
    assert_ne!(served(&before), served(&after));
    assert!(connect(address, &old).await.is_err(), "the new CA signed the new certificate");
}

#[tokio::test]
async fn bundle_of_a_rotation_verifies_both_cas() {
    let (serving, old) = (Arc::new(ServingCert::default()), ca());
    let new = CaSet { previous: vec![old.current.cert().clone()], ..ca() };
    let address = echo(serving.clone()).await;
    for signer in [&old, &new] {
        renew(&serving, signer);
        echoes(&mut connect(address, &new).await.unwrap()).await;
    }
}

#[tokio::test]
async fn refuses_handshakes_without_certificate() {
    let serving = Arc::new(ServingCert::default());
    assert!(!serving.is_loaded() && serving.is_renewal_due(Timestamp::now()));
    let address = echo(serving).await;
    assert!(connect(address, &ca()).await.is_err());
}

#[test]
fn renews_between_17_30ths_and_two_thirds_of_the_life() {
    let issued: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    let after = |seconds| issued + SignedDuration::from_secs(seconds);
    for (share, want) in [(0.0, 2000), (0.5, 1850), (1.0, 1700)] {
        let off = renew_at(issued, after(3000), share).duration_since(after(want));
        assert!(off.abs() < SignedDuration::from_millis(1), "{share}: {off:?}");
    }
    let shares: Vec<f64> = (0..100).map(|_| random_share()).collect();
    assert!(shares.iter().all(|s| (0.0..1.0).contains(s)), "{shares:?}");
    assert!(shares.iter().any(|s| *s < 0.5) && shares.iter().any(|s| *s > 0.5), "{shares:?}");
}

#[test]
fn certificate_that_is_not_valid_yet_is_due() {
    let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    let ca = Ca::generate(Duration::from_hours(1000), now).unwrap();
    let serving = ServingCert::default();
    serving.renew(&ca, &["a.b.svc".to_owned()], Duration::from_hours(90), now).unwrap();
    assert!(!serving.is_renewal_due(now) && !serving.is_renewal_due(now - BACKDATED), "it is valid");
    assert!(serving.is_renewal_due(now - BACKDATED - SignedDuration::from_secs(1)), "the clock was set back");
}
