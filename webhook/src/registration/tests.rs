//! Registration against a fake API server: only when a review is answered, only of existing configurations, and again
//! after every drift.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use wva_fakes::{FakeApi, Reply, Request};
use wva_objects::Target;
use wva_rules::{InstancePolicy, OtherVariant};

use super::*;
use crate::{ClusterFacts, Limits, Settings, ShutdownSignals, State, TargetState, serve};

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
    let service = json!({"metadata": metadata, "spec": {"type": kind}});
    fake.put("/api/v1/namespaces/wva/services/wva-webhook", service);
    let endpoint = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}});
    let slice = json!({"metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint]});
    fake.put("/apis/discovery.k8s.io/v1/namespaces/wva/endpointslices/wva-webhook", slice);
}

fn patches(fake: &FakeApi) -> Vec<Request> {
    fake.requests().into_iter().filter(|request| request.method == "PATCH").collect()
}

struct EmptyCluster;

impl ClusterFacts for EmptyCluster {
    fn is_synced(&self) -> bool {
        true
    }
    fn variants_with_target(&self, _: &str, _: &Target) -> Vec<OtherVariant> {
        Vec::new()
    }
    fn target(&self, _: &str, _: &Target) -> Option<TargetState> {
        None
    }
    fn is_namespace_owned(&self, _: &str) -> bool {
        false
    }
}

/// A webhook server with a self-signed certificate; it answers after `start`.
struct Webhook {
    listener: TcpListener,
    pem: Vec<u8>,
    tls: Arc<rustls::ServerConfig>,
}

impl Webhook {
    fn new() -> Self {
        let generated = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(generated.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![generated.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { listener, pem: generated.cert.pem().into_bytes(), tls: Arc::new(tls) }
    }

    fn probe(&self) -> Probe {
        Probe { addr: self.listener.local_addr().unwrap(), server_name: NAME.to_owned() }
    }

    /// Starts a server; returns its certificate (PEM) and a probe of it.
    fn start_new() -> (Vec<u8>, Probe) {
        let webhook = Self::new();
        let pem_and_probe = (webhook.pem.clone(), webhook.probe());
        webhook.start();
        pem_and_probe
    }

    fn start(self) {
        let (settings, end) = (Settings::new(None, InstancePolicy::Inject), ShutdownSignals::default());
        let state = State::new(settings, Arc::new(EmptyCluster), None, &prometheus::Registry::new()).unwrap();
        tokio::spawn(serve(self.listener, self.tls, Arc::new(state), end, Limits::default()));
    }
}

fn trust() -> TrustReporter {
    let (clock, end) = (wva_runtime::system_clock(), CancellationToken::new());
    let nowhere = std::path::Path::new("/nowhere");
    wva_certs::Certs::from_files(nowhere, "tls.crt", "tls.key", clock, end).0.trust_reporter("webhooks")
}

fn options() -> ConfigurationOptions<'static> {
    ConfigurationOptions {
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

/// Waits until the configuration sends reviews of variants to the server with this certificate.
async fn wait_until_registered(fake: &FakeApi, path: &str, pem: &[u8]) {
    let name = if path == MUTATING { "mutate.va.llmd.ai" } else { "validate.va.llmd.ai" };
    let is_registered = |object: &Value| {
        let entry = entry(object, name);
        entry["rules"][0]["resources"] == json!(["variantautoscalings"])
            && entry["clientConfig"]["caBundle"] == json!(ByteString(pem.to_vec()))
    };
    fake.wait_until(SOON, path, is_registered).await;
}

#[tokio::test]
async fn registers_existing_entries_and_repairs_drift() {
    let mut items = render_configurations(&options());
    // An entry of another program in the same object is left alone.
    let foreign = json!({"name": "foreign.example.com", "rules": [], "clientConfig": {}});
    items["items"][1]["webhooks"].as_array_mut().unwrap().push(foreign.clone());
    let fake = api(&items);
    let (pem, probe) = Webhook::start_new();
    let (bundle, bundles) = watch::channel(pem.clone());
    let shutdown = CancellationToken::new();
    let trust = trust();
    let running = tokio::spawn(run(fake.client(), config(), bundles, probe, trust.clone(), shutdown.clone()));

    wait_until_registered(&fake, MUTATING, &pem).await;
    wait_until_registered(&fake, VALIDATING, &pem).await;
    let object = fake.object(VALIDATING);
    assert_eq!(entry(&object, "foreign.example.com"), &foreign);
    assert_eq!(entry(&object, "entries.configmap.llmd.ai")["rules"][0]["resources"], json!(["configmaps"]));
    assert_patches_own_two_fields(&fake);

    let certificates =
        |pem: &[u8]| CertificateDer::pem_slice_iter(pem).map(Result::unwrap).collect::<Vec<_>>();
    wait_until_trusted(&trust, Some(certificates(&pem))).await;

    let reported_early = Arc::new(AtomicBool::default());
    let (reported, sees) = (reported_early.clone(), trust.clone());
    fake.set_rule(move |request| {
        let early = request.method == "PATCH" && sees.last_report().is_some();
        reported.fetch_or(early, Ordering::SeqCst);
        None
    });
    fake.edit(VALIDATING, |o| o["webhooks"][0]["rules"] = json!([]));
    wait_until_registered(&fake, VALIDATING, &pem).await;
    wait_until_trusted(&trust, Some(certificates(&pem))).await;
    assert!(!reported_early.load(Ordering::SeqCst), "a bundle that was missing is not trusted yet");
    for bundle in [json!("b3RoZXI="), json!(""), Value::Null] {
        fake.edit(MUTATING, |o| o["webhooks"][0]["clientConfig"]["caBundle"] = bundle);
        wait_until_registered(&fake, MUTATING, &pem).await;
    }

    let both = [pem.as_slice(), Webhook::new().pem.as_slice()].concat();
    bundle.send_replace(both.clone());
    wait_until_registered(&fake, MUTATING, &both).await;
    wait_until_registered(&fake, VALIDATING, &both).await;
    wait_until_trusted(&trust, Some(certificates(&both))).await;

    let is_of_one_object = |watch: &Request| watch.query.contains("fieldSelector=metadata.name%3Dwva");
    assert!(fake.requests().iter().filter(|request| request.is_watch()).all(is_of_one_object));
    shutdown.cancel();
    timeout(Duration::from_secs(5), running).await.unwrap().unwrap().unwrap();
}

/// Asserts that each server-side apply so far has only the rules and the CA of entries.
fn assert_patches_own_two_fields(fake: &FakeApi) {
    for patch in patches(fake) {
        assert_eq!(patch.query, format!("&force=true&fieldManager={FIELD_MANAGER}"));
        for applied in patch.body["webhooks"].as_array().unwrap() {
            let keys: Vec<_> = applied.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["clientConfig", "name", "rules"], "only these fields are owned");
            assert_eq!(applied["clientConfig"].as_object().unwrap().len(), 1);
        }
    }
}

/// Waits until `trust` has these certificates; `None`: until it has none.
async fn wait_until_trusted(trust: &TrustReporter, wanted: Option<Vec<CertificateDer<'static>>>) {
    let reported = async {
        while trust.last_report() != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(Duration::from_secs(20), reported).await.is_ok(), "reported: {:?}", trust.last_report());
}

#[tokio::test]
async fn registers_one_while_the_other_is_missing_or_refused() {
    for missing in [true, false] {
        let fake = api(&render_configurations(&options()));
        let (pem, probe) = Webhook::start_new();
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
            wait_until_registered(&fake, VALIDATING, &pem).await;
            fake.edit(VALIDATING, |o| o["webhooks"][0]["clientConfig"]["caBundle"] = Value::Null);
        }
        wait_until_registered(&fake, VALIDATING, &pem).await;
        // A missing configuration needs no CA; the CA of one that cannot be read is unknown.
        let certificates = CertificateDer::pem_slice_iter(&pem).map(Result::unwrap).collect();
        wait_until_trusted(&trust, missing.then_some(certificates)).await;
        assert_eq!(fake.get(MUTATING).is_none(), missing, "a missing configuration is not created");
        shutdown.cancel();
        running.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn repairs_drift_without_a_watch_event() {
    let fake = api(&render_configurations(&options()));
    let (pem, probe) = Webhook::start_new();
    let client = fake.client();
    let configuration =
        Configuration::new::<ValidatingWebhookConfiguration>(&client, Phase::Validating, "wva");
    let (published, check_interval) = (PublishedBundles::new(trust()), Duration::from_millis(50));
    let registrar = Registrar { client, service: config().service, probe, published, check_interval };
    let (_bundle, bundles) = watch::channel(pem.clone());
    let running = tokio::spawn(async move { registrar.keep_registered(&configuration, 1, bundles).await });
    wait_until_registered(&fake, VALIDATING, &pem).await;
    fake.silence_watches();
    fake.edit(VALIDATING, |o| o["webhooks"][0]["clientConfig"]["caBundle"] = json!(""));
    wait_until_registered(&fake, VALIDATING, &pem).await;
    running.abort();
}

/// One check of both configurations. Returns whether one was patched.
async fn ensure(
    client: &Client,
    service: &ServiceRef,
    configurations: &[Configuration; 2],
    bundle: &[u8],
    probe: &Probe,
) -> Result<bool, Error> {
    let (client, service, probe) = (client.clone(), service.clone(), probe.clone());
    let published = PublishedBundles::new(trust());
    let registrar = Registrar { client, service, probe, published, check_interval: CHECK_INTERVAL };
    let mut changed = false;
    for (index, configuration) in configurations.iter().enumerate() {
        changed |= registrar.ensure_registered(configuration, index, bundle).await?;
    }
    Ok(changed)
}

#[tokio::test]
async fn registers_only_after_a_review_is_answered() {
    let fake = api(&render_configurations(&options()));
    let webhook = Webhook::new();
    let (pem, probe) = (webhook.pem.clone(), webhook.probe());
    let service = config().service;
    let client = fake.client();
    let configurations = [
        Configuration::new::<MutatingWebhookConfiguration>(&client, Phase::Mutating, "wva"),
        Configuration::new::<ValidatingWebhookConfiguration>(&client, Phase::Validating, "wva"),
    ];
    assert!(matches!(ensure(&client, &service, &configurations, b"", &probe).await, Err(Error::NoBundle)));
    let closed =
        Probe { addr: TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(), ..probe.clone() };
    for (probe, bundle) in [
        (&closed, pem.clone()),
        (&probe, b"no certificate".to_vec()),
        (&Probe { server_name: "not a name".into(), ..probe.clone() }, pem.clone()),
    ] {
        let refused = ensure(&client, &service, &configurations, &bundle, probe).await;
        assert!(matches!(refused, Err(Error::NotAnswering { .. })), "{refused:?}");
    }
    webhook.start();
    let wrong_ca = ensure(&client, &service, &configurations, &Webhook::new().pem, &probe).await.unwrap_err();
    assert!(
        matches!(wrong_ca, Error::NotAnswering { source: ProbeError::Connection(_), .. }),
        "{wrong_ca:?}"
    );
    let wrong_name = Probe { server_name: "other.wva.svc".into(), ..probe.clone() };
    assert!(ensure(&client, &service, &configurations, &pem, &wrong_name).await.is_err());
    put_service(&fake, "ClusterIP", Some(false));
    let nowhere = ensure(&client, &service, &configurations, &pem, &probe).await;
    assert!(matches!(nowhere, Err(Error::NoEndpoint { .. })), "{nowhere:?}");
    assert!(patches(&fake).is_empty());

    // A Service of type ExternalName has no endpoints; an endpoint without `ready` is ready.
    for (kind, ready) in [("ExternalName", Some(false)), ("ClusterIP", None)] {
        put_service(&fake, kind, ready);
        assert!(service.check_endpoint(&client).await.is_ok(), "{kind} {ready:?}");
    }
    assert!(ensure(&client, &service, &configurations, &pem, &probe).await.unwrap());
    assert!(
        !ensure(&client, &service, &configurations, &pem, &probe).await.unwrap(),
        "a second check changes nothing"
    );
    assert_eq!(patches(&fake).len(), 2);
    let has_selector =
        |r: &Request| r.query.contains("labelSelector=kubernetes.io%2Fservice-name%3Dwva-webhook");
    assert_eq!(fake.count(has_selector), fake.count(|request| request.path.ends_with("/endpointslices")));
}

#[test]
fn retries_within_15_seconds() {
    assert!(CALL_TIMEOUT + LONGEST_BACKOFF <= Duration::from_secs(15));
}

#[tokio::test]
async fn fails_when_the_certificate_task_ends() {
    let fake = api(&render_configurations(&options()));
    let (bundle, bundles) = watch::channel(Vec::new());
    drop(bundle);
    let (probe, shutdown) = (Webhook::new().probe(), CancellationToken::new());
    let ended = run(fake.client(), config(), bundles, probe, trust(), shutdown).await;
    assert!(matches!(ended, Err(Error::BundleGone)), "{ended:?}");
}

/// Name, object selector and namespace selector of each entry.
fn entry_selectors(options: &ConfigurationOptions<'_>) -> Vec<(String, Value, Value)> {
    let list = render_configurations(options);
    let webhooks = list["items"].as_array().unwrap().iter().flat_map(|o| o["webhooks"].as_array().unwrap());
    webhooks
        .map(|w| {
            let name = w["name"].as_str().unwrap();
            assert!(w.get("rules").is_none() && w["clientConfig"].get("caBundle").is_none(), "{name}");
            assert!(w["matchConditions"].as_array().unwrap().len() == 1, "{name}");
            assert_eq!((&w["timeoutSeconds"], &w["matchPolicy"]), (&json!(5), &json!("Equivalent")));
            assert!(w.get("reinvocationPolicy").is_some() || !name.starts_with("mutate"), "{name}");
            let policy = if name.contains("configmap") { "Ignore" } else { "Fail" };
            assert_eq!(w["failurePolicy"], policy, "{name}");
            let effects = if name == "main.configmap.llmd.ai" { "NoneOnDryRun" } else { "None" };
            assert_eq!(w["sideEffects"], effects, "{name}");
            (name.to_owned(), w["objectSelector"].clone(), w["namespaceSelector"].clone())
        })
        .collect()
}

#[test]
fn renders_the_entries_of_the_table() {
    let names = |options: &ConfigurationOptions<'_>| {
        entry_selectors(options).into_iter().map(|(name, ..)| name).collect::<Vec<_>>()
    };
    let main = "main.configmap.llmd.ai";
    let few = ["mutate.va.llmd.ai", main, "validate.va.llmd.ai", main, "entries.configmap.llmd.ai"];
    let all: Vec<_> = ENTRIES.iter().map(|e| e.name).collect();
    let instance = ConfigurationOptions { instance: Some("a"), ..options() };
    assert_eq!(names(&options()), few);
    assert_eq!(names(&ConfigurationOptions { policy: InstancePolicy::Ignore, ..instance.clone() }), few);
    assert_eq!(names(&instance), all);
    assert_eq!(names(&ConfigurationOptions { policy: InstancePolicy::Require, ..instance.clone() }), all);
    let key = "kubernetes.io/metadata.name";
    let not_system = json!({"key": key, "operator": "NotIn", "values": ["kube-system"]});
    let unlabelled = json!({"matchExpressions":
        [{"key": "wva.llmd.ai/controller-instance", "operator": "DoesNotExist"}]});
    let labelled = json!({"matchLabels": {"wva.llmd.ai/controller-instance": "a"}});
    let find = |options: &ConfigurationOptions<'_>, name: &str| {
        entry_selectors(options).into_iter().find(|(n, ..)| n == name).unwrap()
    };
    assert_eq!(find(&options(), "mutate.va.llmd.ai").1, unlabelled);
    assert_eq!(find(&instance, "validate.va.llmd.ai").1, labelled);
    let (_, objects, namespaces) = find(&instance, "validate-unlabelled.va.llmd.ai");
    assert_eq!(objects, unlabelled);
    assert_eq!(namespaces["matchLabels"], labelled["matchLabels"]);
    assert_eq!(namespaces["matchExpressions"][0], not_system);
    let single = ConfigurationOptions { watch_namespace: Some("models"), ..instance };
    let only = |names: Value| json!({"matchExpressions": [{"key": key, "operator": "In", "values": names}, not_system]});
    assert_eq!(find(&single, "mutate-unlabelled.va.llmd.ai").2, only(json!(["models"])));
    assert_eq!(find(&single, "main.configmap.llmd.ai").2, only(json!(["models", "wva"])));
}
