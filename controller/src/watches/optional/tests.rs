//! An optional kind that appears, is forbidden and goes away, on an API server that is a function and a clock that is
//! moved.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::super::{Synced, Tasks};
use super::*;

const HOUR: Duration = Duration::from_hours(1);

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

struct Server {
    mode: watch::Sender<Mode>,
    requests: Arc<AtomicUsize>,
}

fn failure(code: u16, reason: &str) -> Response<Body> {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code});
    Response::builder().status(code).body(Body::from(status.to_string())).unwrap()
}

fn answer(request: &Request<kube::client::Body>, mut mode: watch::Receiver<Mode>) -> Response<Body> {
    let watching = request.uri().query().unwrap_or_default().contains("watch=true");
    assert!(request.uri().path().ends_with("/apis/keda.sh/v1alpha1/scaledobjects"), "{}", request.uri());
    let now = *mode.borrow_and_update();
    match now {
        Mode::Absent => failure(404, "NotFound"),
        Mode::Broken => failure(500, "InternalError"),
        Mode::ListOnly if watching => failure(403, "Forbidden"),
        Mode::Forbidden => failure(403, "Forbidden"),
        // A watch that shows nothing, and ends when the server changes its mind.
        Mode::Listed if watching => Response::new(Body::from_stream(futures::stream::once(async move {
            let _ = mode.changed().await;
            Ok::<_, Infallible>("")
        }))),
        Mode::ListOnly | Mode::Listed => {
            let item = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
                "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "1", "managedFields": []}});
            let list = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObjectList",
                "metadata": {"resourceVersion": "1"}, "items": [item]});
            Response::new(Body::from(list.to_string()))
        }
    }
}

/// Starts the watch; what it observes comes as text.
fn start(mode: Mode) -> (Server, watch::Receiver<Sight>, mpsc::UnboundedReceiver<String>, Tasks, Synced) {
    let server = Server { mode: watch::channel(mode).0, requests: Arc::default() };
    let (modes, requests) = (server.mode.subscribe(), Arc::clone(&server.requests));
    let service = tower::service_fn(move |request| {
        requests.fetch_add(1, Ordering::Relaxed);
        let response = answer(&request, modes.clone());
        async move { Ok::<_, Infallible>(response) }
    });
    let (mut tasks, mut synced) = (Tasks::default(), Synced::default());
    let mut scope = Scope {
        client: kube::Client::new(service, "default"),
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
    server.mode.send_replace(Mode::Listed);
    let asked = tokio::time::Instant::now();
    until(&mut sight, Sight::Seen).await;
    assert!(asked.elapsed() <= LONGEST_PAUSE, "{:?}", asked.elapsed());
    for want in ["init", "a", "done"] {
        assert_eq!(next(&mut told).await, want);
    }
    for (mode, want) in [(Mode::Absent, Sight::Absent), (Mode::Forbidden, Sight::Forbidden)] {
        server.mode.send_replace(mode);
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
    server.mode.send_replace(Mode::Forbidden);
    let before = server.requests.load(Ordering::Relaxed);
    tokio::time::sleep(HOUR).await;
    assert!(told.is_empty() && !sight.has_changed().unwrap(), "nothing says that the objects have gone");
    assert!(server.requests.load(Ordering::Relaxed) - before >= 60, "it is asked for on and on");
    server.mode.send_replace(Mode::Listed);
    for want in ["init", "a", "done"] {
        assert_eq!(next(&mut told).await, want, "it is followed again");
    }
    for (mode, wait) in [(Mode::Forbidden, HOUR), (Mode::Absent, LONGEST_PAUSE * 2)] {
        server.mode.send_replace(mode);
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
        let requests = server.requests.load(Ordering::Relaxed);
        // Two requests each half minute; kube itself repeats what failed on the server's side.
        let most = if mode == Mode::Broken { 2000 } else { 260 };
        assert!((60..=most).contains(&requests), "{mode:?}: {requests} requests");
        assert!(!sight.has_changed().unwrap(), "{mode:?}: it was told again");
    }
}
