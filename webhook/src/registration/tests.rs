//! The opening against a fake API server: it opens only when a review would be answered, only what exists,
//! and again after every drift.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use wva_fakes::{FakeApi, Reply, Request};
use wva_rules::{InstancePolicy, OtherVariant, Target};

use super::*;
use crate::{ClusterFacts, Settings, State, TargetState, serve};

const NAME: &str = "wva-webhook.wva.svc";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/wva";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/wva";
const SOON: Duration = Duration::from_secs(20);

/// A fake API server with both configurations, and a Service that has one endpoint.
fn api(items: &Value) -> FakeApi {
    let fake = FakeApi::new();
    fake.put(MUTATING, items["items"][0].clone());
    fake.put(VALIDATING, items["items"][1].clone());
    put_service(&fake, "ClusterIP", Some(true));
    fake
}

fn put_service(fake: &FakeApi, kind: &str, ready: Option<bool>) {
    let metadata = json!({"name": "wva-webhook"});
    fake.put(
        "/api/v1/namespaces/wva/services/wva-webhook",
        json!({"metadata": metadata, "spec": {"type": kind}}),
    );
    let endpoint = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}});
    let slice = json!({"metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint]});
    fake.put("/apis/discovery.k8s.io/v1/namespaces/wva/endpointslices/wva-webhook", slice);
}

fn patches(fake: &FakeApi) -> Vec<Request> {
    fake.requests().into_iter().filter(|request| request.method == "PATCH").collect()
}

struct Nothing;

impl ClusterFacts for Nothing {
    fn synced(&self) -> bool {
        true
    }
    fn others(&self, _: &str, _: &Target) -> Vec<OtherVariant> {
        Vec::new()
    }
    fn target(&self, _: &str, _: &Target) -> Option<TargetState> {
        None
    }
    fn namespace_owned(&self, _: &str) -> bool {
        false
    }
}

/// A listener whose certificate is its own CA, and what answers on it once asked to.
struct Webhook {
    listener: TcpListener,
    pem: Vec<u8>,
    tls: Arc<rustls::ServerConfig>,
}

impl Webhook {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { listener, pem: made.cert.pem().into_bytes(), tls: Arc::new(tls) }
    }

    fn probe(&self) -> Probe {
        Probe { addr: self.listener.local_addr().unwrap(), server_name: NAME.to_owned() }
    }

    /// Its certificate, and how it is probed.
    fn started() -> (Vec<u8>, Probe) {
        let webhook = Self::new();
        let started = (webhook.pem.clone(), webhook.probe());
        webhook.start();
        started
    }

    fn start(self) {
        let settings = Settings::of(None, InstancePolicy::Inject);
        let state = State::new(settings, Arc::new(Nothing), None, &prometheus::Registry::new()).unwrap();
        tokio::spawn(serve(self.listener, self.tls, Arc::new(state), crate::End::default()));
    }
}

fn trust() -> Trust {
    let (clock, end) = (wva_runtime::system_clock(), CancellationToken::new());
    let nowhere = std::path::Path::new("/nowhere");
    wva_certs::Certs::from_files(nowhere, "tls.crt", "tls.key", clock, end).0.trust("webhooks")
}

fn door() -> Door<'static> {
    Door {
        name: "wva",
        service: "wva-webhook",
        namespace: "wva",
        instance: None,
        policy: InstancePolicy::Inject,
        watch_namespace: None,
        variants: FailurePolicy::Fail,
        config_maps: FailurePolicy::Ignore,
        main_config_map: "wva-config",
        entry_config_maps: &["wva-saturation-scaling-config", "wva-model-scale-to-zero-config"],
    }
}

fn config() -> Config {
    let service = ServiceRef { namespace: "wva".into(), name: "wva-webhook".into() };
    Config { mutating: "wva".into(), validating: "wva".into(), service }
}

fn entry<'v>(object: &'v Value, name: &str) -> &'v Value {
    object["webhooks"].as_array().unwrap().iter().find(|w| w["name"] == name).unwrap()
}

/// Waits until the API server sends reviews of variants to the server with this certificate.
async fn opened(fake: &FakeApi, path: &str, pem: &[u8]) {
    let name = if path == MUTATING { "mutate.va.llmd.ai" } else { "validate.va.llmd.ai" };
    let open = |object: &Value| {
        let entry = entry(object, name);
        entry["rules"][0]["resources"] == json!(["variantautoscalings"])
            && entry["clientConfig"]["caBundle"] == json!(ByteString(pem.to_vec()))
    };
    fake.wait_until(SOON, path, open).await;
}

#[tokio::test]
async fn opens_what_exists_and_repairs_drift() {
    let mut items = render(&door());
    // Somebody's own entry in the same object is none of ours.
    let foreign = json!({"name": "foreign.example.com", "rules": [], "clientConfig": {}});
    items["items"][1]["webhooks"].as_array_mut().unwrap().push(foreign.clone());
    let fake = api(&items);
    let (pem, probe) = Webhook::started();
    let (bundle, bundles) = watch::channel(pem.clone());
    let shutdown = CancellationToken::new();
    let trust = trust();
    let running = tokio::spawn(run(fake.client(), config(), bundles, probe, trust.clone(), shutdown.clone()));

    opened(&fake, MUTATING, &pem).await;
    opened(&fake, VALIDATING, &pem).await;
    let object = fake.object(VALIDATING);
    assert_eq!(entry(&object, "foreign.example.com"), &foreign);
    assert_eq!(entry(&object, "entries.configmap.llmd.ai")["rules"][0]["resources"], json!(["configmaps"]));
    assert_patches_own_two_fields(&fake);

    let carried = |pem: &[u8]| CertificateDer::pem_slice_iter(pem).map(Result::unwrap).collect::<Vec<_>>();
    until_trusted(&trust, Some(carried(&pem))).await;

    let reported_early = Arc::new(AtomicBool::default());
    let (reported, sees) = (reported_early.clone(), trust.clone());
    fake.set_rule(move |request| {
        let early = request.method == "PATCH" && sees.carried().is_some();
        reported.fetch_or(early, Ordering::SeqCst);
        None
    });
    fake.edit(VALIDATING, |o| o["webhooks"][0]["rules"] = json!([]));
    opened(&fake, VALIDATING, &pem).await;
    until_trusted(&trust, Some(carried(&pem))).await;
    assert!(!reported_early.load(Ordering::SeqCst), "what was found without the bundle is not trusted");
    for bundle in [json!("b3RoZXI="), json!(""), Value::Null] {
        fake.edit(MUTATING, |o| o["webhooks"][0]["clientConfig"]["caBundle"] = bundle);
        opened(&fake, MUTATING, &pem).await;
    }

    let both = [pem.as_slice(), Webhook::new().pem.as_slice()].concat();
    bundle.send_replace(both.clone());
    opened(&fake, MUTATING, &both).await;
    opened(&fake, VALIDATING, &both).await;
    until_trusted(&trust, Some(carried(&both))).await;

    let of_one = |watch: &Request| watch.query.contains("fieldSelector=metadata.name%3Dwva");
    assert!(fake.requests().iter().filter(|request| request.is_watch()).all(of_one));
    shutdown.cancel();
    timeout(Duration::from_secs(5), running).await.unwrap().unwrap().unwrap();
}

/// Every server-side apply so far named only the rules and the CA of entries.
fn assert_patches_own_two_fields(fake: &FakeApi) {
    for patch in patches(fake) {
        assert_eq!(patch.query, format!("&force=true&fieldManager={FIELD_MANAGER}"));
        for applied in patch.body["webhooks"].as_array().unwrap() {
            let keys: Vec<_> = applied.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["clientConfig", "name", "rules"], "only the two fields are owned");
            assert_eq!(applied["clientConfig"].as_object().unwrap().len(), 1);
        }
    }
}

/// Waits until the part reports that it carries this, or that it does not know.
async fn until_trusted(trust: &Trust, wanted: Option<Vec<CertificateDer<'static>>>) {
    let reported = async {
        while trust.carried() != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(Duration::from_secs(20), reported).await.is_ok(), "reported: {:?}", trust.carried());
}

#[tokio::test]
async fn one_that_lacks_or_is_refused_does_not_keep_the_other_shut() {
    for missing in [true, false] {
        let fake = api(&render(&door()));
        let (pem, probe) = Webhook::started();
        if missing {
            fake.delete(MUTATING);
        } else {
            fake.set_rule(|request| (request.path == MUTATING).then_some(Reply::Failure(403)));
        }
        let (_bundle, bundles) = watch::channel(pem.clone());
        let (trust, shutdown) = (trust(), CancellationToken::new());
        let running =
            tokio::spawn(run(fake.client(), config(), bundles, probe, trust.clone(), shutdown.clone()));
        for _ in 0..2 {
            opened(&fake, VALIDATING, &pem).await;
            fake.edit(VALIDATING, |o| o["webhooks"][0]["clientConfig"]["caBundle"] = Value::Null);
        }
        opened(&fake, VALIDATING, &pem).await;
        // One that does not exist trusts nobody; of one that cannot be read nobody knows whom it trusts.
        let carried = CertificateDer::pem_slice_iter(&pem).map(Result::unwrap).collect();
        until_trusted(&trust, missing.then_some(carried)).await;
        assert_eq!(fake.get(MUTATING).is_none(), missing, "only what exists is opened");
        shutdown.cancel();
        running.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn drift_is_found_without_an_event() {
    let fake = api(&render(&door()));
    let (pem, probe) = Webhook::started();
    let client = fake.client();
    let door = Object::of::<ValidatingWebhookConfiguration>(&client, Phase::Validating, "wva");
    let (carried, look) = (Carried::new(trust()), Duration::from_millis(50));
    let opener = Opener { client, service: config().service, probe, carried, look };
    let (_bundle, bundles) = watch::channel(pem.clone());
    let running = tokio::spawn(async move { opener.keep_open(&door, 1, bundles).await });
    opened(&fake, VALIDATING, &pem).await;
    fake.silence_watches();
    fake.edit(VALIDATING, |o| o["webhooks"][0]["clientConfig"]["caBundle"] = json!(""));
    opened(&fake, VALIDATING, &pem).await;
    running.abort();
}

/// One look at both configurations.
async fn ensure(
    client: &Client,
    service: &ServiceRef,
    doors: &[Object; 2],
    bundle: &[u8],
    probe: &Probe,
) -> Result<bool, Error> {
    let (client, service, probe) = (client.clone(), service.clone(), probe.clone());
    let opener = Opener { client, service, probe, carried: Carried::new(trust()), look: LOOK };
    let mut changed = false;
    for (number, door) in doors.iter().enumerate() {
        changed |= opener.ensure(door, number, bundle).await?;
    }
    Ok(changed)
}

#[tokio::test]
async fn nothing_is_opened_before_a_review_would_be_answered() {
    let fake = api(&render(&door()));
    let webhook = Webhook::new();
    let (pem, probe) = (webhook.pem.clone(), webhook.probe());
    let service = config().service;
    let client = fake.client();
    let doors = [
        Object::of::<MutatingWebhookConfiguration>(&client, Phase::Mutating, "wva"),
        Object::of::<ValidatingWebhookConfiguration>(&client, Phase::Validating, "wva"),
    ];
    assert!(matches!(ensure(&client, &service, &doors, b"", &probe).await, Err(Error::NoBundle)));
    let closed =
        Probe { addr: TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(), ..probe.clone() };
    for (probe, bundle) in [
        (&closed, pem.clone()),
        (&probe, b"no certificate".to_vec()),
        (&Probe { server_name: "not a name".into(), ..probe.clone() }, pem.clone()),
    ] {
        let refused = ensure(&client, &service, &doors, &bundle, probe).await;
        assert!(matches!(refused, Err(Error::NotAnswering { .. })), "{refused:?}");
    }
    webhook.start();
    let wrong_ca = ensure(&client, &service, &doors, &Webhook::new().pem, &probe).await.unwrap_err();
    assert!(
        matches!(wrong_ca, Error::NotAnswering { source: ProbeError::Connection(_), .. }),
        "{wrong_ca:?}"
    );
    let wrong_name = Probe { server_name: "other.wva.svc".into(), ..probe.clone() };
    assert!(ensure(&client, &service, &doors, &pem, &wrong_name).await.is_err());
    put_service(&fake, "ClusterIP", Some(false));
    let nowhere = ensure(&client, &service, &doors, &pem, &probe).await;
    assert!(matches!(nowhere, Err(Error::NoEndpoint { .. })), "{nowhere:?}");
    assert!(patches(&fake).is_empty());

    // A name has no endpoints to look at, and one that does not say whether it is ready is.
    for (kind, ready) in [("ExternalName", Some(false)), ("ClusterIP", None)] {
        put_service(&fake, kind, ready);
        assert!(service.leads_somewhere(&client).await.is_ok(), "{kind} {ready:?}");
    }
    assert!(ensure(&client, &service, &doors, &pem, &probe).await.unwrap());
    assert!(!ensure(&client, &service, &doors, &pem, &probe).await.unwrap(), "a second look changes nothing");
    assert_eq!(patches(&fake).len(), 2);
    let selected = |r: &Request| r.query.contains("labelSelector=kubernetes.io%2Fservice-name%3Dwva-webhook");
    assert_eq!(fake.count(selected), fake.count(|request| request.path.ends_with("/endpointslices")));
}

#[test]
fn a_retry_is_never_far_away() {
    assert!(CALL_TIMEOUT + LONGEST_BACKOFF <= Duration::from_secs(15));
}

#[tokio::test]
async fn the_end_of_the_certificates_is_an_error() {
    let fake = api(&render(&door()));
    let (bundle, bundles) = watch::channel(Vec::new());
    drop(bundle);
    let ended =
        run(fake.client(), config(), bundles, Webhook::new().probe(), trust(), CancellationToken::new())
            .await;
    assert!(matches!(ended, Err(Error::BundleGone)), "{ended:?}");
}

/// Names of the entries, their object selectors and their namespace selectors.
fn shape(door: &Door<'_>) -> Vec<(String, Value, Value)> {
    let list = render(door);
    let webhooks = list["items"].as_array().unwrap().iter().flat_map(|o| o["webhooks"].as_array().unwrap());
    webhooks
        .map(|w| {
            let name = w["name"].as_str().unwrap();
            assert!(w.get("rules").is_none() && w["clientConfig"].get("caBundle").is_none(), "{name}");
            assert!(w["matchConditions"].as_array().unwrap().len() == 1, "{name}");
            assert_eq!((&w["timeoutSeconds"], &w["matchPolicy"]), (&json!(5), &json!("Equivalent")));
            let mutating = w.get("reinvocationPolicy").is_some();
            assert!(mutating || !name.starts_with("mutate"), "{name}");
            let policy = if name.contains("configmap") { "Ignore" } else { "Fail" };
            assert_eq!(w["failurePolicy"], policy, "{name}");
            let effects = if name == "main.configmap.llmd.ai" { "NoneOnDryRun" } else { "None" };
            assert_eq!(w["sideEffects"], effects, "{name}");
            (name.to_owned(), w["objectSelector"].clone(), w["namespaceSelector"].clone())
        })
        .collect()
}

#[test]
fn the_rendered_entries_are_those_of_the_table() {
    let names = |door: &Door<'_>| shape(door).into_iter().map(|(name, ..)| name).collect::<Vec<_>>();
    let main = "main.configmap.llmd.ai";
    let few = ["mutate.va.llmd.ai", main, "validate.va.llmd.ai", main, "entries.configmap.llmd.ai"];
    let all: Vec<_> = ENTRIES.iter().map(|e| e.name).collect();
    let instance = Door { instance: Some("a"), ..door() };
    assert_eq!(names(&door()), few);
    assert_eq!(names(&Door { policy: InstancePolicy::Ignore, ..instance.clone() }), few);
    assert_eq!(names(&instance), all);
    assert_eq!(names(&Door { policy: InstancePolicy::Require, ..instance.clone() }), all);

    let key = "kubernetes.io/metadata.name";
    let not_system = json!({"key": key, "operator": "NotIn", "values": ["kube-system"]});
    let unlabelled = json!({"matchExpressions":
        [{"key": "wva.llmd.ai/controller-instance", "operator": "DoesNotExist"}]});
    let labelled = json!({"matchLabels": {"wva.llmd.ai/controller-instance": "a"}});
    let find = |door: &Door<'_>, name: &str| shape(door).into_iter().find(|(n, ..)| n == name).unwrap();
    assert_eq!(find(&door(), "mutate.va.llmd.ai").1, unlabelled);
    assert_eq!(find(&instance, "validate.va.llmd.ai").1, labelled);
    let (_, objects, namespaces) = find(&instance, "validate-unlabelled.va.llmd.ai");
    assert_eq!(objects, unlabelled);
    assert_eq!(
        (&namespaces["matchLabels"], &namespaces["matchExpressions"][0]),
        (&labelled["matchLabels"], &not_system)
    );

    let single = Door { watch_namespace: Some("models"), ..instance };
    let only = |names: Value| json!({"matchExpressions": [{"key": key, "operator": "In", "values": names}, not_system]});
    assert_eq!(find(&single, "mutate-unlabelled.va.llmd.ai").2, only(json!(["models"])));
    assert_eq!(find(&single, "main.configmap.llmd.ai").2, only(json!(["models", "wva"])));
}
