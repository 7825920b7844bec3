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
use crate::fixture::{client, failure, response};

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
            response(200, &list)
        }
    }
}

/// The watch of the kind, and what it observes as text.
struct Watch {
    mode: watch::Sender<Mode>,
    requests: Arc<AtomicUsize>,
    sight: watch::Receiver<Sight>,
    told: mpsc::UnboundedReceiver<String>,
    synced: Synced,
    _tasks: Tasks,
}

fn start(mode: Mode) -> Watch {
    let (mode, modes) = watch::channel(mode);
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = requests.clone();
    let client = client(move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        answer(&request, modes.clone())
    });
    let (mut tasks, mut synced) = (Tasks::default(), Synced::default());
    let mut scope = Scope {
        client,
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
            Event::InitApply(o) | Event::Apply(o) | Event::Delete(o) => o.metadata.name.clone().unwrap(),
        };
        let _ = tell.send(text);
    }));
    Watch { mode, requests, sight: watched.sight.clone(), told, synced, _tasks: tasks }
}

impl Watch {
    fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    async fn until(&mut self, want: Sight) {
        // The clock jumps to whatever is next: this is no real hour.
        let seen = tokio::time::timeout(HOUR, self.sight.wait_for(|s| *s == want)).await;
        assert!(seen.is_ok_and(|s| s.is_ok()), "it is not {want:?}");
    }

    async fn check_observed(&mut self, events: &[&str]) {
        for want in events {
            let next = tokio::time::timeout(HOUR, self.told.recv()).await;
            assert_eq!(next.expect("nothing more is observed").as_deref(), Some(*want));
        }
    }
}

const LISTED: [&str; 3] = ["init", "a", "done"];
const FORGOTTEN: [&str; 2] = ["init", "done"];

#[tokio::test(start_paused = true)]
async fn a_kind_is_followed_when_it_appears_and_forgotten_when_it_goes() {
    let mut kind = start(Mode::Absent);
    assert!(!kind.sight.borrow().is_complete(), "it is not known yet");
    assert!(kind.synced.is_complete(), "readiness does not wait for it");
    kind.until(Sight::Absent).await;
    assert!(kind.sight.borrow().is_complete(), "there is nothing to see");
    kind.set(Mode::Listed);
    let asked = tokio::time::Instant::now();
    kind.until(Sight::Seen).await;
    assert!(asked.elapsed() <= LONGEST_PAUSE, "{:?}", asked.elapsed());
    kind.check_observed(&LISTED).await;
    for (mode, want) in [(Mode::Absent, Sight::Absent), (Mode::Forbidden, Sight::Forbidden)] {
        kind.set(mode);
        kind.until(want).await;
    }
    kind.check_observed(&FORGOTTEN).await;
    assert!(!kind.sight.borrow().is_complete(), "what is hidden may be there");
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_counts_on_where_it_is_forbidden_until_the_kind_goes() {
    let mut kind = start(Mode::Listed);
    kind.until(Sight::Seen).await;
    kind.check_observed(&LISTED).await;
    kind.sight.mark_unchanged();
    kind.set(Mode::Forbidden);
    let before = kind.requests();
    tokio::time::sleep(HOUR).await;
    assert!(kind.told.is_empty() && !kind.sight.has_changed().unwrap(), "the objects may still be there");
    assert!(kind.requests() - before >= 60, "it is asked for on and on");
    kind.set(Mode::Listed);
    kind.check_observed(&LISTED).await;
    for (mode, wait) in [(Mode::Forbidden, HOUR), (Mode::Absent, LONGEST_PAUSE * 2)] {
        kind.set(mode);
        tokio::time::sleep(wait).await;
    }
    kind.until(Sight::Absent).await;
    kind.check_observed(&FORGOTTEN).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_stays_away_is_asked_for_seldom_and_told_once() {
    for (mode, want) in [
        (Mode::Absent, Sight::Absent),
        (Mode::Forbidden, Sight::Forbidden),
        (Mode::ListOnly, Sight::Forbidden),
        (Mode::Broken, Sight::Unknown),
    ] {
        let mut kind = start(mode);
        kind.until(want).await;
        kind.sight.mark_unchanged();
        tokio::time::sleep(HOUR).await;
        let requests = kind.requests();
        // Two requests each half minute; kube itself repeats what failed on the server's side.
        let most = if mode == Mode::Broken { 2000 } else { 260 };
        assert!((60..=most).contains(&requests), "{mode:?}: {requests} requests");
        assert!(!kind.sight.has_changed().unwrap(), "{mode:?}: it was told again");
    }
}
