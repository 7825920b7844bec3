//! How long a connection may take over the headers of a request. hyper has one timer for a slow header and an idle
//! connection; they must differ, since the apiserver keeps idle connections for 90 seconds and a review sent on one
//! that is just being closed would fail, while a client that sends its header byte by byte must go much sooner.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use wva_runtime::connections::Activity;

/// A stream whose reads fail once a header has been under way for too long. The first header's time starts with the
/// connection, a later one's with its first byte.
#[derive(Debug)]
pub(crate) struct Patience<S> {
    inner: S,
    activity: Arc<Activity>,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    /// The number of requests that had begun when the timer was set; it is void once another has.
    armed: Option<usize>,
}

impl<S> Patience<S> {
    pub(crate) fn new(inner: S, activity: Arc<Activity>, limit: Duration) -> Self {
        Self { inner, activity, limit, timer: Box::pin(sleep(limit)), armed: Some(0) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let begun = this.activity.started();
        this.armed = this.armed.filter(|at| *at == begun);
        let before = buf.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        if read.is_ready() {
            if buf.filled().len() > before && !this.activity.busy() && this.armed.is_none() {
                this.armed = Some(begun);
                this.timer.as_mut().reset(Instant::now() + this.limit);
            }
            // A client that always has one more byte ready must not slip past the timer.
            if this.armed.is_none() || Instant::now() < this.timer.deadline() {
                return read;
            }
        }
        if this.armed.is_some() && this.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the request's header took too long",
            )));
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
