//! A server on a loopback port with a self-signed certificate, a fake cluster, and a client that can misbehave.
#![expect(clippy::unwrap_used, unreachable_pub, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus::Registry;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wva_objects::Target;
use wva_rules::{InstancePolicy, MapRole, OtherVariant};
use wva_webhook::{
    ClusterFacts, Limits, Settings, ShutdownSignals, State, TargetReaders, TargetState, VALIDATE_PATH, serve,
};

pub const NAME: &str = "wva-webhook.wva.svc";

/// Fake cluster. Namespace `ns` belongs to instance `a`, variant `other` targets `taken`, and target `absent` does not
/// exist. The global saturation map sets `kvSpareTrigger`. No autoscaler reads the metric in namespace `unread`.
#[derive(Clone, Default)]
pub struct Cluster {
    /// Namespaces whose ConfigMaps were judged.
    judged: Arc<Mutex<Vec<String>>>,
    /// A test locks it to block the reviews of ConfigMaps of namespace `slow`.
    pub slow: Arc<tokio::sync::Mutex<()>>,
}

impl Cluster {
    /// Namespaces whose ConfigMaps were judged, in order.
    pub fn judged(&self) -> Vec<String> {
        self.judged.lock().unwrap().clone()
    }
}

impl ClusterFacts for Cluster {
    fn is_synced(&self) -> bool {
        true
    }

    fn variants_with_target(&self, _: &str, _: &Target) -> Vec<OtherVariant> {
        let target =
            Target { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "taken".into() };
        vec![OtherVariant { name: "other".into(), instance: Some("a".into()), target, created: None }]
    }

    fn target(&self, _: &str, target: &Target) -> Option<TargetState> {
        assert_ne!(target.name, "panic", "a panic on purpose");
        let present = TargetState::Present { is_accelerator_known: false };
        Some(if target.name == "absent" { TargetState::Absent } else { present })
    }

    fn reads_local_maps(&self, namespace: &str) -> Option<bool> {
        self.judged.lock().unwrap().push(namespace.to_owned());
        if namespace == "slow" {
            drop(self.slow.blocking_lock());
        }
        None
    }

    fn metric_readers(&self, namespace: &str, _: &Target) -> TargetReaders {
        TargetReaders { readers: Vec::new(), is_complete: namespace == "unread" }
    }

    fn is_namespace_owned(&self, namespace: &str) -> bool {
        namespace == "ns"
    }

    fn global_map(&self, role: MapRole) -> Option<Value> {
        (role == MapRole::Saturation).then(|| json!({"data": {"default": "kvSpareTrigger: 0.3"}}))
    }
}

pub struct Server {
    pub addr: SocketAddr,
    pub registry: Registry,
    pub end: ShutdownSignals,
    pub ended: JoinHandle<std::io::Result<()>>,
    pub cluster: Cluster,
    tls: TlsConnector,
}

impl Server {
    pub fn start(limits: Limits) -> Self {
        let generated = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(generated.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![generated.cert.der().clone()], key)
            .unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(generated.cert.der().clone()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let registry = Registry::new();
        let settings = Settings::new(Some("a".into()), InstancePolicy::Inject);
        let cluster = Cluster::default();
        let state = Arc::new(State::new(settings, Arc::new(cluster.clone()), None, &registry).unwrap());
        let end = ShutdownSignals::default();
        let ended = tokio::spawn(serve(listener, Arc::new(tls), state, end.clone(), limits));
        Self { addr, registry, end, ended, cluster, tls: TlsConnector::from(Arc::new(client)) }
    }

    pub async fn connect(&self) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(self.addr).await.unwrap();
        self.tls.connect(ServerName::try_from(NAME).unwrap(), tcp).await.unwrap()
    }

    /// Sends one request on a new connection; returns status and body.
    pub async fn post(&self, path: &str, body: &[u8]) -> (u16, String) {
        let mut stream = self.connect().await;
        let _ = stream.write_all(&head(path, body.len(), "close")).await;
        // May fail: the server does not read a body that it refuses by size.
        let _ = stream.write_all(body).await;
        read_to_end(&mut stream).await
    }

    /// Sends a review of `tests/data`; returns the response.
    pub async fn review(&self, path: &str, file: &str) -> Value {
        let file = format!("{}/tests/data/{file}.json", env!("CARGO_MANIFEST_DIR"));
        let (status, body) = self.post(path, &std::fs::read(file).unwrap()).await;
        assert_eq!(status, 200, "{body}");
        let review: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(review["kind"], "AdmissionReview");
        review["response"].clone()
    }
}

/// Longer than any answer takes, shorter than any disabled time-out.
pub const SOON: Duration = Duration::from_secs(20);

pub fn accepted() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/accepted.json")).unwrap()
}

/// Sends one review on a connection that stays open.
pub async fn send_review(stream: &mut TlsStream<TcpStream>) {
    let body = accepted();
    stream.write_all(&[head(VALIDATE_PATH, body.len(), "keep-alive"), body].concat()).await.unwrap();
    let mut answer = vec![0; 4096];
    let read = tokio::time::timeout(SOON, stream.read(&mut answer)).await.unwrap().unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer[..read]));
}

pub fn head(path: &str, length: usize, connection: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\nConnection: {connection}\r\n\r\n"
    )
    .into_bytes()
}

/// Reads until the server closes; status 0 without an answer.
pub async fn read_to_end(stream: &mut TlsStream<TcpStream>) -> (u16, String) {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.get(9..12).map_or(0, |s| s.parse().unwrap());
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}
