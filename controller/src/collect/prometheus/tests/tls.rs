//! The client over real TLS: whose certificates count, on which name, with which certificate of its own, and what
//! becomes of each file that changes.

use std::net::IpAddr;

use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::*;

/// A certificate authority.
struct Ca(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

/// A certificate and its key, as files have them.
struct Pair {
    cert: String,
    key: rcgen::KeyPair,
}

impl Ca {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let name = format!("CA {}", NEXT.fetch_add(1, Ordering::SeqCst));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        Self(rcgen::CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn issue(&self, name: &str) -> Pair {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        Pair { cert: params.signed_by(&key, &self.0).unwrap().pem(), key }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }
}

/// Server name and Host header of each query.
type Asked = Arc<Mutex<Vec<(Option<String>, String)>>>;

/// A Prometheus behind TLS that says whom it was asked by, and under which name.
struct Secure {
    address: SocketAddr,
    asked: Asked,
}

impl Secure {
    /// It serves a certificate of `ca` for `name`, and wants one of `clients` where there is one.
    async fn start(ca: &Ca, name: &str, clients: Option<&Ca>) -> Self {
        let pair = ca.issue(name);
        let builder =
            ServerConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
                .with_safe_default_protocol_versions()
                .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let provider = rustls::crypto::aws_lc_rs::default_provider().into();
                let roots = clients.roots().into();
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let der = rustls::pki_types::pem::PemObject::from_pem_slice(pair.cert.as_bytes()).unwrap();
        let key = PrivateKeyDer::try_from(pair.key.serialize_der()).unwrap();
        let tls =
            tokio_rustls::TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![der], key).unwrap()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::default());
        tokio::spawn(serve(listener, tls, Arc::clone(&asked)));
        Self { address, asked }
    }

    fn config(&self, host: &str) -> PrometheusConfig {
        PrometheusConfig {
            base_url: format!("https://{host}:{}", self.address.port()),
            ..PrometheusConfig::default()
        }
    }
}

async fn serve(listener: tokio::net::TcpListener, tls: tokio_rustls::TlsAcceptor, asked: Asked) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, asked) = (tls.clone(), asked.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let name = stream.get_ref().1.server_name().map(str::to_owned);
            let service = hyper_util::service::TowerToHyperService::new(Router::new().fallback(
                move |headers: HeaderMap| async move {
                    let host = headers["host"].to_str().unwrap().to_owned();
                    asked.lock().unwrap().push((name, host));
                    vector(&json!([{"metric": {}, "value": [1, "7"]}]))
                },
            ));
            let connection = hyper_util::rt::TokioIo::new(stream);
            let _ = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new())
                .serve_connection(connection, service)
                .await;
        });
    }
}

/// Whether it is answered.
async fn asks(client: &Prometheus) -> Result<(), String> {
    client.values("x").await.map(|values| assert_eq!(values, [7.0])).map_err(|e| e.to_string())
}

/// What was wrong with the files at the last look.
fn said(client: &Prometheus) -> Vec<String> {
    client.connection.files.try_lock().unwrap().said.clone()
}

#[tokio::test]
async fn only_a_certificate_of_a_trusted_ca_for_this_host_counts() {
    let (ca, folder) = (Ca::new(), Folder::new());
    folder.write("ca.crt", ca.pem());
    folder.write("other.crt", Ca::new().pem());
    let trusted = |file: &str, config: PrometheusConfig| PrometheusConfig {
        ca_path: Some(folder.path(file)),
        ..config
    };
    let server = Secure::start(&ca, "localhost", None).await;
    asks(&Prometheus::new(trusted("ca.crt", server.config("localhost"))).unwrap()).await.unwrap();
    for (config, part) in [
        (trusted("other.crt", server.config("localhost")), "UnknownIssuer"),
        (trusted("ca.crt", server.config("127.0.0.1")), "not valid for name"),
        (server.config("localhost"), "UnknownIssuer"),
        // A CA that is not there is warned of, and is no reason to trust anybody.
        (trusted("absent.crt", server.config("localhost")), "UnknownIssuer"),
    ] {
        let error = asks(&Prometheus::new(config).unwrap()).await.unwrap_err();
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    let blind = PrometheusConfig { insecure_skip_verify: true, ..server.config("127.0.0.1") };
    asks(&Prometheus::new(blind).unwrap()).await.unwrap();
}

#[tokio::test]
async fn the_server_name_is_asked_for_and_verified_in_place_of_the_host() {
    let (ca, folder) = (Ca::new(), Folder::new());
    folder.write("ca.crt", ca.pem());
    let server = Secure::start(&ca, "prometheus.monitoring.svc", None).await;
    let named = |host: &str, name: &str| {
        let (ca_path, server_name) = (Some(folder.path("ca.crt")), Some(name.to_owned()));
        Prometheus::new(PrometheusConfig { ca_path, server_name, ..server.config(host) })
    };
    for host in ["127.0.0.1", "localhost"] {
        asks(&named(host, "prometheus.monitoring.svc").unwrap()).await.unwrap();
        let (asked, shown) = server.asked.lock().unwrap().last().unwrap().clone();
        assert_eq!(asked.as_deref(), Some("prometheus.monitoring.svc"));
        assert_eq!(shown, format!("{host}:{}", server.address.port()), "the request is for the URL's host");
    }
    let error = asks(&named("localhost", "another.name").unwrap()).await.unwrap_err();
    assert!(error.contains("not valid for name") && error.contains("another.name"), "{error}");
    for bad in ["127.0.0.1", "::1", "no name", ""] {
        let error = named("localhost", bad).unwrap_err();
        assert!(matches!(&error, ClientError::ServerName { found } if found == bad), "{error}");
    }
}

#[tokio::test]
async fn a_client_certificate_is_sent_and_a_renewed_one_is_used() {
    let (ca, clients, folder) = (Ca::new(), Ca::new(), Folder::new());
    folder.write("ca.crt", ca.pem());
    let server = Secure::start(&ca, "localhost", Some(&clients)).await;
    let with = |identity: Option<(String, String)>| {
        let (ca_path, client_identity) = (Some(folder.path("ca.crt")), identity);
        Prometheus::new(PrometheusConfig { ca_path, client_identity, ..server.config("localhost") })
    };
    let files = || Some((folder.path("tls.crt"), folder.path("tls.key")));
    let put = |pair: &Pair| {
        folder.write("tls.crt", &pair.cert);
        folder.write("tls.key", pair.key.serialize_pem());
    };
    asks(&with(None).unwrap()).await.unwrap_err();
    assert!(matches!(with(files()), Err(ClientError::File { .. })), "there is none");
    put(&Ca::new().issue("wva"));
    let client = with(files()).unwrap();
    asks(&client).await.unwrap_err();
    put(&clients.issue("wva"));
    asks(&client).await.unwrap();
    // What is no pair, or gone, is not used in place of one that is good.
    folder.write("tls.key", clients.issue("wva").key.serialize_pem());
    assert!(matches!(with(files()), Err(ClientError::Identity { .. })));
    asks(&client).await.unwrap();
    std::fs::remove_file(folder.path("tls.crt")).unwrap();
    asks(&client).await.unwrap();
    let now = said(&client);
    assert!(now.len() == 1 && now[0].contains("PROMETHEUS_CLIENT_CERT_PATH"), "{now:?}");
    put(&clients.issue("wva"));
    asks(&client).await.unwrap();
    assert!(said(&client).is_empty());
}

#[tokio::test]
async fn a_ca_that_changes_is_used_and_garbage_is_not() {
    let (old, new, folder) = (Ca::new(), Ca::new(), Folder::new());
    let before = Secure::start(&old, "localhost", None).await;
    let after = Secure::start(&new, "localhost", None).await;
    let client = |server: &Secure| {
        let ca_path = Some(folder.path("ca.crt"));
        Prometheus::new(PrometheusConfig { ca_path, ..server.config("localhost") })
    };
    // It may come later than the program.
    let (to_old, to_new) = (client(&before).unwrap(), client(&after).unwrap());
    asks(&to_old).await.unwrap_err();
    folder.write("ca.crt", old.pem());
    asks(&to_old).await.unwrap();
    asks(&to_new).await.unwrap_err();
    folder.write("ca.crt", "garbage");
    asks(&to_old).await.unwrap();
    assert!(matches!(client(&before), Err(ClientError::Ca { .. })), "nobody starts with it");
    std::fs::remove_file(folder.path("ca.crt")).unwrap();
    asks(&to_old).await.unwrap();
    assert_eq!(said(&to_old).len(), 1);
    folder.write("ca.crt", new.pem());
    asks(&to_new).await.unwrap();
    asks(&to_old).await.unwrap_err();
}

#[tokio::test]
async fn files_that_take_their_time_hold_up_no_round() {
    let (ca, folder) = (Ca::new(), Folder::new());
    folder.write("ca.crt", ca.pem());
    folder.write("token", "one");
    let server = Secure::start(&ca, "localhost", None).await;
    let (ca_path, token_path) = (Some(folder.path("ca.crt")), Some(folder.path("token")));
    let config = PrometheusConfig { ca_path, token_path, ..server.config("localhost") };
    let client = Prometheus::new(config).unwrap();
    let looking = client.connection.files.clone().lock_owned().await;
    let error = asks(&client).await.unwrap_err();
    assert!(error.contains("it was not read yet"), "{error}");
    drop(looking);
    asks(&client).await.unwrap();
    let _looking = client.connection.files.clone().lock_owned().await;
    asks(&client).await.unwrap();
}

#[test]
fn a_host_is_an_address_or_a_name() {
    let host = |url: &str| {
        let server_name = Some("name".to_owned());
        let config =
            PrometheusConfig { base_url: url.to_owned(), server_name, ..PrometheusConfig::default() };
        connection::renamed(&config).map(|(_, host)| host)
    };
    let v6 = host("https://[::1]:9090/prometheus").unwrap();
    assert!(v6.parse::<IpAddr>().is_ok(), "{v6}");
    assert_eq!(host("https://p:9090").as_deref(), Some("p"));
    assert_eq!(host("http://p:9090"), None, "without TLS there is nothing to verify");
}
