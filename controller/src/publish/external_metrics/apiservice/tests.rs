//! Whose `APIService` it is, and that ours keeps its CA bundle.

use serde_json::Value;
use wva_fakes::{FakeApi, Reply, Request};

use super::*;

const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io";

fn own() -> OwnService {
    OwnService { namespace: "wva-system".into(), name: "wva".into() }
}

fn service(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME},
        "spec": {"group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "service": {"namespace": namespace, "name": name, "port": 6443}}
    })
}

#[test]
fn only_our_apiservice_is_registered() {
    let with = |change: fn(&mut Value)| {
        let mut found = service("wva-system", "wva");
        change(&mut found);
        Some(found)
    };
    let foreign = |service: &str| ApiServiceState::Foreign { service: service.into() };
    let rows = [
        ("absent", None, ApiServiceState::Absent),
        ("ours", with(|_| {}), ApiServiceState::Unregistered),
        (
            "ours, registered",
            with(|f| f["spec"]["caBundle"] = json!(ByteString(b"ca".to_vec()))),
            ApiServiceState::Registered { available: false },
        ),
        (
            "ours, reached",
            with(|f| {
                f["spec"]["caBundle"] = json!(ByteString(b"ca".to_vec()));
                f["status"] = json!({"conditions": [{"type": "Available", "status": "True"}]});
            }),
            ApiServiceState::Registered { available: true },
        ),
        (
            "ours, old bundle",
            with(|f| f["spec"]["caBundle"] = json!(ByteString(b"old".to_vec()))),
            ApiServiceState::Unregistered,
        ),
        (
            "unverified",
            with(|f| f["spec"]["insecureSkipTLSVerify"] = json!(true)),
            ApiServiceState::Unverified,
        ),
        ("KEDA's", Some(service("keda", "keda-metrics-apiserver")), foreign("keda/keda-metrics-apiserver")),
        ("same name elsewhere", Some(service("other", "wva")), foreign("other/wva")),
        ("local", with(|f| f["spec"]["service"] = json!(null)), foreign("the API server itself")),
    ];
    for (what, found, want) in rows {
        let found = found.map(|f| serde_json::from_value::<APIService>(f).unwrap());
        assert_eq!(classify(found.as_ref(), &own(), b"ca"), want, "{what}");
    }
    let ours = serde_json::from_value(service("wva-system", "wva")).unwrap();
    assert_eq!(classify(Some(&ours), &own(), b""), ApiServiceState::NoBundle);
}

fn trust() -> TrustReporter {
    let nowhere = std::path::Path::new("/nowhere");
    let (clock, end) = (wva_runtime::system_clock(), CancellationToken::new());
    wva_certs::Certs::from_files(nowhere, "tls.crt", "tls.key", clock, end).0.trust_reporter("apiservice")
}

struct Running {
    fake: FakeApi,
    bundle: watch::Sender<Vec<u8>>,
    trust: TrustReporter,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn start() -> Running {
    let fake = FakeApi::new();
    let (bundle, bundles) = watch::channel(b"one".to_vec());
    let shutdown = CancellationToken::new();
    let trust = trust();
    let task =
        tokio::spawn(maintain_ca_bundle(fake.client(), own(), bundles, trust.clone(), shutdown.clone()));
    Running { fake, bundle, trust, shutdown, task }
}

impl Running {
    async fn wait_for_bundle(&self, bundle: &[u8]) {
        let bundle = json!(ByteString(bundle.to_vec()));
        self.fake.wait_until(Duration::from_secs(5), PATH, |o| o["spec"]["caBundle"] == bundle).await;
    }

    fn patches(&self) -> Vec<Request> {
        self.fake.requests().into_iter().filter(|request| request.method == "PATCH").collect()
    }
}

#[tokio::test(start_paused = true)]
async fn our_apiservice_keeps_its_bundle() {
    let running = start();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(running.patches().is_empty());
    running.fake.put(PATH, service("wva-system", "wva"));
    running.wait_for_bundle(b"one").await;
    let patch = running.patches().remove(0);
    assert_eq!(patch.query, "&force=true&fieldManager=wva");
    assert_eq!(
        patch.body["spec"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["caBundle"],
        "nothing else is owned"
    );

    running.bundle.send_replace(b"two".to_vec());
    running.wait_for_bundle(b"two").await;
    running.fake.put(PATH, service("wva-system", "wva"));
    running.wait_for_bundle(b"two").await;
    running.fake.delete(PATH);
    running.fake.put(PATH, service("wva-system", "wva"));
    running.wait_for_bundle(b"two").await;

    let patches = running.patches().len();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(running.patches().len(), patches, "a correct bundle is not written again");
    running.shutdown.cancel();
    running.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_foreign_apiservice_is_left_alone_until_it_is_ours() {
    let running = start();
    running.fake.put(PATH, service("keda", "keda-metrics-apiserver"));
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(running.patches().is_empty());
    running.fake.put(PATH, service("wva-system", "wva"));
    running.wait_for_bundle(b"one").await;
}

#[tokio::test(start_paused = true)]
async fn the_trusted_bundle_is_reported() {
    let running = start();
    let trusts = async |wanted: bool, what: &str| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while running.trust.last_report().is_some() != wanted {
            assert!(Instant::now() < deadline, "{what}: {:?}", running.trust.last_report());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    trusts(true, "absent: trusts nothing").await;
    running.fake.reply_to_all(Reply::Failure(403));
    trusts(false, "unreadable: unknown").await;
    running.fake.clear_rule();
    running.fake.put(PATH, service("keda", "keda-metrics-apiserver"));
    trusts(true, "foreign: trusts nothing of ours").await;
    running.fake.put(PATH, service("wva-system", "wva"));
    running.wait_for_bundle(b"one").await;
    trusts(true, "registered").await;
}

#[tokio::test(start_paused = true)]
async fn late_permissions_are_enough() {
    let running = start();
    running.fake.reply_to_all(Reply::Failure(403));
    running.fake.put(PATH, service("wva-system", "wva"));
    tokio::time::sleep(Duration::from_mins(5)).await;
    running.fake.clear_rule();
    // The backoff of the watch is at its maximum by now.
    tokio::time::sleep(Duration::from_mins(1)).await;
    running.wait_for_bundle(b"one").await;
}
