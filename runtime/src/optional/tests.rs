//! An optional kind that is installed, forbidden and removed, on a fake API server with a paused clock.

use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use wva_fakes::{FakeApi, Reply};

use super::*;
use crate::watch::config;
use crate::{SyncStatus, Tasks};

const HOUR: Duration = Duration::from_hours(1);

const PATH: &str = "/apis/keda.sh/v1alpha1/namespaces/ns/scaledobjects/a";

/// Response of the API server to requests for the kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Absent,
    Forbidden,
    /// One object; it may be listed, but not watched.
    ListOnly,
    Listed,
    Broken,
}

/// Sets the mode and ends all watches.
fn set_mode(server: &FakeApi, mode: Mode) {
    server.set_rule(move |request| {
        assert_eq!(request.path, "/apis/keda.sh/v1alpha1/scaledobjects");
        match mode {
            Mode::Absent => Some(Reply::Failure(404)),
            Mode::Broken => Some(Reply::Failure(500)),
            Mode::Forbidden => Some(Reply::Failure(403)),
            Mode::ListOnly => request.is_watch().then_some(Reply::Failure(403)),
            Mode::Listed => None,
        }
    });
    server.end_watches();
}

/// Starts the watch. Its events arrive as text.
fn start(
    mode: Mode,
) -> (FakeApi, watch::Receiver<Availability>, mpsc::UnboundedReceiver<String>, Tasks, SyncStatus) {
    let server = FakeApi::new();
    server.put(
        PATH,
        json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "a", "namespace": "ns"}}),
    );
    set_mode(&server, mode);
    let (mut tasks, mut synced) = (Tasks::default(), SyncStatus::default());
    let mut scope = WatchScope {
        client: server.client(),
        namespace: None,
        changed: Arc::new(Notify::new()),
        shutdown: CancellationToken::new(),
        synced: &mut synced,
        tasks: &mut tasks,
    };
    let (observed_sender, observed) = mpsc::unbounded_channel();
    let kind = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    let watch = OptionalWatch {
        task: "watch of ScaledObjects",
        name: "scaledobjects.keda.sh",
        api: scope.dynamic(&ApiResource::from_gvk(&kind)),
        config: config(),
    };
    let observe: Observer<DynamicObject> = Box::new(move |event| {
        let text = match event {
            Event::Init => "init".to_owned(),
            Event::InitDone => "done".to_owned(),
            Event::InitApply(o) | Event::Apply(o) | Event::Delete(o) => {
                o.metadata.name.clone().unwrap_or_default()
            }
        };
        let _ = observed_sender.send(text);
    });
    let watched = scope.watch_optional(watch, Projection { read: |_| (), is_same: None }, observe);
    (server, watched.availability.clone(), observed, tasks, synced)
}

async fn until(availability: &mut watch::Receiver<Availability>, want: Availability) {
    // The paused clock jumps to the next timer, so the hour takes no real time.
    let result = tokio::time::timeout(HOUR, availability.wait_for(|s| *s == want)).await;
    assert!(result.is_ok_and(|s| s.is_ok()), "it is not {want:?}");
}

async fn expect_events(observed: &mut mpsc::UnboundedReceiver<String>, all: &[&str], why: &str) {
    for want in all {
        let event = tokio::time::timeout(HOUR, observed.recv()).await.expect("no further event").unwrap();
        assert_eq!(event, *want, "{why}");
    }
}

/// Events of a list with the object, and of one without objects.
const LISTED: [&str; 3] = ["init", "a", "done"];
const EMPTIED: [&str; 2] = ["init", "done"];

#[tokio::test(start_paused = true)]
async fn watches_kind_once_installed_until_removed() {
    let (server, mut availability, mut observed, _tasks, synced) = start(Mode::Absent);
    assert!(!availability.borrow().is_complete(), "discovery has not answered yet");
    assert!(synced.is_complete(), "readiness does not wait for it");
    until(&mut availability, Availability::NotInstalled).await;
    assert!(availability.borrow().is_complete(), "a missing kind has no objects");
    set_mode(&server, Mode::Listed);
    let installed = tokio::time::Instant::now();
    until(&mut availability, Availability::Watched).await;
    assert!(installed.elapsed() <= LONGEST_PAUSE, "{:?}", installed.elapsed());
    expect_events(&mut observed, &LISTED, "it is watched").await;
    for (mode, want) in
        [(Mode::Absent, Availability::NotInstalled), (Mode::Forbidden, Availability::Forbidden)]
    {
        set_mode(&server, mode);
        until(&mut availability, want).await;
    }
    expect_events(&mut observed, &EMPTIED, "the objects are gone").await;
    assert!(!availability.borrow().is_complete(), "a forbidden kind may have objects");
}

#[tokio::test(start_paused = true)]
async fn keeps_objects_while_forbidden_until_kind_is_removed() {
    let (server, mut availability, mut observed, _tasks, _) = start(Mode::Listed);
    until(&mut availability, Availability::Watched).await;
    expect_events(&mut observed, &LISTED, "it is watched").await;
    availability.mark_unchanged();
    set_mode(&server, Mode::Forbidden);
    let before = server.requests().len();
    tokio::time::sleep(HOUR).await;
    assert!(
        observed.is_empty() && !availability.has_changed().unwrap(),
        "a revoked permission does not remove the objects"
    );
    assert!(server.requests().len() - before >= 60, "it retries");
    set_mode(&server, Mode::Listed);
    expect_events(&mut observed, &LISTED, "it is watched again").await;
    for (mode, wait) in [(Mode::Forbidden, HOUR), (Mode::Absent, LONGEST_PAUSE * 2)] {
        set_mode(&server, mode);
        tokio::time::sleep(wait).await;
    }
    until(&mut availability, Availability::NotInstalled).await;
    expect_events(&mut observed, &EMPTIED, "the objects are gone").await;
}

#[tokio::test(start_paused = true)]
async fn unavailable_kind_is_polled_slowly_and_reported_once() {
    for (mode, want) in [
        (Mode::Absent, Availability::NotInstalled),
        (Mode::Forbidden, Availability::Forbidden),
        (Mode::ListOnly, Availability::Forbidden),
        (Mode::Broken, Availability::Unknown),
    ] {
        let (server, mut availability, _observed, _tasks, _) = start(mode);
        until(&mut availability, want).await;
        availability.mark_unchanged();
        tokio::time::sleep(HOUR).await;
        let requests = server.requests().len();
        // Two requests each half minute; kube itself retries server errors.
        let max = if mode == Mode::Broken { 2000 } else { 260 };
        assert!((60..=max).contains(&requests), "{mode:?}: {requests} requests");
        assert!(!availability.has_changed().unwrap(), "{mode:?}: it was reported again");
    }
}
