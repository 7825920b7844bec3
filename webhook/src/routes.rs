//! What is served where, and one review from the first byte of its body to its answer: within a deadline, a bound on
//! its size, and another on all large ones together.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State as Extract};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use wva_runtime::server::Connection;

use crate::client_ca::UNVERIFIED;
use crate::review::{Answer, CONFIG_MAP_PATH, Call, MUTATE_PATH, Phase, State, VALIDATE_PATH, answer};
use crate::server::Limits;

#[derive(Clone)]
struct Context {
    state: Arc<State>,
    limits: Limits,
    /// Bytes for the large bodies in memory, while they arrive and until they are judged. Row "half of 7 MiB, then
    /// nothing" of `make test-bad-input`.
    memory: Arc<Semaphore>,
    /// One turn: each large review may take many times its body's size while it is parsed. Row "a hundred times its
    /// size".
    large: Arc<Semaphore>,
    /// The same for small ConfigMaps: no large body holds them up. Row "ConfigMap YAML".
    maps: Arc<Semaphore>,
}

/// Sets its flag when it is dropped: the answer is not awaited any more.
#[derive(Default)]
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The room for large bodies in memory, in the largest: one is judged while the next arrives.
const HELD: usize = 2;

/// Bodies up to here, in bytes, are judged where they are read; objects are a few thousand. As many as there are
/// connections can be in memory at once.
const SMALL: usize = 64 << 10;

/// The paths of the server, for tests without a socket.
pub fn router(state: Arc<State>, limits: Limits) -> Router {
    let [memory, large, maps] = [limits.body.saturating_mul(HELD).min(Semaphore::MAX_PERMITS), 1, 1]
        .map(|n| Arc::new(Semaphore::new(n)));
    let context = Context { state, limits, memory, large, maps };
    let unknown =
        || async { (StatusCode::NOT_FOUND, "no such path: see the paths of the webhook configurations\n") };
    Router::new()
        .route(MUTATE_PATH, post(|context, request| review(context, Phase::Mutate, request)))
        .route(VALIDATE_PATH, post(|context, request| review(context, Phase::Validate, request)))
        .route(CONFIG_MAP_PATH, post(|context, request| review(context, Phase::ConfigMap, request)))
        .fallback(unknown)
        .with_state(context)
}

async fn review(Extract(context): Extract<Context>, phase: Phase, request: Request) -> Response {
    let start = Instant::now();
    let most = within(context.limits.review, request.uri().query());
    let ca = context.state.settings.client_ca.as_deref();
    let peer = request.extensions().get().map(|connection: &Connection| &connection.peer);
    let answer = if ca.is_none_or(|ca| ca.verifies(peer)) {
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
    let Received { bytes, held } = match timeout_at(deadline, receive(context, body)).await {
        Ok(Ok(received)) => received,
        Ok(Err(answer)) => return answer,
        Err(_) => return Answer::unjudged(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive"),
    };
    let state = Arc::clone(&context.state);
    let cancel = Cancel::default();
    let cancelled = Arc::clone(&cancel.0);
    // With a CA, every call that comes this far is verified.
    let verified = state.settings.client_ca.is_some();
    let judge = move || answer(&state, phase, &bytes, Call { verified, cancelled: &cancelled });
    // The entries of a small ConfigMap can still be a lot of work; variants of that size are work of microseconds, and
    // another thread would cost more than they take.
    if held.is_none() && phase != Phase::ConfigMap {
        return std::panic::catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|_| failed());
    }
    // Parsing megabytes must not hold up the other connections of this thread. Turn and memory are free once the work is
    // done, which may be later than the answer.
    let turns = Arc::clone(if held.is_some() { &context.large } else { &context.maps });
    let judged = async {
        let turn = turns.acquire_owned().await;
        let work = move || {
            let _until_done = (turn, held);
            judge()
        };
        spawn_blocking(work).await
    };
    match timeout_at(deadline, judged).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => failed(),
        Err(_) => Answer::unjudged(StatusCode::GATEWAY_TIMEOUT, "the review took longer than it may"),
    }
}

/// A body, and the memory that it takes where it is large.
struct Received {
    bytes: Vec<u8>,
    held: Option<OwnedSemaphorePermit>,
}

/// Reads a body. One that turns out to be large waits for memory, for all that it has announced, before more of it is
/// read.
async fn receive(context: &Context, body: Body) -> Result<Received, Answer> {
    let limit = context.limits.body;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large(limit));
    }
    let (mut bytes, mut held) = (Vec::new(), None);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| unreadable(&error))?;
        let length = bytes.len() + chunk.len();
        if length > limit {
            return Err(too_large(limit));
        }
        if length > SMALL && held.is_none() {
            let room = if announced < length { limit } else { announced };
            let memory = Arc::clone(&context.memory);
            // Never closed.
            held = memory.acquire_many_owned(u32::try_from(room).unwrap_or(u32::MAX)).await.ok();
            bytes.reserve_exact(room - bytes.len());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Received { bytes, held })
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
}
