//! What is told when, and what reaches the API server.

use std::convert::Infallible;
use std::sync::Mutex;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::fixture::{Cluster, decision, published, replicas, without_target};
use crate::variants::{Ownership, Sign};

fn variant(variant: Value, config: Value) -> PublishedVariant {
    published(decision(variant, config))
}

fn steady() -> PublishedVariant {
    variant(json!({"replicas": replicas(2, 0.5, "1s")}), json!({}))
}

/// Reasons, a `!` before warnings.
fn told(before: Option<&PublishedVariant>, after: &PublishedVariant) -> Vec<String> {
    let all = transitions(&before.map(Said::by).unwrap_or_default(), after);
    all.iter().map(|t| format!("{}{}", if t.warning { "!" } else { "" }, t.reason)).collect()
}

#[test]
fn only_transitions_are_told() {
    let grows = variant(json!({"replicas": replicas(2, 0.78, "1s")}), json!({}));
    let held = variant(json!({"desired": 2}), json!({}));
    let loading = json!({"ready": 1, "pending": [{"age": "11m"}], "replicas": replicas(1, 0.5, "1s")});
    let stuck = variant(loading, json!({}));
    let late =
        variant(json!({"desired": 4, "desiredAge": "11m", "replicas": replicas(2, 0.5, "1s")}), json!({}));
    let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
    let limited = variant(json!({"replicas": replicas(2, 0.78, "1s")}), limits);
    for (after, want) in [
        (&grows, "ScalingDecision"),
        (&without_target(), "!TargetNotFound"),
        (&held, "!SafetyNetActivated"),
        (&stuck, "!Stuck"),
        (&late, "!NotCarriedOut"),
        (&limited, "!LimitedBy"),
    ] {
        assert_eq!(told(Some(&steady()), after), [want]);
        assert_eq!(told(Some(after), after), Vec::<String>::new(), "{want} again");
    }
    assert_eq!(told(None, &grows), Vec::<String>::new(), "at first sight nothing has changed");
    assert_eq!(told(Some(&without_target()), &steady()), Vec::<String>::new());
}

#[test]
fn an_event_is_about_its_own_reason() {
    // Not ready for want of metrics and stuck at once: the condition can say only one of them.
    let pending = json!({"ready": 0, "pending": [{"age": "11m"}, {"age": "11m"}]});
    let both = variant(pending, json!({}));
    let all = transitions(&Said::by(&steady()), &both);
    let stuck = all.iter().find(|t| t.reason == "Stuck").unwrap();
    assert!(stuck.note.contains("kubectl describe"), "{}", stuck.note);
    // Limited, and paused after that.
    let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
    let limited = variant(json!({"replicas": replicas(2, 0.78, "1s"), "max": 2, "min": 2}), limits.clone());
    assert_eq!(told(Some(&steady()), &limited), Vec::<String>::new(), "at its maximum it asks for nothing");
    let limited = variant(json!({"replicas": replicas(2, 0.78, "1s")}), limits);
    assert!(transitions(&Said::by(&steady()), &limited)[0].note.contains("H100"));
}

/// Method with path, and body.
type Sent = (String, Value);

/// A client whose API server, a fake, keeps what it is sent and answers with `status`.
fn fake(status: u16) -> (Client, Arc<Mutex<Vec<Sent>>>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let kept = sent.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let kept = kept.clone();
        async move {
            let what = format!("{} {}", request.method(), request.uri().path());
            let bytes = to_bytes(Body::new(request.into_body()), 1 << 20).await.unwrap();
            let body: Value = serde_json::from_slice(&bytes).unwrap();
            kept.lock().unwrap().push((what, body.clone()));
            Ok::<_, Infallible>(
                Response::builder().status(status).body(Body::from(body.to_string())).unwrap(),
            )
        }
    });
    (Client::new(service, "default"), sent)
}

fn publication(variants: impl IntoIterator<Item = (String, PublishedVariant)>) -> Arc<Published> {
    let key = |name| VariantKey { namespace: "ns".into(), name };
    let variants = variants.into_iter().map(|(name, v)| (key(name), Arc::new(v))).collect();
    Arc::new(Published { variants, ..Published::default() })
}

/// All that is published is there, and managed.
fn reach(publications: &[Arc<Published>]) -> Reach {
    let mut cluster = Cluster::new();
    for key in publications.iter().flat_map(|p| p.variants.keys()) {
        cluster.variant(&key.name, "m", json!({"metadata": {"uid": "u"}}));
    }
    let watches = cluster.watches();
    Reach::new(Ownership::default(), watches.variants, watches.namespaces)
}

/// Runs the writer over publications, one after the other.
async fn write_all(client: Client, publications: Vec<Arc<Published>>) {
    let (sender, reader) = watch::channel(None);
    let writer = tokio::spawn(run(client, Some("pod".into()), reach(&publications), reader));
    for publication in publications {
        sender.send_replace(Some(publication));
        // The writer takes it before the next one stands in its place: one thread, and no await of its own before.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    drop(sender);
    writer.await.unwrap();
}

#[tokio::test]
async fn every_decision_is_an_event_of_its_own() {
    let of_load = |kv, current: u32| {
        let v = json!({"current": current, "replicas": replicas(current, kv, "1s")});
        publication([("a".to_owned(), variant(v, json!({})))])
    };
    let (client, sent) = fake(201);
    write_all(client, vec![of_load(0.5, 2), of_load(0.78, 2), of_load(0.78, 3)]).await;
    let sent = sent.lock().unwrap();
    let notes: Vec<_> =
        sent.iter().map(|(_, e)| e["note"].as_str().unwrap().split(':').next().unwrap()).collect();
    assert_eq!(notes, ["target 2 -> 3 (SpareBelowTarget)", "target 3 -> 4 (SpareBelowTarget)"]);
    for (what, event) in sent.iter() {
        assert_eq!(what, "POST /apis/events.k8s.io/v1/namespaces/ns/events");
        assert_eq!(event["metadata"]["generateName"], "a-");
        assert_eq!(event["regarding"]["uid"], "u");
        assert_eq!(event["regarding"]["kind"], "VariantAutoscaling");
        assert_eq!((&event["type"], &event["reportingInstance"]), (&json!("Normal"), &json!("pod")));
        assert!(event["eventTime"].is_string());
    }
}

#[tokio::test]
async fn what_a_status_said_at_first_sight_is_told_when_it_changes_and_not_before() {
    let grown = variant(json!({"replicas": replicas(2, 0.78, "1s")}), json!({}));
    let inherits = |from: &PublishedVariant, variant: PublishedVariant| {
        publication([("a".to_owned(), PublishedVariant { inherited: Said::by(from), ..variant })])
    };
    for (before, first, second, want) in [
        (without_target(), without_target(), without_target(), &[][..]),
        (steady(), without_target(), without_target(), &["TargetNotFound"]),
        (without_target(), steady(), without_target(), &["TargetNotFound"]),
        (steady(), grown.clone(), grown, &["ScalingDecision"]),
    ] {
        let (client, sent) = fake(201);
        write_all(client, vec![inherits(&before, first), inherits(&before, second)]).await;
        let sent = sent.lock().unwrap();
        let reasons: Vec<_> = sent.iter().map(|(_, e)| e["reason"].as_str().unwrap()).collect();
        assert_eq!(reasons, want);
    }
}

#[tokio::test]
async fn a_publication_writes_a_bounded_number_of_events() {
    let names = || (0..150).map(|i| format!("v{i:03}"));
    let before = publication(names().map(|n| (n, steady())));
    let after = publication(names().map(|n| (n, without_target())));
    let (client, sent) = fake(201);
    write_all(client, vec![before, after]).await;
    assert_eq!(sent.lock().unwrap().len(), MOST);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_is_not_waited_for() {
    let service = tower::service_fn(|_: Request<kube::client::Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    let began = tokio::time::Instant::now();
    let both =
        [steady(), without_target()].map(|v| publication((0..50).map(|i| (format!("v{i}"), v.clone()))));
    write_all(Client::new(service, "default"), both.into()).await;
    assert!(began.elapsed() <= WRITE_TIMEOUT + Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn a_note_is_cut_where_a_character_ends() {
    let told = Told { warning: true, reason: "Stuck", note: "é".repeat(900), digest: None };
    let key = VariantKey { namespace: "ns".into(), name: "a".into() };
    let event = event(&key, "u", &told, Some(&"p".repeat(200)), Timestamp::UNIX_EPOCH);
    assert_eq!(event.note.map(|n| n.len()), Some(1000));
    assert_eq!(event.reporting_instance.map(|n| n.len()), Some(128));
}

#[tokio::test]
async fn what_is_no_longer_managed_is_not_told_of() {
    let publications = [steady(), without_target()].map(|v| publication([("a".to_owned(), v)]));
    let (client, sent) = fake(201);
    let (sender, reader) = watch::channel(None);
    let writer = tokio::spawn(run(client, None, reach(&[]), reader));
    for publication in publications {
        sender.send_replace(Some(publication));
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    drop(sender);
    writer.await.unwrap();
    assert!(sent.lock().unwrap().is_empty());
}

fn nobodys(last_run: Option<&str>) -> Arc<Published> {
    let sign = last_run.map_or(Sign::NoStatus, |at| Sign::NotConfirmed(at.parse().unwrap()));
    let unserved = Unserved { uid: "u".into(), instance: "x".into(), sign };
    let key = VariantKey { namespace: "ns".into(), name: "a".into() };
    Arc::new(Published { unserved: [(key, unserved)].into(), ..Published::default() })
}

#[tokio::test]
async fn a_variant_that_nobody_serves_is_told_of_once_by_all_controllers() {
    let (client, sent) = fake(409);
    let never = nobodys(None);
    let later = nobodys(Some("2026-01-01T00:00:00Z"));
    let served = Arc::new(Published::default());
    write_all(client, vec![never.clone(), never, served, later.clone(), later]).await;
    let sent = sent.lock().unwrap();
    let names: Vec<_> = sent.iter().map(|(_, e)| e["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "only on a transition: {names:?}");
    assert!(names.iter().all(|name| name.starts_with("a.")) && names[0] != names[1], "{names:?}");
    assert_eq!((&sent[0].1["reason"], &sent[0].1["type"]), (&json!("NotManaged"), &json!("Warning")));
    assert_eq!(sent[0].1["metadata"]["generateName"], Value::Null);
}
