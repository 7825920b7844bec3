//! Tests of pickers behind TLS: verification, names, client certificates, and renewed files.

use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;
use wva_fakes::TempFolder;
use wva_fakes::tls::{Ca, tls_config};
use wva_runtime::server::{Limits, serve};

use super::*;
use crate::collect::page::PageError;
use crate::collect::picker::PickerKey;
use crate::collect::picker::fetch::PageFetcher;
use crate::collect::picker::page::PickerPage;
use crate::collect::picker::pod::PickerPod;
use crate::collect::picker::selection::PickerQuery;

/// A picker `epp` of the namespace `ns` behind TLS.
fn picker(ca: &Ca, clients: Option<&Ca>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let page = || std::future::ready("llm_d_epp_info 1\n");
    let router = axum::Router::new().route("/metrics", axum::routing::get(page));
    listener.set_nonblocking(true).unwrap();
    let (config, _) = tls_config(ca, "epp.ns.svc", clients);
    let second = Duration::from_secs(1);
    let limits =
        Limits { handshake: second, head: second, drain: Duration::ZERO, ..Limits::new("tests", 64) };
    tokio::spawn(serve(listener, Some(config), router, limits, CancellationToken::new()));
    address
}

/// Reads the page of the picker at `address`, which an InferencePool or an entry names `name`.
async fn read(tls: &PickerTls, address: SocketAddr, name: &str) -> Result<PickerPage, PageError> {
    let (_, certificates) = watch::channel(tls.read());
    let (_, token) = watch::channel(None);
    let fetcher = PageFetcher::new(token, certificates).unwrap();
    let key = PickerKey { namespace: "ns".to_owned(), picker: name.parse().unwrap() };
    let pod = PickerPod { address, tls: true };
    fetcher.fetch(pod, &key, &PickerQuery::default(), &|_| true).await
}

#[tokio::test]
async fn verifies_the_certificate_if_there_is_a_ca() {
    let (ca, folder) = (Ca::new(), TempFolder::new());
    folder.write("ca.crt", ca.pem());
    folder.write("other.crt", Ca::new().pem());
    let with = |file: &str| PickerTls { ca: Some(folder.path(file)), ..PickerTls::default() };
    let named = |name: &str| PickerTls { server_name: Some(name.to_owned()), ..with("ca.crt") };
    let address = picker(&ca, None);
    for (what, tls, name) in [
        ("not verified", PickerTls::default(), "app=epp"),
        ("verified", with("ca.crt"), "epp"),
        ("name of the settings", named("epp.ns.svc"), "app=epp"),
    ] {
        assert!(read(&tls, address, name).await.unwrap().is_picker, "{what}");
    }
    for (tls, name, part) in [
        (with("other.crt"), "epp", "UnknownIssuer"),
        (with("ca.crt"), "backup", "not valid for name"),
        (named("other"), "epp", "not valid for name"),
        (with("ca.crt"), "app=epp", "EPP_METRIC_READER_SERVER_NAME"),
        (with("absent.crt"), "epp", "EPP_METRIC_READER_CA_CERT_PATH"),
    ] {
        let error = read(&tls, address, name).await.unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {part:?} is not in {error}");
    }
}

#[tokio::test]
async fn shows_a_client_certificate() {
    let (ca, clients, folder) = (Ca::new(), Ca::new(), TempFolder::new());
    let pair = clients.issue("wva");
    folder.write("tls.crt", pair.cert.pem());
    folder.write("tls.key", pair.key.serialize_pem());
    let address = picker(&ca, Some(&clients));
    let client = Some((folder.path("tls.crt"), folder.path("tls.key")));
    let with = PickerTls { client, ..PickerTls::default() };
    assert!(read(&with, address, "epp").await.unwrap().is_picker);
    assert!(read(&PickerTls::default(), address, "epp").await.is_err());
    let absent = PickerTls { client: Some((folder.path("no.crt"), folder.path("tls.key"))), ..with };
    let error = read(&absent, address, "epp").await.unwrap_err().to_string();
    assert!(error.contains("EPP_METRIC_READER_CLIENT_CERT_PATH"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_renewed_ca_is_read_and_an_invalid_one_is_not() {
    let folder = TempFolder::new();
    folder.write("ca.crt", "garbage");
    let tls = PickerTls { ca: Some(folder.path("ca.crt")), ..PickerTls::default() };
    let (sender, certificates) = watch::channel(Err("not read yet".to_owned()));
    let task = tokio::spawn(async move { tls.keep_read(&sender).await });
    let roots = async || {
        tokio::time::sleep(REREAD + Duration::from_secs(1)).await;
        certificates.borrow().as_ref().map(|tls| tls.roots.as_ref().map(Vec::len)).map_err(Clone::clone)
    };
    assert!(roots().await.unwrap_err().contains("EPP_METRIC_READER_CA_CERT_PATH"));
    folder.write("ca.crt", Ca::new().pem());
    assert_eq!(roots().await, Ok(Some(1)));
    folder.write("ca.crt", "garbage");
    assert_eq!(roots().await, Ok(Some(1)), "the last valid one stays");
    task.abort();
}
