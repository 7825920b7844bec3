//! When a status is written, its patch, and failures of the API server.

use std::collections::BTreeSet;

use tokio::sync::watch;
use wva_crds::LearnedCurves;
use wva_fakes::{FakeApi, Reply};
use wva_objects::WorkloadKey;
use wva_objects::servers::ServingPods;
use wva_scaling::snapshot::ThroughputMemory;
use wva_scaling::{Snapshot, decide};

use super::*;
use crate::cycle::conditions::conditions;
use crate::cycle::conditions::tests::no_target;
use crate::fixture::{self, Cluster, decision, key, published, replicas, without_target};
use crate::model::step::{DueStep, Step};
use crate::observe::variants::Ownership;

const INTERVAL: Duration = Duration::from_mins(1);

fn at(minute: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
}

fn steady(mode: &str) -> PublishedVariant {
    published(decision(json!({"mode": mode, "replicas": replicas(2, 0.5, "1s")}), json!({})))
}

fn first(variant: &PublishedVariant) -> VariantAutoscalingStatus {
    desired_status(variant, &StatusFingerprint::default(), at(0), INTERVAL).unwrap()
}

#[test]
fn a_deleted_workload_clears_the_target_with_null() {
    let before = StatusFingerprint::from_status(&first(&steady("auto")));
    let patch = merge_patch(&desired_status(&without_target(), &before, at(0), INTERVAL).unwrap(), None);
    for field in ["desiredOptimizedAlloc", "currentReplicas", "actuation", "learned", "coldStartSeconds"] {
        assert_eq!(patch["status"].get(field), Some(&Value::Null), "{field}");
    }
    assert_eq!(patch["status"]["conditions"][0]["reason"], "DeploymentNotFound");
    assert_eq!(patch["status"]["conditions"][0]["message"], "Target deployment 'd' no longer exists");
}

#[test]
fn a_patch_contains_the_whole_status() {
    let learned = LearnedCurves { a: 0.02, b: 0.001, c: 0.0002, samples: 40, reserve: None };
    let status = VariantAutoscalingStatus {
        learned: Some(learned),
        cold_start_seconds: Some(42),
        ..first(&steady("auto"))
    };
    let patch = merge_patch(&status, Some(7));
    assert_eq!(patch["status"], json!(status));
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
}

#[test]
fn last_run_time_is_written_with_a_change_or_at_the_heartbeat() {
    let before = StatusFingerprint::from_status(&first(&steady("auto")));
    for (minute, due) in [(0, false), (1, false), (10, false), (11, true), (-10, false), (-60, true)] {
        let status = desired_status(&steady("auto"), &before, at(minute), INTERVAL);
        assert_eq!(status.is_some(), due, "minute {minute}");
        if let Some(status) = status {
            assert_eq!(status.desired_optimized_alloc.unwrap().last_run_time, Some(Time(at(minute))));
        }
    }
    let mut moved = steady("auto");
    moved.current = Some(9);
    let status = desired_status(&moved, &before, at(1), INTERVAL).unwrap();
    assert_eq!(status.desired_optimized_alloc.unwrap().last_run_time, Some(Time(at(1))));
    let nothing = StatusFingerprint::from_status(&first(&without_target()));
    assert_eq!(
        desired_status(&without_target(), &nothing, at(60), INTERVAL),
        None,
        "no target, no heartbeat"
    );
}

#[test]
fn long_intervals_confirm_a_status_before_it_expires() {
    let before = StatusFingerprint::from_status(&first(&steady("auto")));
    // With long intervals, a status is confirmed early if the next cycle would be too late.
    for (interval, minute, due) in [
        (3, 10, false),
        (3, 11, true),
        (5, 5, false),
        (5, 10, true),
        (9, 9, true),
        (10, 10, true),
        (20, 1, true),
    ] {
        let interval = Duration::from_mins(interval);
        let status = desired_status(&steady("auto"), &before, at(minute), interval);
        assert_eq!(status.is_some(), due, "every {interval:?}, {minute} minutes old");
    }
}

/// Two replicas with a steady but noisy load, in one of a sequence of cycles.
fn noisy(analyzer: &str, cycle: u32, learned: Vec<ThroughputMemory>) -> Snapshot {
    let noise = |cycle: u32, n: u32| f64::from((cycle * 7 + n * 13) % 11) / 10.0;
    let scrape = |cycle: u32, n: u32| {
        let done = 149.0 * f64::from(cycle + 10) + 5.0 * noise(cycle, n);
        let running = 37.0 + 2.0 * noise(cycle, n);
        (done, running)
    };
    let replica = |n: u32| {
        let work = [0, 1].map(|ago| {
            let (done, running) = scrape(cycle + 1 - ago, n);
            json!({"age": format!("{}s", 1 + 15 * ago), "completed": done, "promptTokens": 100.0 * done,
                "generatedTokens": 100.0 * done, "running": running})
        });
        json!({"pod": format!("a-{n}"), "kv": 0.3 + 0.03 * noise(cycle, n), "queue": 0, "numGpuBlocks": 2400,
            "blockSize": 16, "meanInput": 100, "meanOutput": 100, "age": "1s", "work": work})
    };
    let entry = json!({"analyzerName": analyzer});
    let variant =
        json!({"name": "a", "accelerator": "H100", "current": 2, "replicas": [replica(0), replica(1)]});
    let model = json!({"modelID": "m", "namespace": "ns", "variants": [variant]});
    let snapshot = json!({"config": {"saturation": {"default": entry}}, "models": [model]});
    Snapshot { learned, ..Snapshot::parse(&snapshot.to_string()).unwrap() }
}

#[test]
fn noise_at_a_steady_load_causes_no_writes() {
    for (analyzer, reasons) in
        [("throughput", &["NoChange"][..]), ("saturation", &["NoChange"]), ("", &["ScaleDownSafe"])]
    {
        let (mut before, mut learned, mut writes) = (StatusFingerprint::default(), Vec::new(), Vec::new());
        let (mut seen, mut texts) = (BTreeSet::new(), BTreeSet::new());
        for cycle in 0..80 {
            let mut outcome = decide(&noisy(analyzer, cycle, learned));
            learned = outcome.next.learned.into_iter().map(|l| l.aged_by(Duration::from_secs(15))).collect();
            let decision = outcome.decisions.remove(0);
            // After the analyzer has learned the load and its trend.
            if cycle >= 30 {
                seen.insert(decision.reason().code());
                texts.insert(decision.reason().to_string());
            }
            if let Some(status) = desired_status(&published(decision), &before, at(0), INTERVAL) {
                before = StatusFingerprint::from_status(&status);
                writes.push(cycle);
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), reasons, "{analyzer:?}");
        assert!(texts.len() > 5, "the figures do not move: {texts:?}");
        assert!(writes.iter().all(|cycle| *cycle < 30), "{analyzer:?} was written in {writes:?}");
    }
}

#[test]
fn a_recommendation_is_shown_as_not_applied() {
    for (mode, applied) in [("auto", true), ("paused", true), ("recommend", false), ("fixed=2", true)] {
        let status = first(&steady(mode));
        assert_eq!(status.actuation.map(|a| a.applied), Some(applied), "{mode}");
        assert_eq!(status.desired_optimized_alloc.map(|a| a.num_replicas), Some(2), "{mode}");
    }
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let before = first(&without_target());
    let mut later = without_target();
    later.conditions = conditions(no_target("Deployment", "other", false));
    let second = desired_status(&later, &StatusFingerprint::from_status(&before), at(1), INTERVAL).unwrap();
    assert_eq!(second.conditions[0].last_transition_time, Time(at(0)));
    assert_ne!(second.conditions[0].message, before.conditions[0].message);
    let third =
        desired_status(&steady("auto"), &StatusFingerprint::from_status(&second), at(2), INTERVAL).unwrap();
    assert_eq!(third.conditions[0].last_transition_time, Time(at(2)));
}

/// A fake API server that accepts every patch. Revisions increase by ten.
fn accepting() -> FakeApi {
    FakeApi::with_rule(|request| {
        let version = (10 * (request.number + 1)).to_string();
        Some(Reply::Json(200, json!({"metadata": {"resourceVersion": version}})))
    })
}

fn failing(status: u16) -> FakeApi {
    FakeApi::with_rule(move |_| Some(Reply::Failure(status)))
}

fn publication(n: usize) -> Arc<Published> {
    Arc::new(fixture::publication((0..n).map(|i| (format!("v{i:03}"), steady("auto")))))
}

/// The scope of a controller that manages these variants.
fn ownership_view(names: impl IntoIterator<Item = String>) -> OwnershipView {
    let mut cluster = Cluster::new();
    for name in names {
        cluster.variant(&name, "m", json!({"metadata": {"uid": "u"}}));
    }
    cluster.ownership_view(Ownership::default())
}

/// A sender without a reader.
fn unread_targets() -> watch::Sender<StatusTargets> {
    watch::channel(StatusTargets::new()).0
}

fn writer(fake: &FakeApi) -> StatusWriter {
    StatusWriter::new(fake.client(), ownership_view((0..100).map(|i| format!("v{i:03}"))), unread_targets())
}

#[tokio::test]
async fn an_unchanged_status_is_not_written_again() {
    // A deleted object (404) needs no further write.
    for fake in [accepting(), failing(404)] {
        let mut writer = writer(&fake);
        assert!(writer.write_all(&publication(3)).await);
        assert!(writer.write_all(&publication(3)).await);
        let asked = fake.requests();
        assert_eq!(asked.len(), 3, "{asked:?}");
        // The writes are concurrent.
        let of_first = "PATCH /apis/llmd.ai/v1alpha1/namespaces/ns/variantautoscalings/v000/status";
        assert!(asked.iter().any(|request| request.line() == of_first), "{asked:?}");
    }
}

#[tokio::test]
async fn the_target_of_a_due_step_is_shown_once_written() {
    let workload = WorkloadKey { namespace: "ns".into(), kind: "Deployment".into(), name: "d".into() };
    let step = Step { workload, uid: "u".into(), from: 0, to: 1, permit: None, serving: ServingPods::Leader };
    let due = DueStep { variant: key("v000"), step, reason: String::new() };
    let published = Arc::new(Published { steps: vec![due], ..Arc::unwrap_or_clone(publication(2)) });
    let shown = target_entry(&published, &key("v000"));
    assert!(shown.is_some());
    for (fake, want) in [(accepting(), StatusTargets::from_iter(shown)), (failing(422), StatusTargets::new())]
    {
        let (sender, targets) = watch::channel(StatusTargets::from([(key("v000"), 9)]));
        let mut writer = StatusWriter::new(fake.client(), ownership_view(["v000".to_owned()]), sender);
        assert!(targets.borrow().is_empty(), "an earlier term's targets are dropped");
        for _ in 0..2 {
            writer.write_all(&published).await;
            assert_eq!(*targets.borrow(), want);
        }
    }
}

#[tokio::test]
async fn foreign_changes_of_a_status_are_reverted_by_the_next_cycle() {
    let fake = accepting();
    let mut cluster = Cluster::new();
    let mut seen = |revision: &str, status: Value| {
        let metadata = json!({"uid": "u", "resourceVersion": revision});
        cluster.variant("v000", "m", json!({"metadata": metadata, "status": status}));
        cluster.ownership_view(Ownership::default())
    };
    let mut writer = StatusWriter::new(fake.client(), seen("9", json!({})), unread_targets());
    let mut turn = async || {
        assert!(writer.write_all(&publication(1)).await);
        fake.requests().len()
    };
    let ours = json!(first(&steady("auto")));
    let mut foreign = ours.clone();
    foreign["desiredOptimizedAlloc"]["numReplicas"] = json!(9);
    // The first write gets revision 10, the second 20.
    assert_eq!([turn().await, turn().await], [1, 1], "the cache is behind");
    for (revision, status, want, why) in [
        ("10", &ours, 1, "the cache has caught up"),
        ("11", &ours, 1, "something else was changed"),
        ("12", &foreign, 2, "the status was changed"),
        ("12", &foreign, 2, "the cache is behind again"),
        ("20", &ours, 2, "the cache has caught up again"),
        ("21", &json!({}), 3, "the status was removed"),
        ("a later one", &foreign, 3, "the revision cannot be compared"),
    ] {
        seen(revision, status.clone());
        assert_eq!(turn().await, want, "{why}");
    }
}

#[tokio::test]
async fn unmanaged_variants_are_not_written() {
    let fake = accepting();
    let mut writer = StatusWriter::new(fake.client(), ownership_view(["v001".to_owned()]), unread_targets());
    assert!(writer.write_all(&publication(3)).await);
    assert_eq!(fake.requests().len(), 1, "{:?}", fake.requests());
}

#[tokio::test]
async fn a_refused_write_stops_no_other_and_is_retried() {
    let fake = failing(422);
    let mut writer = writer(&fake);
    assert!(!writer.write_all(&publication(20)).await);
    assert!(!writer.write_all(&publication(20)).await);
    assert_eq!(fake.requests().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_api_server_costs_one_timeout() {
    let fake = FakeApi::with_rule(|_| Some(Reply::Hang));
    let began = tokio::time::Instant::now();
    assert!(!writer(&fake).write_all(&publication(100)).await);
    assert!(began.elapsed() < 2 * WRITE_TIMEOUT, "{:?}", began.elapsed());
    assert!(fake.requests().len() <= 2 * CONCURRENCY);
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_retried_without_a_new_publication() {
    let fake = failing(409);
    let (sender, reader) = watch::channel(None);
    let running = tokio::spawn(writer(&fake).run(reader));
    sender.send_replace(Some(publication(1)));
    let three = async {
        while fake.requests().len() < 3 {
            tokio::time::sleep(FIRST_BACKOFF).await;
        }
    };
    tokio::time::timeout(4 * LONGEST_BACKOFF, three).await.expect("three attempts");
    drop(sender);
    running.await.unwrap();
}

/// A backup of etcd brings back older objects with older revisions.
#[tokio::test]
async fn a_restored_status_is_written_again() {
    let fake = accepting();
    let mut cluster = Cluster::new();
    cluster.variant("v000", "m", json!({"metadata": {"uid": "u", "resourceVersion": "3"}}));
    let view = cluster.ownership_view(Ownership::default());
    let mut writer = StatusWriter::new(fake.client(), view, unread_targets());
    for (minutes, want) in [(0, 1), (0, 1), (2, 2), (0, 2)] {
        for written in writer.written.values_mut() {
            written.at = written.at.checked_sub(Duration::from_mins(minutes)).unwrap();
        }
        assert!(writer.write_all(&publication(1)).await);
        assert_eq!(fake.requests().len(), want, "the cache is {minutes} minutes behind");
    }
}

/// A status of `steady` with a condition of another controller and the state of a newer release.
fn shared_status() -> Value {
    let mut status = json!(first(&steady("auto")));
    status["conditions"].as_array_mut().unwrap().insert(1, audited());
    status["controllerState"] = json!({"version": 2, "targetSeen": "since noon"});
    status
}

fn audited() -> Value {
    json!({"type": "team.example/Audited", "status": "True", "reason": "Seen", "message": "by an audit",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[tokio::test]
async fn what_others_wrote_to_a_status_stays() {
    let fake = accepting();
    let mut cluster = Cluster::new();
    let metadata = json!({"uid": "u", "resourceVersion": "9"});
    cluster.variant("v000", "m", json!({"metadata": metadata, "status": shared_status()}));
    let view = cluster.ownership_view(Ownership::default());
    let mut writer = StatusWriter::new(fake.client(), view, unread_targets());
    assert!(writer.write_all(&publication(1)).await);
    assert_eq!(fake.requests().len(), 0, "the status has what this release writes");
    for mode in ["paused", "auto"] {
        let changed = fixture::publication([("v000".to_owned(), steady(mode))]);
        assert!(writer.write_all(&Arc::new(changed)).await);
        let request = fake.requests().pop().unwrap();
        assert_eq!(request.body["status"]["conditions"][6], audited(), "{mode}");
        assert_eq!(request.body["status"].get("controllerState"), None, "{mode}");
        assert_eq!(request.body["metadata"]["resourceVersion"], if mode == "paused" { "9" } else { "10" });
    }
}

/// The cache does not show yet what another controller wrote.
#[tokio::test]
async fn a_condition_that_is_written_meanwhile_survives() {
    let mut newest = json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "v000", "namespace": "ns", "uid": "u", "resourceVersion": "8"}});
    newest["status"] = shared_status();
    let fake = FakeApi::with_rule(move |request| {
        Some(match request.number {
            0 => Reply::Failure(409),
            1 => Reply::Json(200, newest.clone()),
            _ => Reply::Json(200, json!({"metadata": {"resourceVersion": "11"}})),
        })
    });
    assert!(writer(&fake).write_all(&publication(1)).await);
    let asked = fake.requests();
    assert_eq!(asked.iter().map(|r| r.method.as_str()).collect::<Vec<_>>(), ["PATCH", "GET", "PATCH"]);
    assert_eq!(asked[0].body["status"]["conditions"].as_array().unwrap().len(), 6);
    assert_eq!(asked[2].body["status"]["conditions"][6], audited());
    assert_eq!(asked[2].body["metadata"]["resourceVersion"], "8");
    let conflicts = failing(409);
    assert!(!writer(&conflicts).write_all(&publication(1)).await, "it is retried later");
}
