//! Routes of the server. Each review has a deadline and a size limit; large bodies share a memory limit.

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
use crate::review::{Answer, CONFIG_MAP_PATH, Call, MUTATE_PATH, Phase, State, VALIDATE_PATH, answer_review};
use crate::server::Limits;

#[derive(Clone)]
struct Context {
    state: Arc<State>,
    limits: Limits,
    /// One permit for each byte of a large body, until its verdict. Row "half of 7 MiB, then nothing" of `make
    /// test-bad-input`.
    memory: Arc<Semaphore>,
    /// Parsing a large body takes a multiple of its size. Row "a hundred times its size".
    large_bodies: Arc<Semaphore>,
    /// Large bodies must not delay small ConfigMaps. Row "ConfigMap YAML".
    small_maps: Arc<Semaphore>,
}

/// Cancels on drop, when the caller no longer waits.
#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One is judged while the next arrives.
const LARGE_BODIES_IN_MEMORY: usize = 2;

/// Objects have a few thousand bytes. Each connection can have one small body in memory.
const SMALL_BODY: usize = 64 << 10;

/// Router of the server.
pub fn router(state: Arc<State>, limits: Limits) -> Router {
    let [memory, large_bodies, small_maps] =
        [limits.body.saturating_mul(LARGE_BODIES_IN_MEMORY).min(Semaphore::MAX_PERMITS), 1, 1]
            .map(|n| Arc::new(Semaphore::new(n)));
    let context = Context { state, limits, memory, large_bodies, small_maps };
    let unknown =
        || async { (StatusCode::NOT_FOUND, "no such path; use the paths of the webhook configurations\n") };
    Router::new()
        .route(MUTATE_PATH, post(|context, request| review(context, Phase::Mutate, request)))
        .route(VALIDATE_PATH, post(|context, request| review(context, Phase::Validate, request)))
        .route(CONFIG_MAP_PATH, post(|context, request| review(context, Phase::ConfigMap, request)))
        .fallback(unknown)
        .with_state(context)
}

async fn review(Extract(context): Extract<Context>, phase: Phase, request: Request) -> Response {
    let start = Instant::now();
    let time_limit = time_limit(context.limits.review, request.uri().query());
    let ca = context.state.settings.client_ca.as_deref();
    let peer = request.extensions().get().map(|connection: &Connection| &connection.peer);
    let answer = if ca.is_none_or(|ca| ca.verifies(peer)) {
        within_deadline(&context, phase, start + time_limit, request.into_body()).await
    } else {
        Answer::without_verdict(StatusCode::FORBIDDEN, UNVERIFIED)
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

/// `own`, or less if the API server asks for less (`?timeout=5s`); one fifth of that is reserved for the network.
fn time_limit(own: Duration, query: Option<&str>) -> Duration {
    let named = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let seconds = named.and_then(|text| text.strip_suffix('s')).and_then(|text| text.parse::<u32>().ok());
    let requested =
        seconds.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.into()) * 4 / 5);
    requested.map_or(own, |requested| requested.min(own))
}

async fn within_deadline(context: &Context, phase: Phase, deadline: Instant, body: Body) -> Answer {
    let ReceivedBody { bytes, permit } = match timeout_at(deadline, receive_body(context, body)).await {
        Ok(Ok(received)) => received,
        Ok(Err(answer)) => return answer,
        Err(_) => {
            return Answer::without_verdict(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive");
        }
    };
    let state = Arc::clone(&context.state);
    let cancel = CancelOnDrop::default();
    let cancelled = Arc::clone(&cancel.0);
    // With a client CA, unverified calls were refused before.
    let is_verified = state.settings.client_ca.is_some();
    let judge = move || answer_review(&state, phase, &bytes, Call { is_verified, cancelled: &cancelled });
    // Small variants take microseconds, less than a thread switch.
    if permit.is_none() && phase != Phase::ConfigMap {
        return std::panic::catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|_| panicked());
    }
    // Parsing megabytes must not delay other connections. The permits are released when the work ends, which may be
    // after the answer.
    let queue = Arc::clone(if permit.is_some() { &context.large_bodies } else { &context.small_maps });
    let judged = async {
        let turn = queue.acquire_owned().await;
        let work = move || {
            let _until_done = (turn, permit);
            judge()
        };
        spawn_blocking(work).await
    };
    match timeout_at(deadline, judged).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => panicked(),
        Err(_) => Answer::without_verdict(StatusCode::GATEWAY_TIMEOUT, "the review exceeded its time limit"),
    }
}

/// A body, with a memory permit if it is large.
struct ReceivedBody {
    bytes: Vec<u8>,
    permit: Option<OwnedSemaphorePermit>,
}

/// A large body waits for a memory permit before the rest is read.
async fn receive_body(context: &Context, body: Body) -> Result<ReceivedBody, Answer> {
    let limit = context.limits.body;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large(limit));
    }
    let (mut bytes, mut permit) = (Vec::new(), None);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| unreadable(&error))?;
        let length = bytes.len() + chunk.len();
        if length > limit {
            return Err(too_large(limit));
        }
        if length > SMALL_BODY && permit.is_none() {
            let reserved = if announced < length { limit } else { announced };
            let memory = Arc::clone(&context.memory);
            // Fails only if the semaphore is closed, which never happens.
            permit = memory.acquire_many_owned(u32::try_from(reserved).unwrap_or(u32::MAX)).await.ok();
            bytes.reserve_exact(reserved - bytes.len());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(ReceivedBody { bytes, permit })
}

fn panicked() -> Answer {
    tracing::error!("A review failed with a panic (logged above); please report this");
    Answer::without_verdict(StatusCode::INTERNAL_SERVER_ERROR, "the review failed; see the log of wva")
}

/// Answer to a client that disconnected.
fn unreadable(error: &axum::Error) -> Answer {
    Answer::without_verdict(StatusCode::BAD_REQUEST, format!("cannot read the body: {error}"))
}

fn too_large(limit: usize) -> Answer {
    let message = format!("the body exceeds {limit} bytes, more than two etcd objects can have");
    Answer::without_verdict(StatusCode::PAYLOAD_TOO_LARGE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limit_is_below_that_of_the_api_server_and_above_zero() {
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
            assert_eq!(time_limit(own, query), Duration::from_millis(milliseconds), "{query:?}");
        }
    }
}
