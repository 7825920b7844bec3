//! Which events are written, and when.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use wva_crds::events::EventSource;
use wva_crds::{ConditionReason, ConditionStatus};
use wva_fakes::{FakeApi, Reply};
use wva_objects::orphan::OrphanEvidence;

use super::reporter::WRITE_TIMEOUT;
use super::*;
use crate::fixture::{Cluster, decision, key, publication, published, replicas, without_target};
use crate::model::conditions::ConditionDraft;
use crate::observe::variants::Ownership;

fn variant(variant: Value, config: Value) -> PublishedVariant {
    published(decision(variant, config))
}

fn steady() -> PublishedVariant {
    variant(json!({"replicas": replicas(2, 0.5, "1s")}), json!({}))
}

/// Reasons, with `!` before warnings.
fn reasons(before: Option<&PublishedVariant>, after: &PublishedVariant) -> Vec<String> {
    let all = transitions(&before.map(ReportedState::from_publication).unwrap_or_default(), after);
    all.iter().map(|t| format!("{}{}", if t.warning { "!" } else { "" }, t.reason.as_str())).collect()
}

#[test]
fn only_transitions_cause_events() {
    let grows = variant(json!({"replicas": replicas(2, 0.78, "1s")}), json!({}));
    let held = variant(json!({"desired": 2}), json!({}));
    let loading = json!({"ready": 1, "pending": [{"age": "11m"}], "replicas": replicas(1, 0.5, "1s")});
    let stuck = variant(loading, json!({}));
    let late =
        variant(json!({"desired": 4, "desiredAge": "11m", "replicas": replicas(2, 0.5, "1s")}), json!({}));
    let gated = json!({"age": "2m", "state": "waitingForQuota"});
    let waits =
        variant(json!({"ready": 1, "pending": [gated], "replicas": replicas(1, 0.5, "1s")}), json!({}));
    let quotas = json!({"limitedMode": true, "quotas": [{"namespace": "ns", "quota": "q", "resource": "pods", "limit": 2, "used": 2}]});
    let needs = json!([{"quota": "q", "resource": "pods", "perReplica": 1}]);
    let by_quota = variant(json!({"replicas": replicas(2, 0.78, "1s"), "quotaNeeds": needs}), quotas);
    let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
    let limited = variant(json!({"replicas": replicas(2, 0.78, "1s")}), limits);
    for (after, want) in [
        (&grows, "ScalingDecision"),
        (&without_target(), "!TargetNotFound"),
        (&held, "!SafetyNetActivated"),
        (&stuck, "!Stuck"),
        (&limited, "!LimitedBy"),
        (&by_quota, "!LimitedByQuota"),
        (&waits, "!WaitingForQuota"),
    ] {
        assert_eq!(reasons(Some(&steady()), after), [want]);
        assert_eq!(reasons(Some(after), after), Vec::<String>::new(), "{want} again");
    }
    // The target stays when it turns out that it is not carried out.
    let kept =
        variant(json!({"desired": 4, "desiredAge": "1m", "replicas": replicas(2, 0.5, "1s")}), json!({}));
    assert_eq!(reasons(Some(&kept), &late), ["!NotCarriedOut"]);
    assert_eq!(reasons(None, &grows), Vec::<String>::new(), "a first publication changes nothing");
    assert_eq!(reasons(Some(&without_target()), &steady()), ["Resolved"]);
}

fn at_maximum() -> PublishedVariant {
    variant(json!({"replicas": replicas(2, 0.78, "1s"), "max": 2}), json!({}))
}

fn not_followed() -> PublishedVariant {
    let mut variant = steady();
    let message = "No HPA scales it".to_owned();
    let status = ConditionStatus::False;
    variant.conditions.signal_followed =
        ConditionDraft { status, reason: ConditionReason::NoAutoscaler, message };
    variant
}

#[test]
fn each_trouble_has_an_event_when_it_begins_and_ends() {
    let loading = json!({"ready": 1, "pending": [{"age": "11m"}], "replicas": replicas(1, 0.5, "1s")});
    let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
    for (trouble, begin, end) in [
        (at_maximum(), "!AtMaximum", "AtMaximum ended: The target covers"),
        (not_followed(), "!SignalNotFollowed", "SignalNotFollowed (NoAutoscaler) ended: "),
        (variant(loading, json!({})), "!Stuck", "Stuck ended: The target is 2 replica(s)"),
        (variant(json!({"desired": 2}), json!({})), "!SafetyNetActivated", "SafetyNetActivated ended: "),
        (
            variant(json!({"replicas": replicas(2, 0.78, "1s")}), limits),
            "!LimitedBy",
            "LimitedByGPUs ended: ",
        ),
    ] {
        assert_eq!(reasons(Some(&steady()), &trouble), [begin]);
        assert_eq!(reasons(Some(&trouble), &trouble), Vec::<String>::new(), "{begin} again");
        let over = transitions(&ReportedState::from_publication(&trouble), &steady());
        assert_eq!(over.len(), 1, "{over:?}");
        assert!(!over[0].warning && over[0].reason == EventReason::Resolved, "{over:?}");
        assert!(over[0].note.starts_with(end), "{}", over[0].note);
        assert_eq!(reasons(Some(&steady()), &steady()), Vec::<String>::new());
    }
}

#[test]
fn requests_that_fail_during_a_wake_are_reported() {
    let failed = |cold_start| PublishedVariant { failed_during_wake: true, cold_start, ..steady() };
    assert_eq!(reasons(Some(&steady()), &failed(Some(95))), ["!RequestsFailedDuringWake"]);
    assert_eq!(reasons(Some(&failed(None)), &failed(Some(95))), Vec::<String>::new());
    let note = |cold_start| transitions(&ReportedState::default(), &failed(cold_start)).remove(0).note;
    assert!(
        note(Some(95)).contains("less than a cold start, 95 s when last measured. Raise"),
        "{}",
        note(Some(95))
    );
    assert!(note(None).contains("less than a cold start. Raise"), "{}", note(None));
}

#[test]
fn nothing_ends_for_a_variant_without_a_decision() {
    assert_eq!(reasons(Some(&at_maximum()), &without_target()), ["!TargetNotFound"]);
}

/// The condition holds for a while, so the limit was reported.
#[test]
fn a_limit_at_the_edge_is_reported_once() {
    let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
    let limited = variant(json!({"replicas": replicas(2, 0.78, "1s")}), limits);
    let mut held = steady();
    held.conditions.need_met = limited.conditions.need_met.clone();
    assert_eq!(reasons(Some(&limited), &held), Vec::<String>::new());
    assert_eq!(reasons(Some(&held), &limited), Vec::<String>::new());
}

#[test]
fn an_event_has_the_message_of_its_own_reason() {
    // The variant lacks metrics and is stuck, and the condition has only one reason.
    let pending = json!({"ready": 0, "pending": [{"age": "11m"}, {"age": "11m"}]});
    let both = variant(pending, json!({}));
    let all = transitions(&ReportedState::from_publication(&steady()), &both);
    let stuck = all.iter().find(|t| t.reason == EventReason::Stuck).unwrap();
    assert!(stuck.note.contains("kubectl describe"), "{}", stuck.note);
    // Limited, then paused.
    let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
    let limited = variant(json!({"replicas": replicas(2, 0.78, "1s"), "max": 2, "min": 2}), limits.clone());
    assert_eq!(reasons(Some(&steady()), &limited), ["!AtMaximum"], "GPUs are not what it lacks");
    let limited = variant(json!({"replicas": replicas(2, 0.78, "1s")}), limits);
    assert!(transitions(&ReportedState::from_publication(&steady()), &limited)[0].note.contains("H100"));
}

/// The scope of a controller that manages all published variants.
fn ownership_view(publications: &[Published]) -> OwnershipView {
    let mut cluster = Cluster::new();
    for key in publications.iter().flat_map(|p| p.variants.keys()) {
        cluster.variant(&key.name, "m", json!({"metadata": {"uid": "u"}}));
    }
    cluster.ownership_view(Ownership::default())
}

/// Runs the writer on publications, one after the other.
async fn write_all(fake: &FakeApi, publications: Vec<Published>) {
    let ownership_view = ownership_view(&publications);
    write_within(fake, ownership_view, publications).await;
}

async fn write_within(fake: &FakeApi, ownership_view: OwnershipView, publications: Vec<Published>) {
    let (sender, reader) = watch::channel(None);
    let source = EventSource { instance: None, pod: Some("pod".into()) };
    let writer = tokio::spawn(run(EventReporter::new(fake.client(), source), ownership_view, reader));
    for publication in publications {
        sender.send_replace(Some(Arc::new(publication)));
        // Lets the writer read the publication before the next one replaces it.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    drop(sender);
    writer.await.unwrap();
}

#[tokio::test]
async fn every_decision_has_its_own_event() {
    let of_load = |kv, current: u32| {
        let v = json!({"current": current, "replicas": replicas(current, kv, "1s")});
        publication([("a", variant(v, json!({})))])
    };
    let fake = FakeApi::new();
    write_all(&fake, vec![of_load(0.5, 2), of_load(0.78, 2), of_load(0.78, 3)]).await;
    let sent = fake.requests();
    let notes: Vec<_> =
        sent.iter().map(|r| r.body["note"].as_str().unwrap().split(':').next().unwrap()).collect();
    assert_eq!(notes, ["target 2 -> 3 (SpareBelowTarget)", "target 3 -> 4 (SpareBelowTarget)"]);
    for request in &sent {
        let event = &request.body;
        assert_eq!(request.line(), "POST /apis/events.k8s.io/v1/namespaces/ns/events");
        assert_eq!(event["metadata"]["generateName"], "a-");
        assert_eq!(event["regarding"]["uid"], "u");
        assert_eq!(event["regarding"]["kind"], "VariantAutoscaling");
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "a"});
        assert_eq!(event["related"], workload);
        assert_eq!((&event["type"], &event["reportingInstance"]), (&json!("Normal"), &json!("pod")));
        assert!(event["eventTime"].is_string());
    }
}

#[tokio::test]
async fn a_change_from_the_status_is_reported_once() {
    let grown = variant(json!({"replicas": replicas(2, 0.78, "1s")}), json!({}));
    let inherits = |from: &PublishedVariant, variant: PublishedVariant| {
        publication([("a", PublishedVariant { inherited: ReportedState::from_publication(from), ..variant })])
    };
    for (before, first, second, want) in [
        (without_target(), without_target(), without_target(), &[][..]),
        (steady(), without_target(), without_target(), &["TargetNotFound"]),
        (without_target(), steady(), without_target(), &["Resolved", "TargetNotFound"]),
        (steady(), grown.clone(), grown, &["ScalingDecision"]),
    ] {
        let fake = FakeApi::new();
        write_all(&fake, vec![inherits(&before, first), inherits(&before, second)]).await;
        let reasons: Vec<_> = fake.requests().iter().map(|r| r.body["reason"].clone()).collect();
        assert_eq!(reasons, want);
    }
}

#[tokio::test]
async fn a_publication_writes_a_limited_number_of_events() {
    let names = || (0..150).map(|i| format!("v{i:03}"));
    let before = publication(names().map(|n| (n, steady())));
    let after = publication(names().map(|n| (n, without_target())));
    let fake = FakeApi::new();
    write_all(&fake, vec![before, after]).await;
    assert_eq!(fake.requests().len(), MAX_EVENTS);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_api_server_is_not_waited_for() {
    let fake = FakeApi::with_rule(|_| Some(Reply::Hang));
    let began = tokio::time::Instant::now();
    let both =
        [steady(), without_target()].map(|v| publication((0..50).map(|i| (format!("v{i}"), v.clone()))));
    write_all(&fake, both.into()).await;
    assert!(began.elapsed() <= WRITE_TIMEOUT + Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_note_is_cut_at_a_character_boundary() {
    let pending =
        PendingEvent { warning: true, reason: EventReason::Stuck, note: "é".repeat(900), digest: None };
    let source = EventSource { instance: None, pod: Some("p".repeat(200)) };
    let reporter = EventReporter::new(FakeApi::new().client(), source);
    let event = reporter.build(variant_reference(&key("a"), "u"), None, &pending, Timestamp::UNIX_EPOCH);
    assert_eq!(event.note.map(|n| n.len()), Some(1000));
    assert_eq!(event.reporting_instance.map(|n| n.len()), Some(128));
}

#[tokio::test]
async fn unmanaged_variants_have_no_events() {
    let publications = [steady(), without_target()].map(|v| publication([("a", v)]));
    let fake = FakeApi::new();
    write_within(&fake, ownership_view(&[]), publications.into()).await;
    assert!(fake.requests().is_empty());
}

fn orphaned(last_run: Option<&str>) -> Published {
    let evidence =
        last_run.map_or(OrphanEvidence::NoStatus, |at| OrphanEvidence::NotConfirmed(at.parse().unwrap()));
    let orphans = Orphan { uid: "u".into(), instance: "x".into(), evidence };
    Published { orphans: [(key("a"), orphans)].into(), ..Published::default() }
}

#[tokio::test]
async fn an_orphan_is_reported_once_by_all_controllers() {
    let fake = FakeApi::with_rule(|_| Some(Reply::Failure(409)));
    let never = orphaned(None);
    let later = orphaned(Some("2026-01-01T00:00:00Z"));
    let served = Published::default();
    write_all(&fake, vec![never.clone(), never, served, later.clone(), later]).await;
    let sent = fake.requests();
    let names: Vec<_> = sent.iter().map(|r| r.body["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "only on a transition: {names:?}");
    assert!(names.iter().all(|name| name.starts_with("a.")) && names[0] != names[1], "{names:?}");
    let event = &sent[0].body;
    assert_eq!((&event["reason"], &event["type"]), (&json!("NotManaged"), &json!("Warning")));
    assert_eq!(event["metadata"]["generateName"], Value::Null);
}
