//! The task that competes for the Lease, renews it, and gives it back. Every write has the resourceVersion of what was
//! read as its precondition, so that of two who take the Lease one fails.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::lease::{self, Observed};
use super::stored::{CallError, News, Refused, StoredLease};
use super::term::{Moment, Term, Validity, WorkLeft};
use super::{Leadership, State};
use crate::Clock;
use crate::repeats::RepeatCounter;

/// How long the work of a term may take to end before the Lease is given back all the same.
const HANDOVER: Duration = Duration::from_secs(3);
/// Shortest time for one call to the API server.
const SHORTEST_CALL: Duration = Duration::from_secs(1);
/// Pause before another look, where the Lease changed under a write.
const AT_ONCE: Duration = Duration::from_millis(50);
/// A process that has just started and finds no Lease looks again after this: a leader whose Lease somebody deleted
/// makes it anew as soon as its watch tells it.
const FIRST_LOOK: Duration = Duration::from_secs(1);

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
    // Several attempts fit into the time that a leader has.
    let limit = election.retry_period.min(election.renew_deadline / 2).max(SHORTEST_CALL);
    let task = Task {
        stored: StoredLease::new(client, &election.namespace, &election.name, limit),
        election,
        clock,
        state,
        validity,
        observed: Observed::default(),
        acquired: None,
        failures: RepeatCounter::default(),
    };
    (leadership, Box::pin(task.run(stopping)))
}

struct Task {
    stored: StoredLease,
    election: Election,
    clock: Clock,
    state: watch::Sender<State>,
    validity: Validity,
    observed: Observed,
    /// When this process last took the Lease, or tried to: with its name the mark of a Lease that is its own, whether
    /// or not it heard of it. The name alone proves nothing: another process may have the same.
    acquired: Option<MicroTime>,
    /// Failed attempts to compete.
    failures: RepeatCounter,
}

/// A Lease that this replica took.
struct TakenLease {
    /// As it was written.
    lease: Lease,
    /// When the write was begun.
    at: Moment,
}

/// A renewal that was not.
enum Failed {
    /// Somebody else has the Lease.
    Lost,
    /// It changed in what says nothing of its holder, or is gone: the next attempt starts from here.
    Changed(Option<Box<Lease>>),
    /// The API server did not take it.
    Call(CallError),
}

/// Why a term ended.
enum End {
    Stopping,
    Lost,
}

impl Task {
    async fn run(mut self, stopping: CancellationToken) {
        let mut news = self.stored.news();
        while let Some(TakenLease { lease, at }) = self.compete(&mut news, &stopping).await {
            self.lead(lease, at, &mut news, &stopping).await;
        }
        self.give_back().await;
    }

    /// Waits until this replica holds the Lease; `None` where it is to stop.
    async fn compete(&mut self, news: &mut News, stopping: &CancellationToken) -> Option<TakenLease> {
        let began = Instant::now();
        self.failures = RepeatCounter::default();
        loop {
            let mut wait = self.election.retry_period;
            match stopping.run_until_cancelled(self.stored.read()).await? {
                Ok(None) if self.acquired.is_none() && began.elapsed() < FIRST_LOOK => {
                    wait = wait.min(FIRST_LOOK);
                }
                Ok(found) => {
                    let free_at = self.see(found.as_ref());
                    if Instant::now() >= free_at {
                        match self.take(found).await {
                            Ok(taken) => return Some(taken),
                            Err(Failed::Call(error)) => self.complain(&error),
                            Err(Failed::Lost | Failed::Changed(_)) => wait = AT_ONCE,
                        }
                    } else {
                        self.failures = RepeatCounter::default();
                        wait = wait.min(free_at.saturating_duration_since(Instant::now()));
                    }
                }
                Err(error) => self.complain(&error),
            }
            tokio::select! {
                () = stopping.cancelled() => return None,
                () = tokio::time::sleep(wait) => {}
                _ = news.next() => {}
            }
        }
    }

    /// Takes in what the Lease says, and tells from when on it may be taken.
    fn see(&mut self, found: Option<&Lease>) -> Instant {
        let spec = found.and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(lease::holder).map(str::to_owned);
        self.state.send_if_modified(|state| {
            let differs = state.holder != holder;
            let other = holder.as_ref().filter(|holder| **holder != self.election.identity);
            if differs && let Some(holder) = other {
                tracing::info!(lease = self.election.name, holder, "Another replica leads: standing by");
            }
            state.holder = holder;
            differs
        });
        let free_at = self.observed.see(found, Instant::now());
        // A term of this process that ended for want of an answer, and that nobody else has followed.
        if self.is_mine(spec) { Instant::now() } else { free_at }
    }

    fn is_mine(&self, spec: Option<&LeaseSpec>) -> bool {
        spec.is_some_and(|spec| {
            lease::holder(spec) == Some(self.election.identity.as_str())
                && self.acquired.is_some()
                && spec.acquire_time == self.acquired
        })
    }

    async fn take(&mut self, found: Option<Lease>) -> Result<TakenLease, Failed> {
        let at = self.validity.now();
        let e = &self.election;
        let exists = found.is_some();
        let lease = lease::taken(found, &e.name, &e.identity, e.lease_duration, (self.clock)());
        self.acquired = lease.spec.as_ref().and_then(|spec| spec.acquire_time.clone());
        let lease = self.write(exists, &lease).await?;
        Ok(TakenLease { lease, at })
    }

    async fn write(&self, exists: bool, lease: &Lease) -> Result<Lease, Failed> {
        match self.stored.write(exists, lease).await {
            Ok(lease) => Ok(lease),
            Err(Refused::Call(error)) => Err(Failed::Call(error)),
            // Somebody wrote in between: who?
            Err(Refused::Changed) => match self.stored.read().await {
                Ok(None) => Err(Failed::Changed(None)),
                // A label or an annotation, or a write of this process whose answer was lost.
                Ok(Some(found)) if self.is_mine(found.spec.as_ref()) => {
                    Err(Failed::Changed(Some(Box::new(found))))
                }
                Ok(Some(_)) => Err(Failed::Lost),
                Err(error) => Err(Failed::Call(error)),
            },
        }
    }

    /// One term: renews until it cannot any more, or is asked to stop.
    async fn lead(&mut self, lease: Lease, at: Moment, news: &mut News, stopping: &CancellationToken) {
        let mut left = self.begin(&lease, at, stopping);
        let end = self.renew_while_possible(lease, at, news, stopping).await;
        self.end();
        // The Lease is given back once the work of the term has ended, so that the next leader need not wait.
        if matches!(end, End::Stopping) && timeout(HANDOVER, left.recv()).await.is_err() {
            tracing::warn!("Work of the leader has not ended in time: the Lease is given back all the same");
        }
    }

    fn begin(&mut self, lease: &Lease, at: Moment, stopping: &CancellationToken) -> WorkLeft {
        let (term, left) = Term::begin(stopping);
        self.observed.see(Some(lease), Instant::now());
        self.validity.extend(at, self.election.renew_deadline);
        self.state.send_replace(State { holder: Some(self.election.identity.clone()), term: Some(term) });
        tracing::info!(lease = self.election.name, identity = self.election.identity, "Leading");
        left
    }

    async fn renew_while_possible(
        &mut self,
        lease: Lease,
        began: Moment,
        news: &mut News,
        stopping: &CancellationToken,
    ) -> End {
        let mut held = Some(lease);
        let (renew_deadline, retry_period) = (self.election.renew_deadline, self.election.retry_period);
        let mut deadline = began.monotonic + renew_deadline;
        let mut next = began.monotonic + retry_period;
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return End::Stopping,
                () = sleep_until(deadline) => return self.too_late(),
                // Its own renewals come by here, too.
                Some(holder) = news.next() => if holder.as_ref() == Some(&self.election.identity) { continue },
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
                renewed = self.renew(&mut held) => renewed,
            };
            next = match renewed {
                Ok(()) => {
                    self.validity.extend(at, renew_deadline);
                    deadline = at.monotonic + renew_deadline;
                    at.monotonic + retry_period
                }
                Err(Failed::Lost) => return self.taken(),
                Err(Failed::Changed(found)) => {
                    held = found.map(|lease| *lease);
                    Instant::now() + AT_ONCE
                }
                Err(Failed::Call(error)) => {
                    self.not_renewed(&error);
                    (at.monotonic + retry_period).max(Instant::now() + AT_ONCE)
                }
            };
        }
    }

    fn taken(&self) -> End {
        tracing::warn!(lease = self.election.name, "Another replica has taken the Lease");
        End::Lost
    }

    fn not_renewed(&self, error: &CallError) {
        tracing::warn!(lease = self.election.name, %error, "The Lease could not be renewed: trying again");
    }

    fn too_late(&self) -> End {
        tracing::warn!(
            lease = self.election.name,
            deadline = ?self.election.renew_deadline,
            "The Lease was not renewed in time: this replica stops acting before another may begin"
        );
        End::Lost
    }

    async fn renew(&mut self, held: &mut Option<Lease>) -> Result<(), Failed> {
        let e = &self.election;
        let now = (self.clock)();
        let exists = held.is_some();
        let lease = match held.clone() {
            Some(lease) => lease::renewed(lease, now),
            None => lease::taken(None, &e.name, &e.identity, e.lease_duration, now),
        };
        self.acquired = lease.spec.as_ref().and_then(|spec| spec.acquire_time.clone());
        let written = self.write(exists, &lease).await?;
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

    /// Gives back what is this replica's, among it what it does not know of: a write that was broken off may have been
    /// carried out.
    async fn give_back(&self) {
        // Once more where a label was changed in between.
        for _ in 0..2 {
            if self.acquired.is_none() {
                return;
            }
            let released = match self.stored.read().await {
                Ok(Some(found)) if self.is_mine(found.spec.as_ref()) => {
                    self.stored.write(true, &lease::released(found, (self.clock)())).await
                }
                Ok(_) => return,
                Err(error) => Err(Refused::Call(error)),
            };
            match released {
                Ok(_) => return tracing::info!(lease = self.election.name, "Gave the Lease back"),
                Err(Refused::Changed) => {}
                Err(Refused::Call(error)) => {
                    let lease = &self.election.name;
                    return tracing::warn!(lease, %error, "The Lease could not be given back: it runs out by itself");
                }
            }
        }
    }

    /// Logs that it cannot compete, where it was not so a moment ago.
    fn complain(&mut self, error: &CallError) {
        if let Some(stage) = self.failures.note(true, Instant::now().into_std()) {
            let (lease, count) = (&self.election.name, stage.count());
            tracing::warn!(lease, %error, count, "Cannot compete for the Lease: trying again");
        }
    }
}
