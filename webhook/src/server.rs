//! The HTTPS server around the reviews. Every resource that a client can hold is bounded: connections, the time for
//! a handshake, a header, a body, an idle connection, the body's size, and the time of one review.

use std::io;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State as Extract};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::connections::{Connections, Place};
use crate::patience::Patience;
use crate::review::{Answer, CONFIG_MAP_PATH, MUTATE_PATH, Phase, State, VALIDATE_PATH, answer};

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener cannot be used with the runtime.
    #[error("cannot listen for admission reviews on the given socket")]
    Listen {
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// What a client may take. The defaults fit an apiserver whose `timeoutSeconds` is 5.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. One more costs another its place: one that has asked nothing, where there is one.
    pub connections: usize,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for the header of a request.
    pub header: Duration,
    /// Time for body and verdict of a review together. Below `timeoutSeconds`, so that the person gets our message.
    pub review: Duration,
    /// How long a connection may be idle. Above the apiserver's own 90 seconds, so that it is the apiserver that
    /// closes: a review sent on a connection that is being closed would fail.
    pub idle: Duration,
    /// How long reviews under way may take after the end was asked for.
    pub drain: Duration,
    /// Bytes of a body: etcd's largest object (1.5 MiB) twice, encoded, with room.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            review: Duration::from_secs(4),
            idle: Duration::from_mins(2),
            drain: Duration::from_secs(10),
            body: 7 << 20,
        }
    }
}

/// Answers reviews until `shutdown`, then finishes those under way. [`serve_with`] with the default [`Limits`].
///
/// # Errors
/// When the listener cannot be used. A client's fault never ends the server.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    serve_with(listener, tls, state, shutdown, Limits::default()).await
}

/// Answers reviews within `limits` until `shutdown`, then finishes those under way.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve_with(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    state: Arc<State>,
    shutdown: CancellationToken,
    limits: Limits,
) -> Result<(), Error> {
    listener.set_nonblocking(true).map_err(|source| Error::Listen { source })?;
    // The standard library's 128 are full in milliseconds of a flood, and who is turned away asks again after a second.
    socket2::SockRef::from(&listener).listen(BACKLOG).map_err(|source| Error::Listen { source })?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(|source| Error::Listen { source })?;
    let acceptor = TlsAcceptor::from(tls);
    let router = router(state, limits);
    let places = Arc::new(Connections::at_most(limits.connections));
    let slots = Arc::new(Semaphore::new(limits.connections.max(1)));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "Cannot accept a connection: check the limit of open files");
                // Running out of files lasts; without a pause this loop would only heat the machine.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let place = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            place = places.admit() => place,
        };
        // A connection that has lost its place ends at once, but not before its task has run: until then it counts.
        let slot = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot,
        };
        let (acceptor, router, shutdown) = (acceptor.clone(), router.clone(), shutdown.clone());
        connections.spawn(async move {
            // The semaphore is never closed.
            let _slot = slot;
            let lost = place.lost();
            tokio::select! {
                () = lost => tracing::debug!("A connection was closed to make room for another"),
                () = connection(stream, acceptor, router, place, shutdown, limits) => {}
            }
        });
    }
    drop(listener);
    if timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(
            left = connections.len(),
            "Some reviews were cut off: they took longer than the drain"
        );
    }
    Ok(())
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    place: Place,
    shutdown: CancellationToken,
    limits: Limits,
) {
    let _ = stream.set_nodelay(true);
    let handshake = timeout(limits.handshake, acceptor.accept(stream));
    let stream = tokio::select! {
        () = shutdown.cancelled() => return,
        done = handshake => match done {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => return tracing::debug!("TLS handshake took too long"),
        },
    };
    requests(stream, router, place, shutdown, limits).await;
}

async fn requests(
    stream: TlsStream<TcpStream>,
    router: Router,
    place: Place,
    shutdown: CancellationToken,
    limits: Limits,
) {
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let activity = Arc::clone(&place.activity);
    let place = Arc::new(place);
    let service = tower::service_fn(move |request: hyper::Request<Incoming>| {
        let busy = place.activity.begin();
        let (router, place) = (router.clone(), Arc::clone(&place));
        async move {
            let response = router.oneshot(request).await;
            if response.as_ref().is_ok_and(|r| r.status() == StatusCode::OK) {
                place.judged();
            }
            drop(busy);
            response
        }
    });
    let service = TowerToHyperService::new(service);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(BUFFER);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(16).keep_alive_interval(limits.idle);
    // Frames other than headers may come at any time on HTTP/2, whose own keep-alive ends dead connections.
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    let result = if http2 {
        until_shutdown(builder.serve_connection(TokioIo::new(stream), service), shutdown, |c| {
            c.graceful_shutdown();
        })
        .await
    } else {
        let stream = TokioIo::new(Patience::new(stream, activity, limits.header));
        until_shutdown(builder.serve_connection(stream, service), shutdown, |c| {
            c.graceful_shutdown();
        })
        .await
    };
    if let Err(error) = result {
        tracing::debug!(error, "A connection ended with an error");
    }
}

/// Drives a connection; on shutdown it takes no further request and ends after the present one.
async fn until_shutdown<C, E>(
    connection: C,
    shutdown: CancellationToken,
    graceful: impl FnOnce(std::pin::Pin<&mut C>),
) -> Result<(), String>
where
    C: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        done = connection.as_mut() => return done.map_err(|e| e.to_string()),
        () = shutdown.cancelled() => graceful(connection.as_mut()),
    }
    connection.await.map_err(|e| e.to_string())
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The most bytes that a connection holds unread; hyper's own bound is 400 KiB, which a header that never ends would
/// fill. Headers of an API server are below 2 KiB.
const BUFFER: usize = 16 << 10;

#[derive(Clone)]
struct Context {
    state: Arc<State>,
    limits: Limits,
    /// Large bodies that are held at once: each may be megabytes.
    held: Arc<Semaphore>,
    large: mpsc::Sender<Job>,
}

/// The judging of one large review.
type Job = Box<dyn FnOnce() + Send>;

/// The thread that judges large reviews, one after another: each may take many times its body's size while it is
/// parsed, and every thread keeps for itself what it has freed. It ends with the last sender.
fn large_reviews() -> mpsc::Sender<Job> {
    let (sender, mut jobs) = mpsc::channel::<Job>(WAITING);
    let work = move || {
        while let Some(job) = jobs.blocking_recv() {
            job();
        }
    };
    if let Err(error) = std::thread::Builder::new().name("large-reviews".to_owned()).spawn(work) {
        tracing::error!(%error, "There is no thread for large reviews: they are not answered");
    }
    sender
}

/// Reviews that wait for the thread: large ones, which are fewer, and those of ConfigMaps.
const WAITING: usize = 64;

/// Large bodies in memory at once: one is judged while the next arrives.
const HELD: usize = 2;

/// Bodies up to here, in bytes, are judged where they are read; objects are a few thousand. As many as there are
/// connections can be in memory at once.
const SMALL: usize = 64 << 10;

/// The paths of the server, for tests without a socket.
pub fn router(state: Arc<State>, limits: Limits) -> Router {
    let unknown =
        || async { (StatusCode::NOT_FOUND, "no such path: see the paths of the webhook configurations\n") };
    Router::new()
        .route(MUTATE_PATH, post(|context, request| review(context, Phase::Mutate, request)))
        .route(VALIDATE_PATH, post(|context, request| review(context, Phase::Validate, request)))
        .route(CONFIG_MAP_PATH, post(|context, request| review(context, Phase::ConfigMap, request)))
        .fallback(unknown)
        .with_state(Context { state, limits, held: Arc::new(Semaphore::new(HELD)), large: large_reviews() })
}

async fn review(Extract(context): Extract<Context>, phase: Phase, request: Request) -> Response {
    let start = Instant::now();
    let answer = within_deadline(&context, phase, request.into_body()).await;
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

async fn within_deadline(context: &Context, phase: Phase, body: Body) -> Answer {
    let deadline = tokio::time::Instant::now() + context.limits.review;
    let received = match tokio::time::timeout_at(deadline, receive(context, body)).await {
        Ok(Ok(received)) => received,
        Ok(Err(answer)) => return answer,
        Err(_) => return Answer::unjudged(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive"),
    };
    let Received { bytes, held } = received;
    let state = Arc::clone(&context.state);
    let judge = move || match std::panic::catch_unwind(AssertUnwindSafe(|| answer(&state, phase, &bytes))) {
        Ok(answer) => answer,
        Err(_) => failed(),
    };
    // The entries of a small ConfigMap can still be a lot of work; variants of that size are work of microseconds, and
    // another thread would cost more than they take.
    if held.is_none() && phase != Phase::ConfigMap {
        return judge();
    }
    // Parsing megabytes must not hold up the other connections of this thread. The body is held until the work is
    // done, which may be later than the answer.
    let (sender, judged) = oneshot::channel();
    let job = Box::new(move || {
        drop(sender.send(judge()));
        drop(held);
    });
    if context.large.try_send(job).is_err() {
        return Answer::unjudged(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many large reviews at once: try again",
        );
    }
    match tokio::time::timeout_at(deadline, judged).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => failed(),
        Err(_) => Answer::unjudged(StatusCode::GATEWAY_TIMEOUT, "the review took longer than it may"),
    }
}

/// A body in memory, with its place among the large ones where it is one.
struct Received {
    bytes: Vec<u8>,
    held: Option<OwnedSemaphorePermit>,
}

/// Reads a body. One that grows large waits for its place before more of it is read.
async fn receive(context: &Context, body: Body) -> Result<Received, Answer> {
    let limit = context.limits.body;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(too_large(limit));
    }
    let mut received = Received { bytes: Vec::new(), held: None };
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| unreadable(&error))?;
        let length = received.bytes.len() + chunk.len();
        if length > limit {
            return Err(too_large(limit));
        }
        if length > SMALL && received.held.is_none() {
            // Never closed. Waiting ends with the review's deadline.
            received.held = Arc::clone(&context.held).acquire_owned().await.ok();
            // Once, and not by doubling, which would hold it three times over.
            received.bytes.reserve_exact(announced.max(length) - received.bytes.len());
        }
        received.bytes.extend_from_slice(&chunk);
    }
    Ok(received)
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
