//! Whose `APIService` it is, and that ours is opened and kept open.

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
fn only_ours_is_opened() {
    let with = |change: fn(&mut Value)| {
        let mut found = service("wva-system", "wva");
        change(&mut found);
        Some(found)
    };
    let others = |whose: &str| Verdict::SomebodyElses { whose: whose.into() };
    let rows = [
        ("absent", None, Verdict::Absent),
        ("ours", with(|_| {}), Verdict::Shut),
        ("ours, open", with(|f| f["spec"]["caBundle"] = json!(ByteString(b"ca".to_vec()))), Verdict::Open),
        (
            "ours, old bundle",
            with(|f| f["spec"]["caBundle"] = json!(ByteString(b"old".to_vec()))),
            Verdict::Shut,
        ),
        ("unverified", with(|f| f["spec"]["insecureSkipTLSVerify"] = json!(true)), Verdict::Unverified),
        ("KEDA's", Some(service("keda", "keda-metrics-apiserver")), others("keda/keda-metrics-apiserver")),
        ("same name elsewhere", Some(service("other", "wva")), others("other/wva")),
        ("local", with(|f| f["spec"]["service"] = json!(null)), others("the API server itself")),
    ];
    for (what, found, want) in rows {
        let found = found.map(|f| serde_json::from_value::<APIService>(f).unwrap());
        assert_eq!(judge(found.as_ref(), &own(), b"ca"), want, "{what}");
    }
    let ours = serde_json::from_value(service("wva-system", "wva")).unwrap();
    assert_eq!(judge(Some(&ours), &own(), b""), Verdict::NoBundle);
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
    let task = tokio::spawn(keep_open(fake.client(), own(), bundles, trust.clone(), shutdown.clone()));
    Running { fake, bundle, trust, shutdown, task }
}

impl Running {
    async fn opens_with(&self, bundle: &[u8]) {
        let bundle = json!(ByteString(bundle.to_vec()));
        self.fake.wait_until(Duration::from_secs(5), PATH, |o| o["spec"]["caBundle"] == bundle).await;
    }

    fn patches(&self) -> Vec<Request> {
        self.fake.requests().into_iter().filter(|request| request.method == "PATCH").collect()
    }
}

#[tokio::test(start_paused = true)]
async fn ours_is_opened_whenever_it_comes_and_whatever_happens_to_it() {
    let running = start();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(running.patches().is_empty());
    running.fake.put(PATH, service("wva-system", "wva"));
    running.opens_with(b"one").await;
    let patch = running.patches().remove(0);
    assert_eq!(patch.query, "&force=true&fieldManager=wva");
    assert_eq!(
        patch.body["spec"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["caBundle"],
        "nothing else is owned"
    );

    running.bundle.send_replace(b"two".to_vec());
    running.opens_with(b"two").await;
    running.fake.put(PATH, service("wva-system", "wva"));
    running.opens_with(b"two").await;
    running.fake.delete(PATH);
    running.fake.put(PATH, service("wva-system", "wva"));
    running.opens_with(b"two").await;

    let patches = running.patches().len();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(running.patches().len(), patches, "what is right is left alone");
    running.shutdown.cancel();
    running.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_is_left_alone_until_it_is_ours() {
    let running = start();
    running.fake.put(PATH, service("keda", "keda-metrics-apiserver"));
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(running.patches().is_empty());
    running.fake.put(PATH, service("wva-system", "wva"));
    running.opens_with(b"one").await;
}

#[tokio::test(start_paused = true)]
async fn what_it_carries_is_reported() {
    let running = start();
    let trusts = async |wanted: bool, what: &str| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while running.trust.last_report().is_some() != wanted {
            assert!(Instant::now() < deadline, "{what}: {:?}", running.trust.last_report());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    trusts(true, "absent: nothing to trust").await;
    running.fake.reply_to_all(Reply::Failure(403));
    trusts(false, "not to be read: nobody knows").await;
    running.fake.clear_rule();
    running.fake.put(PATH, service("keda", "keda-metrics-apiserver"));
    trusts(true, "somebody else's: nothing of ours").await;
    running.fake.put(PATH, service("wva-system", "wva"));
    running.opens_with(b"one").await;
    trusts(true, "open").await;
}

#[tokio::test(start_paused = true)]
async fn permissions_that_come_late_are_enough() {
    let running = start();
    running.fake.reply_to_all(Reply::Failure(403));
    running.fake.put(PATH, service("wva-system", "wva"));
    tokio::time::sleep(Duration::from_mins(5)).await;
    running.fake.clear_rule();
    // The watch's backoff is at its longest by now.
    tokio::time::sleep(Duration::from_mins(1)).await;
    running.opens_with(b"one").await;
}
