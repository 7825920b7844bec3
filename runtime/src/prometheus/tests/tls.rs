//! Tests of the client over TLS: trusted certificates, server names, client certificates, and changed files.

use std::net::{IpAddr, TcpListener};

use tokio_util::sync::CancellationToken;
use wva_fakes::TempFolder;
use wva_fakes::tls::{Ca, CertAndKey, ServerIdentity, tls_config};

use super::*;
use crate::server::{Limits, serve};

/// A Prometheus behind TLS.
struct TlsPrometheus {
    fake: FakePrometheus,
    tls: Arc<ServerIdentity>,
}

impl TlsPrometheus {
    fn start(ca: &Ca, name: &str, clients: Option<&Ca>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (fake, router) = FakePrometheus::at(address, FakeReply::series([(json!({}), 7)]));
        let (config, tls) = tls_config(ca, name, clients);
        let second = Duration::from_secs(1);
        let limits =
            Limits { handshake: second, head: second, drain: Duration::ZERO, ..Limits::new("tests", 64) };
        tokio::spawn(serve(listener, Some(config), router, limits, CancellationToken::new()));
        Self { fake, tls }
    }

    fn config(&self, host: &str) -> PrometheusConfig {
        config(&format!("https://{host}:{}", self.fake.address().port()))
    }
}

/// Makes a query and checks its answer.
async fn query(client: &Prometheus) -> Result<(), String> {
    client.values("x").await.map(|values| assert_eq!(values, [7.0])).map_err(|e| e.to_string())
}

/// Faults of the files at the last read.
fn faults(client: &Prometheus) -> Vec<String> {
    client.connection.files.try_lock().unwrap().faults.clone()
}

#[tokio::test]
async fn trusts_only_certificates_of_known_cas_for_the_host() {
    let (ca, folder) = (Ca::new(), TempFolder::new());
    folder.write("ca.crt", ca.pem());
    folder.write("other.crt", Ca::new().pem());
    let trusted = |file: &str, config: PrometheusConfig| PrometheusConfig {
        ca_path: Some(folder.path(file)),
        ..config
    };
    let server = TlsPrometheus::start(&ca, "localhost", None);
    query(&Prometheus::new(trusted("ca.crt", server.config("localhost"))).unwrap()).await.unwrap();
    folder.write("own.crt", server.tls.pem.clone());
    query(&Prometheus::new(trusted("own.crt", server.config("localhost"))).unwrap()).await.unwrap();
    for (config, part) in [
        (trusted("other.crt", server.config("localhost")), "PROMETHEUS_CA_CERT_PATH must name a file"),
        (trusted("own.crt", server.config("127.0.0.1")), "PROMETHEUS_SERVER_NAME to a name in"),
        (trusted("ca.crt", server.config("127.0.0.1")), "not valid for name"),
        (server.config("localhost"), "UnknownIssuer"),
        // A missing CA file causes a warning and does not weaken verification.
        (trusted("absent.crt", server.config("localhost")), "UnknownIssuer"),
    ] {
        let error = query(&Prometheus::new(config).unwrap()).await.unwrap_err();
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    let unverified = PrometheusConfig { insecure_skip_verify: true, ..server.config("127.0.0.1") };
    query(&Prometheus::new(unverified).unwrap()).await.unwrap();
}

#[tokio::test]
async fn requests_and_verifies_the_server_name() {
    let (ca, folder) = (Ca::new(), TempFolder::new());
    folder.write("ca.crt", ca.pem());
    let server = TlsPrometheus::start(&ca, "prometheus.monitoring.svc", None);
    let named = |host: &str, name: &str| {
        let (ca_path, server_name) = (Some(folder.path("ca.crt")), Some(name.to_owned()));
        Prometheus::new(PrometheusConfig { ca_path, server_name, ..server.config(host) })
    };
    for host in ["127.0.0.1", "localhost"] {
        query(&named(host, "prometheus.monitoring.svc").unwrap()).await.unwrap();
        let name = server.tls.names().pop().unwrap();
        assert_eq!(name.as_deref(), Some("prometheus.monitoring.svc"));
        let requested = server.fake.requests().pop().unwrap().host;
        assert_eq!(
            requested,
            format!("{host}:{}", server.fake.address().port()),
            "the request is for the URL's host"
        );
    }
    let error = query(&named("localhost", "another.name").unwrap()).await.unwrap_err();
    assert!(error.contains("not valid for name") && error.contains("another.name"), "{error}");
    for bad in ["127.0.0.1", "::1", "no name", ""] {
        let error = named("localhost", bad).unwrap_err();
        assert!(matches!(&error, ClientError::ServerName { found } if found == bad), "{error}");
    }
}

#[tokio::test]
async fn sends_the_client_certificate_and_reloads_it() {
    let (ca, clients, folder) = (Ca::new(), Ca::new(), TempFolder::new());
    folder.write("ca.crt", ca.pem());
    let server = TlsPrometheus::start(&ca, "localhost", Some(&clients));
    let with = |identity: Option<ClientIdentity>| {
        let (ca_path, client_identity) = (Some(folder.path("ca.crt")), identity);
        Prometheus::new(PrometheusConfig { ca_path, client_identity, ..server.config("localhost") })
    };
    let files = || Some(ClientIdentity { cert: folder.path("tls.crt"), key: folder.path("tls.key") });
    let put = |pair: &CertAndKey| {
        folder.write("tls.crt", pair.cert.pem());
        folder.write("tls.key", pair.key.serialize_pem());
    };
    query(&with(None).unwrap()).await.unwrap_err();
    assert!(matches!(with(files()), Err(ClientError::File { .. })), "the files do not exist");
    put(&Ca::new().issue("wva"));
    let client = with(files()).unwrap();
    query(&client).await.unwrap_err();
    put(&clients.issue("wva"));
    query(&client).await.unwrap();
    // An invalid or missing pair keeps the last valid one in use.
    folder.write("tls.key", clients.issue("wva").key.serialize_pem());
    assert!(matches!(with(files()), Err(ClientError::Identity { .. })));
    query(&client).await.unwrap();
    std::fs::remove_file(folder.path("tls.crt")).unwrap();
    query(&client).await.unwrap();
    let now = faults(&client);
    assert!(now.len() == 1 && now[0].contains("PROMETHEUS_CLIENT_CERT_PATH"), "{now:?}");
    put(&clients.issue("wva"));
    query(&client).await.unwrap();
    assert!(faults(&client).is_empty());
}

#[tokio::test]
async fn reloads_a_changed_ca_but_not_garbage() {
    let (old, new, folder) = (Ca::new(), Ca::new(), TempFolder::new());
    let before = TlsPrometheus::start(&old, "localhost", None);
    let after = TlsPrometheus::start(&new, "localhost", None);
    let client = |server: &TlsPrometheus| {
        let ca_path = Some(folder.path("ca.crt"));
        Prometheus::new(PrometheusConfig { ca_path, ..server.config("localhost") })
    };
    // The CA file may appear after the start.
    let (to_old, to_new) = (client(&before).unwrap(), client(&after).unwrap());
    query(&to_old).await.unwrap_err();
    folder.write("ca.crt", old.pem());
    query(&to_old).await.unwrap();
    query(&to_new).await.unwrap_err();
    folder.write("ca.crt", "garbage");
    query(&to_old).await.unwrap();
    assert!(matches!(client(&before), Err(ClientError::Ca { .. })), "a new client fails");
    std::fs::remove_file(folder.path("ca.crt")).unwrap();
    query(&to_old).await.unwrap();
    assert_eq!(faults(&to_old).len(), 1);
    folder.write("ca.crt", new.pem());
    query(&to_new).await.unwrap();
    query(&to_old).await.unwrap_err();
}

#[tokio::test]
async fn sends_the_token_and_reads_a_rotated_one() {
    let (ca, folder) = (Ca::new(), TempFolder::new());
    folder.write("ca.crt", ca.pem());
    let server = TlsPrometheus::start(&ca, "localhost", None);
    let ca_path = Some(folder.path("ca.crt"));
    let config = PrometheusConfig { ca_path, ..server.config("localhost") };
    let token_path = Some(folder.path("token"));
    let client = Prometheus::new(PrometheusConfig { token_path, ..config.clone() }).unwrap();
    let missing = client.values("x").await.unwrap_err();
    assert!(matches!(missing, QueryError::Token { .. }), "{missing}");
    assert!(missing.to_string().contains("PROMETHEUS_TOKEN_PATH"), "{missing}");
    for token in ["one", "two"] {
        folder.write("token", format!("{token}\n"));
        client.values("up{a=\"b\"}").await.unwrap();
    }
    // An invalid or missing token file keeps the last valid token in use.
    for bad in ["", "a b", "a\nb"] {
        folder.write("token", bad);
        client.values("x").await.unwrap();
    }
    std::fs::remove_file(folder.path("token")).unwrap();
    client.values("x").await.unwrap();
    let given = PrometheusConfig { bearer_token: Some("given".into()), ..config };
    Prometheus::new(given).unwrap().values("x").await.unwrap();
    let requests = server.fake.requests();
    let tokens: Vec<_> = requests.iter().map(|request| request.authorization.as_deref().unwrap()).collect();
    let two = "Bearer two";
    assert_eq!(tokens, ["Bearer one", two, two, two, two, two, "Bearer given"]);
    assert_eq!(requests[0].expression, "up{a=\"b\"}");
}

#[tokio::test]
async fn slow_files_do_not_delay_a_round() {
    let (ca, folder) = (Ca::new(), TempFolder::new());
    folder.write("ca.crt", ca.pem());
    folder.write("token", "one");
    let server = TlsPrometheus::start(&ca, "localhost", None);
    let (ca_path, token_path) = (Some(folder.path("ca.crt")), Some(folder.path("token")));
    let config = PrometheusConfig { ca_path, token_path, ..server.config("localhost") };
    let client = Prometheus::new(config).unwrap();
    let reading = client.connection.files.clone().lock_owned().await;
    let error = query(&client).await.unwrap_err();
    assert!(error.contains("not read yet"), "{error}");
    drop(reading);
    query(&client).await.unwrap();
    let _reading = client.connection.files.clone().lock_owned().await;
    query(&client).await.unwrap();
}

#[test]
fn reads_the_host_as_address_or_name() {
    let host = |url: &str| {
        let server_name = Some("name".to_owned());
        let config = PrometheusConfig { server_name, ..config(url) };
        connection::ServerName::from_config(&config).map(|server_name| server_name.host)
    };
    let v6 = host("https://[::1]:9090/prometheus").unwrap();
    assert!(v6.parse::<IpAddr>().is_ok(), "{v6}");
    assert_eq!(host("https://p:9090").as_deref(), Some("p"));
    assert_eq!(host("http://p:9090"), None, "without TLS there is nothing to verify");
}
