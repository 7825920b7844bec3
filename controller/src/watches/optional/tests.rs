//! An optional kind that appears, is forbidden and goes away, on a fake API server and a clock that is moved.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use wva_fakes::{FakeApi, Reply};

use super::super::{Synced, Tasks};
use super::*;

const HOUR: Duration = Duration::from_hours(1);

const PATH: &str = "/apis/keda.sh/v1alpha1/namespaces/ns/scaledobjects/a";

/// What the API server does with requests for the kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Absent,
    Forbidden,
    /// One object; it may be listed, but not watched.
    ListOnly,
    Listed,
    Broken,
}

/// Watches end when the server changes its mind.
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

/// Starts the watch; what it observes comes as text.
fn start(mode: Mode) -> (FakeApi, watch::Receiver<Sight>, mpsc::UnboundedReceiver<String>, Tasks, Synced) {
    let server = FakeApi::new();
    server.put(
        PATH,
        json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "a", "namespace": "ns"}}),
    );
    set_mode(&server, mode);
    let (mut tasks, mut synced) = (Tasks::default(), Synced::default());
    let mut scope = Scope {
        client: server.client(),
        namespace: None,
        changed: Arc::new(Notify::new()),
        shutdown: CancellationToken::new(),
        synced: &mut synced,
        tasks: &mut tasks,
    };
    let (tell, told) = mpsc::unbounded_channel();
    let watched = scope.scaled_objects(Box::new(move |event| {
        let text = match event {
            Event::Init => "init".to_owned(),
            Event::InitDone => "done".to_owned(),
            Event::InitApply(o) | Event::Apply(o) | Event::Delete(o) => {
                o.metadata.name.clone().unwrap_or_default()
            }
        };
        let _ = tell.send(text);
    }));
    (server, watched.sight.clone(), told, tasks, synced)
}

async fn until(sight: &mut watch::Receiver<Sight>, want: Sight) {
    // The clock jumps to whatever is next: this is no real hour.
    let seen = tokio::time::timeout(HOUR, sight.wait_for(|s| *s == want)).await;
    assert!(seen.is_ok_and(|s| s.is_ok()), "it is not {want:?}");
}

async fn next(told: &mut mpsc::UnboundedReceiver<String>) -> String {
    tokio::time::timeout(HOUR, told.recv()).await.expect("nothing more is observed").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_followed_when_it_appears_and_forgotten_when_it_goes() {
    let (server, mut sight, mut told, _tasks, synced) = start(Mode::Absent);
    assert!(!sight.borrow().is_complete(), "nobody knows yet");
    assert!(synced.is_complete(), "readiness does not wait for it");
    until(&mut sight, Sight::Absent).await;
    assert!(sight.borrow().is_complete(), "there is nothing to see");
    set_mode(&server, Mode::Listed);
    let asked = tokio::time::Instant::now();
    until(&mut sight, Sight::Seen).await;
    assert!(asked.elapsed() <= LONGEST_PAUSE, "{:?}", asked.elapsed());
    for want in ["init", "a", "done"] {
        assert_eq!(next(&mut told).await, want);
    }
    for (mode, want) in [(Mode::Absent, Sight::Absent), (Mode::Forbidden, Sight::Forbidden)] {
        set_mode(&server, mode);
        until(&mut sight, want).await;
    }
    for want in ["init", "done"] {
        assert_eq!(next(&mut told).await, want, "what was seen is nothing any more");
    }
    assert!(!sight.borrow().is_complete(), "what is hidden may be there");
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_counts_on_where_it_is_forbidden_until_the_kind_goes() {
    let (server, mut sight, mut told, _tasks, _) = start(Mode::Listed);
    until(&mut sight, Sight::Seen).await;
    for want in ["init", "a", "done"] {
        assert_eq!(next(&mut told).await, want);
    }
    sight.mark_unchanged();
    set_mode(&server, Mode::Forbidden);
    let before = server.requests().len();
    tokio::time::sleep(HOUR).await;
    assert!(told.is_empty() && !sight.has_changed().unwrap(), "nothing says that the objects have gone");
    assert!(server.requests().len() - before >= 60, "it is asked for on and on");
    set_mode(&server, Mode::Listed);
    for want in ["init", "a", "done"] {
        assert_eq!(next(&mut told).await, want, "it is followed again");
    }
    for (mode, wait) in [(Mode::Forbidden, HOUR), (Mode::Absent, LONGEST_PAUSE * 2)] {
        set_mode(&server, mode);
        tokio::time::sleep(wait).await;
    }
    until(&mut sight, Sight::Absent).await;
    for want in ["init", "done"] {
        assert_eq!(next(&mut told).await, want, "what was seen is nothing any more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_stays_away_is_asked_for_seldom_and_told_once() {
    for (mode, want) in [
        (Mode::Absent, Sight::Absent),
        (Mode::Forbidden, Sight::Forbidden),
        (Mode::ListOnly, Sight::Forbidden),
        (Mode::Broken, Sight::Unknown),
    ] {
        let (server, mut sight, _told, _tasks, _) = start(mode);
        until(&mut sight, want).await;
        sight.mark_unchanged();
        tokio::time::sleep(HOUR).await;
        let requests = server.requests().len();
        // Two requests each half minute; kube itself repeats what failed on the server's side.
        let most = if mode == Mode::Broken { 2000 } else { 260 };
        assert!((60..=most).contains(&requests), "{mode:?}: {requests} requests");
        assert!(!sight.has_changed().unwrap(), "{mode:?}: it was told again");
    }
}
