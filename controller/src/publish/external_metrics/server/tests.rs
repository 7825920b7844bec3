//! The API over TLS on loopback, with a fake API server for reviews.

use std::net::SocketAddr;

use kube::core::DynamicObject;
use kube::runtime::watcher;
use reqwest::{Certificate, Client, Identity, StatusCode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wva_certs::ServingCert;
use wva_certs::ca::Ca;
use wva_certs::set::CaSet;
use wva_fakes::reviews::{ClientCa, access_reviews, reviewer};
use wva_fakes::{FakeApi, Reply};
use wva_runtime::auth::RequestHeader;
use wva_runtime::cache::Writer;

use super::*;
use crate::publish::external_metrics::values::tests::{now, va};

const HOST: &str = "wva.wva-system.svc";
const V: &str = "/apis/external.metrics.k8s.io/v1beta1";
const PROD: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/prod/wva_desired_replicas";
/// Longer than any step here takes.
const SOON: Duration = Duration::from_secs(20);
const HPA: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// Case, client, headers, code.
type Row<'a> = (&'a str, &'a Client, &'a [(&'a str, &'a str)], u16);

struct Running {
    address: SocketAddr,
    bundle: Vec<u8>,
    ca: ClientCa,
    fake: FakeApi,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<io::Result<()>>,
    writer: Writer<DynamicObject, Arc<Variant>>,
    synced: tokio::sync::watch::Sender<bool>,
}

fn start() -> Running {
    let kube_now = jiff::Timestamp::now();
    let set = CaSet::new(Ca::generate(Duration::from_hours(24), kube_now).unwrap());
    let serving = Arc::new(ServingCert::default());
    serving.renew(&set.current, &[HOST.to_owned()], Duration::from_hours(24), kube_now).unwrap();
    let fake = reviewer(&[HPA, "alice"]);
    let ca = ClientCa::generate();
    let auth = Arc::new(DelegatedAuth::new(fake.client()));
    auth.set_request_header(Some(RequestHeader::parse(&ca.config_map()).unwrap()));
    let writer = Writer::new(Variant::projection());
    let variants = writer.reader();
    let (synced, seen) = tokio::sync::watch::channel(false);
    let mut caches = SyncStatus::default();
    caches.add("watch of VariantAutoscalings", seen);
    let state = Arc::new(ExternalMetrics {
        variants,
        namespaces: None,
        synced: caches,
        auth,
        legacy: true,
        clock: Arc::new(now),
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(serve(
        listener,
        Arc::new(wva_certs::server_config_with_client_certs(serving, false).unwrap()),
        state,
        shutdown.clone(),
    ));
    Running { address, bundle: set.bundle(kube_now), ca, fake, shutdown, task, writer, synced }
}

/// Two recent targets and one that is too old.
fn synced() -> Running {
    let mut running = start();
    running.synced.send_replace(true);
    let old =
        |va: &mut Value| va["status"]["desiredOptimizedAlloc"]["lastRunTime"] = json!("2026-11-20T11:00:00Z");
    running.writer.apply(&watcher::Event::Init);
    for va in
        [va("prod", "a", |_| {}), va("prod", "b", |_| {}), va("prod", "old", old), va("dev", "d", |_| {})]
    {
        running.writer.apply(&watcher::Event::InitApply(*va));
    }
    running.writer.apply(&watcher::Event::InitDone);
    running
}

impl Running {
    fn client(&self, identity: Option<(rcgen::Certificate, rcgen::KeyPair)>) -> Client {
        let roots = Certificate::from_pem_bundle(&self.bundle).unwrap();
        let mut builder = Client::builder().no_proxy().tls_certs_only(roots).resolve(HOST, self.address);
        if let Some((cert, key)) = identity {
            let pem = format!("{}{}", cert.pem(), key.serialize_pem());
            builder = builder.identity(Identity::from_pem(pem.as_bytes()).unwrap());
        }
        builder.build().unwrap()
    }

    /// A connection without a client certificate.
    async fn connect(&self) -> TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        for cert in CertificateDer::pem_slice_iter(&self.bundle) {
            roots.add(cert.unwrap()).unwrap();
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(HOST).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
    }

    async fn get(&self, client: &Client, path: &str, headers: &[(&str, &str)]) -> (StatusCode, Value) {
        let mut request = client.get(format!("https://{HOST}:{}{path}", self.address.port()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Requests like the aggregator does for the HPA controller.
    async fn as_hpa(&self, path: &str) -> (StatusCode, Value) {
        let client = self.client(Some(self.ca.issue("front-proxy-client")));
        self.get(&client, path, &[("X-Remote-User", HPA)]).await
    }
}

#[track_caller]
fn failure(answer: &(StatusCode, Value), code: u16, reason: &str) {
    let (status, body) = answer;
    let shape = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": body["message"], "reason": reason, "code": code});
    assert_eq!((status.as_u16(), body), (code, &shape));
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
}

fn names(answer: &(StatusCode, Value)) -> Vec<&str> {
    assert_eq!(answer.0, StatusCode::OK, "{answer:?}");
    let items = answer.1["items"].as_array().unwrap();
    items.iter().map(|item| item["metricLabels"]["variant_name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn only_known_clients_are_admitted() {
    let running = synced();
    let (user, bearer) = (("X-Remote-User", HPA), |t| ("Authorization", t));
    let bare = running.client(None);
    let proxy = running.client(Some(running.ca.issue("front-proxy-client")));
    let wrong_name = running.client(Some(running.ca.issue("another")));
    let stranger = running.client(Some(ClientCa::generate().issue("front-proxy-client")));
    let rows: [Row; 11] = [
        ("nothing", &bare, &[], 401),
        ("headers without a certificate", &bare, &[user], 401),
        ("headers and a bad token", &bare, &[user, bearer("Bearer nonsense")], 401),
        ("the aggregator", &proxy, &[user], 200),
        ("the aggregator without a user", &proxy, &[], 401),
        ("wrong common name", &wrong_name, &[user], 401),
        ("another CA", &stranger, &[user], 401),
        ("a token", &bare, &[bearer("Bearer token-of-alice")], 200),
        ("a token and an unrelated certificate", &stranger, &[bearer("Bearer token-of-alice")], 200),
        ("a token does not lend itself to headers", &bare, &[user, bearer("Bearer token-of-mallory")], 403),
        ("a user who may not", &proxy, &[("X-Remote-User", "mallory")], 403),
    ];
    for (what, client, headers, code) in rows {
        for path in [PROD, V] {
            let answer = running.get(client, path, headers).await;
            assert_eq!(answer.0.as_u16(), code, "{what}, {path}: {answer:?}");
            match code {
                401 => failure(&answer, 401, "Unauthorized"),
                403 => failure(&answer, 403, "Forbidden"),
                _ => {}
            }
        }
    }
    let health = running.get(&bare, "/healthz", &[]).await;
    assert_eq!(health, (StatusCode::OK, json!("ok")));
    failure(&running.get(&bare, "/elsewhere", &[]).await, 401, "Unauthorized");
    failure(&running.as_hpa("/openapi/v2").await, 404, "NotFound");
}

#[tokio::test]
async fn values_are_recent_and_match_namespace_and_selector() {
    let running = synced();
    assert_eq!(names(&running.as_hpa(PROD).await), ["a", "b"]);
    for (query, want) in [
        ("labelSelector=variant_name%3Da%2Cexported_namespace%3Dprod", &["a"][..]),
        ("labelSelector=variant_name+in+%28b%2Cc%29", &["b"]),
        ("labelSelector=variant_name%3Dold", &[]),
        ("labelSelector=", &["a", "b"]),
        ("limit=5&timeout=10s", &["a", "b"]),
    ] {
        assert_eq!(names(&running.as_hpa(&format!("{PROD}?{query}")).await), want, "{query}");
    }
    let legacy = running.as_hpa(&format!("{V}/namespaces/prod/inferno_desired_replicas")).await;
    assert_eq!(legacy.1["items"][0]["metricName"], "inferno_desired_replicas");
    assert_eq!(names(&running.as_hpa(&format!("{V}/namespaces/empty/wva_desired_replicas")).await), [""; 0]);
    let asked = access_reviews(&running.fake);
    assert_eq!(asked[0]["user"], HPA);
    assert_eq!(asked[0]["groups"], json!(["system:authenticated"]));
    assert_eq!(asked[0]["resourceAttributes"]["verb"], "list");
    assert_eq!(asked[0]["resourceAttributes"]["namespace"], "prod");
}

#[tokio::test]
async fn errors_are_status_objects() {
    let running = synced();
    failure(&running.as_hpa(&format!("{V}/namespaces/prod/other_metric")).await, 404, "NotFound");
    failure(&running.as_hpa(&format!("{PROD}?labelSelector=a+b")).await, 400, "BadRequest");
    failure(&running.as_hpa(&format!("{PROD}?labelSelector=a&labelSelector=b")).await, 400, "BadRequest");
    failure(&running.as_hpa(&format!("{PROD}?watch=true")).await, 405, "MethodNotAllowed");
    running.fake.reply_to_all(Reply::Failure(500));
    failure(
        &running.as_hpa(&format!("{V}/namespaces/x/wva_desired_replicas")).await,
        503,
        "ServiceUnavailable",
    );
}

#[tokio::test]
async fn no_values_are_served_before_the_first_list() {
    let mut running = start();
    failure(&running.as_hpa(PROD).await, 503, "ServiceUnavailable");
    running.writer.apply(&watcher::Event::Init);
    running.writer.apply(&watcher::Event::InitDone);
    running.synced.send_replace(true);
    assert_eq!(names(&running.as_hpa(PROD).await), [""; 0]);
}

#[tokio::test]
async fn discovery_lists_both_names() {
    let running = start();
    let resource = |name| json!({"name": name, "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"]});
    let version = json!({"groupVersion": "external.metrics.k8s.io/v1beta1", "version": "v1beta1"});
    let group =
        json!({"name": "external.metrics.k8s.io", "versions": [version], "preferredVersion": version});
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "external.metrics.k8s.io/v1beta1",
        "resources": [resource("wva_desired_replicas"), resource("inferno_desired_replicas")]});
    assert_eq!(running.as_hpa(V).await, (StatusCode::OK, list));
    let mut one = group.clone();
    one["kind"] = json!("APIGroup");
    one["apiVersion"] = json!("v1");
    assert_eq!(running.as_hpa("/apis/external.metrics.k8s.io").await, (StatusCode::OK, one));
    let groups = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]});
    assert_eq!(running.as_hpa("/apis").await, (StatusCode::OK, groups));
    assert_eq!(access_reviews(&running.fake)[0]["nonResourceAttributes"], json!({"verb": "get", "path": V}));
}

/// Sends a request of alice on an open connection. Returns the status line.
async fn ask_over(stream: &mut TlsStream<TcpStream>, path: &str) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {HOST}\r\nauthorization: Bearer token-of-alice\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 16 * 1024];
    let read = timeout(SOON, stream.read(&mut answer)).await.unwrap().unwrap();
    String::from_utf8_lossy(&answer[..read]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn unauthenticated_connections_block_no_client() {
    let running = synced();
    let mut kept = running.connect().await;
    assert_eq!(ask_over(&mut kept, PROD).await, "HTTP/1.1 200 OK");
    let mut stranger = running.connect().await;
    assert_eq!(ask_over(&mut stranger, "/healthz").await, "HTTP/1.1 200 OK");
    let mut idle = Vec::new();
    for _ in 0..2 * LIMITS.connections {
        idle.push(TcpStream::connect(running.address).await.unwrap());
    }
    assert_eq!(names(&timeout(SOON, running.as_hpa(PROD)).await.unwrap()), ["a", "b"]);
    let ended = timeout(SOON, stranger.read(&mut [0])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "a connection that only used /healthz is not kept: {ended:?}");
    assert_eq!(ask_over(&mut kept, PROD).await, "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn shutdown_ends_idle_connections() {
    let running = synced();
    let client = running.client(None);
    let answer = running.get(&client, "/readyz", &[]).await;
    assert_eq!(answer.0, StatusCode::OK);
    running.shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(5), running.task)
        .await
        .expect("still serving")
        .unwrap()
        .unwrap();
}
