//! The task that competes for the Lease, renews it, and gives it back. Every write has the resourceVersion of what was
//! read as its precondition, so that of two who take the Lease one fails.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use wva_certs::Clock;

use super::lease::{self, Observed};
use super::term::{Term, Validity, WorkLeft};
use super::{Leadership, State};

/// How long the work of a term may take to end before the Lease is given back all the same.
const HANDOVER: Duration = Duration::from_secs(3);
/// Shortest time for one call to the API server.
const SHORTEST_CALL: Duration = Duration::from_secs(1);
/// Pause before another look, where the Lease changed under a write.
const AT_ONCE: Duration = Duration::from_millis(50);

/// What to compete for, and how.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease: the controller's own.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// By what name this replica holds it: its pod's.
    pub identity: String,
    /// How long others wait after the last renewal they saw.
    pub lease_duration: Duration,
    /// How long a leader that cannot renew goes on; below `lease_duration`.
    pub renew_deadline: Duration,
    /// Time between two renewals, and between two looks of a follower; below `renew_deadline`.
    pub retry_period: Duration,
    /// How long a new leader shows no series.
    pub takeover_delay: Duration,
}

/// Gives what the rest of the program knows of the election, and its task, to be spawned by the caller. It ends at
/// `stopping`, after it has given the Lease back. `client` should not try again by itself.
pub fn elect(
    client: kube::Client,
    election: Election,
    clock: Clock,
    stopping: CancellationToken,
) -> (Leadership, impl Future<Output = ()> + Send + 'static) {
    let (state, reader) = watch::channel(State::default());
    let validity = Validity::expired(clock.clone());
    let leadership =
        Leadership { state: reader, validity: validity.clone(), takeover_delay: election.takeover_delay };
    let task = Task {
        api: Api::namespaced(client, &election.namespace),
        election,
        clock,
        state,
        validity,
        observed: Observed::default(),
        mine: None,
        unanswered: None,
    };
    (leadership, Box::pin(task.run(stopping)))
}

struct Task {
    api: Api<Lease>,
    election: Election,
    clock: Clock,
    state: watch::Sender<State>,
    validity: Validity,
    observed: Observed,
    /// What this process last wrote. The same name alone proves nothing: another process may have it.
    mine: Option<LeaseSpec>,
    /// A write of its own that may have been carried out, though no answer came.
    unanswered: Option<LeaseSpec>,
}

type Events = BoxStream<'static, Result<watcher::Event<Lease>, watcher::Error>>;

/// A renewal that was not.
enum Failed {
    /// Somebody else has the Lease.
    Lost,
    /// It changed in what says nothing of its holder, or is gone: the next attempt starts from here.
    Changed(Option<Box<Lease>>),
    /// The API server did not take it.
    Call(String),
}

/// Why a term ended.
enum End {
    Stopping,
    Lost,
}

impl Task {
    async fn run(mut self, stopping: CancellationToken) {
        // Only a hint to look at once: what counts is read and written with its resourceVersion.
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.election.name));
        let mut events = watcher(self.api.clone(), only).default_backoff().boxed();
        loop {
            let won = stopping.run_until_cancelled(self.compete(&mut events)).await;
            let Some((lease, at)) = won else { return };
            self.lead(lease, at, &mut events, &stopping).await;
            if stopping.is_cancelled() {
                return;
            }
        }
    }

    /// Waits until this replica holds the Lease. Gives it as it was written, and when the write was begun.
    async fn compete(&mut self, events: &mut Events) -> (Lease, (Instant, Timestamp)) {
        loop {
            let mut wait = self.election.retry_period;
            match self.call("read", self.api.get_opt(&self.election.name)).await {
                Ok(found) => {
                    let free_at = self.see(found.as_ref());
                    if Instant::now() >= free_at {
                        match self.take(found).await {
                            Ok(won) => return won,
                            Err(Failed::Call(error)) => self.complain(&error),
                            Err(Failed::Lost | Failed::Changed(_)) => wait = AT_ONCE,
                        }
                    } else {
                        wait = wait.min(free_at.saturating_duration_since(Instant::now()));
                    }
                }
                Err(error) => self.complain(&error.to_string()),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // The stream backs off by itself and never ends.
                _ = events.next() => {}
            }
        }
    }

    /// Takes in what the Lease says, and tells from when on it may be taken.
    fn see(&mut self, found: Option<&Lease>) -> Instant {
        let spec = found.and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(lease::holder).map(str::to_owned);
        self.state.send_if_modified(|state| {
            let differs = state.holder != holder;
            if differs && let Some(holder) = &holder {
                tracing::info!(lease = self.election.name, holder, "Another replica leads: standing by");
            }
            state.holder = holder;
            differs
        });
        let free_at = self.observed.see(found, Instant::now());
        // A term of this process that ended for want of an answer, and that nobody else has followed.
        if self.wrote(spec) { Instant::now() } else { free_at }
    }

    fn wrote(&self, spec: Option<&LeaseSpec>) -> bool {
        spec.is_some() && (spec == self.mine.as_ref() || spec == self.unanswered.as_ref())
    }

    async fn take(&mut self, found: Option<Lease>) -> Result<(Lease, (Instant, Timestamp)), Failed> {
        let at = self.validity.now();
        let e = &self.election;
        let exists = found.is_some();
        let lease = lease::taken(found, &e.name, &e.identity, e.lease_duration, (self.clock)());
        let written = self.write(exists, &lease).await?;
        Ok((written, at))
    }

    async fn write(&mut self, exists: bool, lease: &Lease) -> Result<Lease, Failed> {
        let params = PostParams::default();
        let written = if exists {
            self.call("renew", self.api.replace(&self.election.name, &params, lease)).await
        } else {
            self.call("create", self.api.create(&params, lease)).await
        };
        match written {
            Ok(lease) => Ok(lease),
            Err(CallError::Api { source, .. }) if code(&source) == Some(404) => Err(Failed::Changed(None)),
            Err(CallError::Api { source, .. }) if code(&source) == Some(409) => self.changed().await,
            Err(error) => {
                self.unanswered.clone_from(&lease.spec);
                Err(Failed::Call(error.to_string()))
            }
        }
    }

    /// Somebody wrote in between: who?
    async fn changed(&self) -> Result<Lease, Failed> {
        match self.call("read", self.api.get_opt(&self.election.name)).await {
            Ok(None) => Err(Failed::Changed(None)),
            // A label or an annotation, or a write of this process whose answer was lost.
            Ok(Some(found)) if self.wrote(found.spec.as_ref()) => Err(Failed::Changed(Some(Box::new(found)))),
            Ok(Some(_)) => Err(Failed::Lost),
            Err(error) => Err(Failed::Call(error.to_string())),
        }
    }

    /// One term: renews until it cannot any more, or is asked to stop.
    async fn lead(
        &mut self,
        lease: Lease,
        at: (Instant, Timestamp),
        events: &mut Events,
        stopping: &CancellationToken,
    ) {
        let left = self.begin(&lease, at, stopping);
        let mut held = Some(lease);
        let end = self.renew_while_possible(&mut held, at, events, stopping).await;
        self.end();
        if matches!(end, End::Stopping) {
            self.hand_over(held, left).await;
        }
    }

    fn begin(&mut self, lease: &Lease, at: (Instant, Timestamp), stopping: &CancellationToken) -> WorkLeft {
        let (term, left) = Term::begin(stopping);
        self.mine.clone_from(&lease.spec);
        self.observed.see(Some(lease), Instant::now());
        self.validity.extend(at, self.election.renew_deadline);
        self.state.send_replace(State { holder: Some(self.election.identity.clone()), term: Some(term) });
        tracing::info!(lease = self.election.name, identity = self.election.identity, "Leading");
        left
    }

    async fn renew_while_possible(
        &mut self,
        held: &mut Option<Lease>,
        began: (Instant, Timestamp),
        events: &mut Events,
        stopping: &CancellationToken,
    ) -> End {
        let mut deadline = began.0 + self.election.renew_deadline;
        let mut next = began.0 + self.election.retry_period;
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return End::Stopping,
                () = sleep_until(deadline) => return self.too_late(),
                Some(event) = events.next() => if !self.concerns(&event) { continue },
                () = sleep_until(next) => {}
            }
            // The one clock that goes on while a machine is suspended.
            if !self.validity.holds() {
                return self.too_late();
            }
            let at = self.validity.now();
            let renewed = tokio::select! {
                biased;
                () = stopping.cancelled() => return End::Stopping,
                () = sleep_until(deadline) => return self.too_late(),
                renewed = self.renew(held) => renewed,
            };
            match renewed {
                Ok(()) => {
                    self.validity.extend(at, self.election.renew_deadline);
                    deadline = at.0 + self.election.renew_deadline;
                    next = at.0 + self.election.retry_period;
                }
                Err(Failed::Lost) => {
                    tracing::warn!(lease = self.election.name, "Another replica has taken the Lease");
                    return End::Lost;
                }
                Err(Failed::Changed(found)) => {
                    *held = found.map(|lease| *lease);
                    next = Instant::now() + AT_ONCE;
                }
                Err(Failed::Call(error)) => {
                    tracing::warn!(
                        lease = self.election.name,
                        error,
                        "The Lease could not be renewed: trying again"
                    );
                    next = Instant::now() + self.election.retry_period;
                }
            }
        }
    }

    fn too_late(&self) -> End {
        tracing::warn!(
            lease = self.election.name,
            deadline = ?self.election.renew_deadline,
            "The Lease was not renewed in time: this replica stops acting before another may begin"
        );
        End::Lost
    }

    /// Whether an event may mean that the Lease is not this replica's any more. Its own renewals come by here, too.
    fn concerns(&self, event: &Result<watcher::Event<Lease>, watcher::Error>) -> bool {
        match event {
            Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => {
                lease.spec.as_ref().and_then(lease::holder) != Some(self.election.identity.as_str())
            }
            Ok(watcher::Event::Delete(_)) => true,
            Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => false,
        }
    }

    async fn renew(&mut self, held: &mut Option<Lease>) -> Result<(), Failed> {
        let e = &self.election;
        let now = (self.clock)();
        let exists = held.is_some();
        let lease = match held.clone() {
            Some(lease) => lease::renewed(lease, now),
            None => lease::taken(None, &e.name, &e.identity, e.lease_duration, now),
        };
        let written = self.write(exists, &lease).await?;
        self.mine.clone_from(&written.spec);
        self.observed.see(Some(&written), Instant::now());
        *held = Some(written);
        Ok(())
    }

    /// From here on nothing is let through, whatever the tasks of the term still do.
    fn end(&self) {
        self.validity.end();
        let term = self.state.send_replace(State::default()).term;
        if let Some(term) = term {
            term.ended.cancel();
        }
    }

    /// Gives the Lease back once the work of the term has ended, so that the next leader need not wait.
    async fn hand_over(&mut self, held: Option<Lease>, mut left: WorkLeft) {
        if timeout(HANDOVER, left.recv()).await.is_err() {
            tracing::warn!("Work of the leader has not ended in time: the Lease is given back all the same");
        }
        let mut held = held;
        // A renewal that was broken off may have been carried out.
        for _ in 0..2 {
            let Some(lease) = held else { return };
            match self.write(true, &lease::released(lease, (self.clock)())).await {
                Ok(_) => {
                    tracing::info!(lease = self.election.name, "Gave the Lease back");
                    return;
                }
                Err(Failed::Changed(found)) => held = found.map(|lease| *lease),
                Err(Failed::Lost) => held = self.still_mine().await,
                Err(Failed::Call(error)) => {
                    tracing::warn!(
                        lease = self.election.name,
                        error,
                        "The Lease could not be given back: it runs out by itself"
                    );
                    return;
                }
            }
        }
    }

    /// The Lease, where it bears this replica's name.
    async fn still_mine(&self) -> Option<Lease> {
        let found = self.call("read", self.api.get_opt(&self.election.name)).await.ok()??;
        let holder = found.spec.as_ref().and_then(lease::holder);
        (holder == Some(self.election.identity.as_str())).then_some(found)
    }

    fn complain(&self, error: &str) {
        tracing::warn!(lease = self.election.name, error, "Cannot compete for the Lease: trying again");
    }

    async fn call<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        let (namespace, name) = (self.election.namespace.clone(), self.election.name.clone());
        // Several attempts fit into the time that a leader has.
        let limit = self.election.retry_period.min(self.election.renew_deadline / 2).max(SHORTEST_CALL);
        match timeout(limit, call).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(source)) => Err(CallError::Api { doing, namespace, name, source: Box::new(source) }),
            Err(_) => Err(CallError::Slow { doing, namespace, name, limit }),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(
        "cannot {doing} Lease {namespace}/{name}: {source}; check that the role allows create, and get, list, watch and \
         update on it by name"
    )]
    Api { doing: &'static str, namespace: String, name: String, source: Box<kube::Error> },
    #[error("cannot {doing} Lease {namespace}/{name}: no answer from the API server in {limit:?}")]
    Slow { doing: &'static str, namespace: String, name: String, limit: Duration },
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
