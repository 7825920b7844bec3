//! What is served where, and one review from the first byte of its body to its answer: within a deadline, a bound on
//! its size, and another on all large ones together.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes, HttpBody as _};
use axum::extract::{Request, State as Extract};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::client_ca::UNVERIFIED;
use crate::review::{Answer, CONFIG_MAP_PATH, Call, MUTATE_PATH, Phase, State, VALIDATE_PATH, answer};
use crate::server::{Error, Limits};
use crate::uploads::{Lost, Upload, Uploads};

#[derive(Clone)]
struct Context {
    state: Arc<State>,
    limits: Limits,
    uploads: Arc<Uploads>,
    large: mpsc::Sender<Job>,
    maps: mpsc::Sender<Job>,
}

/// The judging of one review.
type Job = Box<dyn FnOnce() + Send>;

/// Sets its flag when it is dropped: the answer is not awaited any more.
#[derive(Default)]
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread that judges reviews, one after another: each may take many times its body's size while it is parsed, and
/// every thread keeps for itself what it has freed. Small ConfigMaps have a thread of their own: no large body holds them
/// up. It ends with the last sender.
fn worker(thread: std::thread::Builder, name: &str) -> Result<mpsc::Sender<Job>, Error> {
    let (sender, mut jobs) = mpsc::channel::<Job>(WAITING);
    let work = move || {
        while let Some(job) = jobs.blocking_recv() {
            job();
        }
    };
    thread.name(name.to_owned()).spawn(work).map_err(|source| Error::Thread { source })?;
    Ok(sender)
}

/// Reviews that wait for a thread.
const WAITING: usize = 64;

/// The room for large bodies in memory, in the largest: one is judged while the next arrives.
const HELD: usize = 2;

/// Bodies up to here, in bytes, are judged where they are read; objects are a few thousand. As many as there are
/// connections can be in memory at once.
const SMALL: usize = 64 << 10;

/// The paths of the server, for tests without a socket.
///
/// # Errors
/// Where there is no thread for large reviews, which would never be answered.
pub fn router(state: Arc<State>, limits: Limits) -> Result<Router, Error> {
    let uploads = Arc::new(Uploads::at_most(limits.body.saturating_mul(HELD)));
    let [large, maps] =
        ["large-reviews", "map-reviews"].map(|name| worker(std::thread::Builder::new(), name));
    let context = Context { state, limits, uploads, large: large?, maps: maps? };
    let unknown =
        || async { (StatusCode::NOT_FOUND, "no such path: see the paths of the webhook configurations\n") };
    Ok(Router::new()
        .route(MUTATE_PATH, post(|context, request| review(context, Phase::Mutate, request)))
        .route(VALIDATE_PATH, post(|context, request| review(context, Phase::Validate, request)))
        .route(CONFIG_MAP_PATH, post(|context, request| review(context, Phase::ConfigMap, request)))
        .fallback(unknown)
        .with_state(context))
}

async fn review(Extract(context): Extract<Context>, phase: Phase, request: Request) -> Response {
    let start = Instant::now();
    let most = within(context.limits.review, request.uri().query());
    let ca = context.state.settings.client_ca.as_deref();
    let answer = if ca.is_none_or(|ca| ca.verifies(request.extensions().get())) {
        within_deadline(&context, phase, start + most, request.into_body()).await
    } else {
        Answer::unjudged(StatusCode::FORBIDDEN, UNVERIFIED)
    };
    let (resource, took) = (phase.resource(), start.elapsed());
    context.state.metrics.observe(resource, answer.operation, answer.allowed, answer.code, took);
    match answer.body {
        Ok(review) => {
            let json = [(header::CONTENT_TYPE, "application/json")];
            (answer.status, json, review.to_string()).into_response()
        }
        Err(message) => (answer.status, message + "\n").into_response(),
    }
}

/// The time for a review: our own, or less where the API server gives it less. It names its `timeoutSeconds` in the
/// query (`?timeout=5s`), and of that a fifth is left for the way to us and back.
fn within(own: Duration, query: Option<&str>) -> Duration {
    let named = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let seconds = named.and_then(|text| text.strip_suffix('s')).and_then(|text| text.parse::<u32>().ok());
    let given =
        seconds.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.into()) * 4 / 5);
    given.map_or(own, |given| given.min(own))
}

async fn within_deadline(context: &Context, phase: Phase, deadline: Instant, body: Body) -> Answer {
    let received = match tokio::time::timeout_at(deadline, receive(context, body)).await {
        Ok(Ok(received)) => received,
        Ok(Err(answer)) => return answer,
        Err(_) => return Answer::unjudged(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive"),
    };
    let Received { bytes, held } = received;
    let state = Arc::clone(&context.state);
    let cancel = Cancel::default();
    let cancelled = Arc::clone(&cancel.0);
    // With a CA, every call that comes this far is verified.
    let verified = state.settings.client_ca.is_some();
    let judge = move || {
        let call = Call { verified, cancelled: &cancelled };
        std::panic::catch_unwind(AssertUnwindSafe(|| answer(&state, phase, &bytes, call)))
            .unwrap_or_else(|_| failed())
    };
    // The entries of a small ConfigMap can still be a lot of work; variants of that size are work of microseconds, and
    // another thread would cost more than they take.
    if held.is_none() && phase != Phase::ConfigMap {
        return judge();
    }
    // Parsing megabytes must not hold up the other connections of this thread. The body is held until the work is
    // done, which may be later than the answer.
    let (sender, judged) = oneshot::channel();
    let worker = if held.is_some() { &context.large } else { &context.maps };
    let job = Box::new(move || {
        // One whose deadline is over before its turn is not judged at all.
        if !sender.is_closed() {
            drop(sender.send(judge()));
        }
        drop(held);
    });
    if worker.try_send(job).is_err() {
        return too_many();
    }
    let answered = tokio::time::timeout_at(deadline, judged).await;
    drop(cancel);
    match answered {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => failed(),
        Err(_) => Answer::unjudged(StatusCode::GATEWAY_TIMEOUT, "the review took longer than it may"),
    }
}

/// A body in memory, with its place among the large ones where it is one.
struct Received {
    bytes: Vec<u8>,
    held: Option<Upload>,
}

/// Reads a body. One that grows large needs a place before more of it is read, and can lose it to another.
async fn receive(context: &Context, body: Body) -> Result<Received, Answer> {
    let limit = context.limits.body;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large(limit));
    }
    let mut received = Received { bytes: Vec::new(), held: None };
    let mut room = SMALL;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = next(&mut chunks, received.held.as_ref()).await? {
        let length = received.bytes.len() + chunk.len();
        if length > limit {
            return Err(too_large(limit));
        }
        if length > room {
            room = larger(length, announced, limit);
            let held = received.held.get_or_insert_with(|| context.uploads.begin());
            held.grow(room).await.map_err(|Lost| too_many())?;
            received.bytes.reserve_exact(room - received.bytes.len());
        }
        received.bytes.extend_from_slice(&chunk);
        if let Some(held) = &received.held {
            held.received(length);
        }
    }
    if let Some(held) = &received.held {
        held.complete();
    }
    Ok(received)
}

/// The next part of a body, unless its place is lost before it comes.
async fn next(chunks: &mut BodyDataStream, held: Option<&Upload>) -> Result<Option<Bytes>, Answer> {
    let chunk = match held {
        None => chunks.next().await,
        Some(held) => tokio::select! {
            biased;
            () = held.lost() => return Err(too_many()),
            chunk = chunks.next() => chunk,
        },
    };
    chunk.transpose().map_err(|error| unreadable(&error))
}

/// Room for a body that has come to `length`. In few steps, and never for all that was announced at once: who announces
/// much and sends little takes little.
fn larger(length: usize, announced: usize, limit: usize) -> usize {
    let step = length.saturating_mul(4).min(limit);
    if announced >= length { step.min(announced) } else { step }
}

fn too_many() -> Answer {
    Answer::unjudged(StatusCode::SERVICE_UNAVAILABLE, "too many large reviews at once: try again")
}

fn failed() -> Answer {
    tracing::error!("A review failed, by a panic that stands above: please report this");
    Answer::unjudged(StatusCode::INTERNAL_SERVER_ERROR, "the review failed: see the log of wva")
}

/// A client that went away or broke off.
fn unreadable(error: &axum::Error) -> Answer {
    Answer::unjudged(StatusCode::BAD_REQUEST, format!("the body could not be read: {error}"))
}

fn too_large(limit: usize) -> Answer {
    let message = format!("the body is larger than {limit} bytes, more than two objects of etcd can be");
    Answer::unjudged(StatusCode::PAYLOAD_TOO_LARGE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_takes_less_than_the_api_server_gives_it_and_never_nothing() {
        let own = Duration::from_secs(4);
        for (query, milliseconds) in [
            (None, 4000),
            (Some("timeout=1s"), 800),
            (Some("a=b&timeout=3s"), 2400),
            (Some("timeout=5s"), 4000),
            (Some("timeout=30s"), 4000),
            (Some("timeout=0s"), 4000),
            (Some("timeout=-1s"), 4000),
            (Some("timeout=soon&timeout"), 4000),
            (Some("timeout=99999999999s"), 4000),
        ] {
            assert_eq!(within(own, query), Duration::from_millis(milliseconds), "{query:?}");
        }
    }

    #[test]
    fn without_a_thread_for_large_reviews_there_is_no_server() {
        // More than any machine has of addresses.
        let impossible = std::thread::Builder::new().stack_size(1 << 50);
        assert!(matches!(worker(impossible, "t"), Err(Error::Thread { .. })));
    }
}
