//! Acquires, renews and releases the Lease. Every write has the last resourceVersion as its precondition.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::lease::{self, LeaseObservation};
use super::lease_store::{CallError, HolderChanges, LeaseStore, WriteError};
use super::term::{Moment, Term, Validity, WorkDone};
use super::{Leadership, State};
use crate::Clock;
use crate::repeats::RepeatCounter;

/// Longest time for a term's work to end. After it, the Lease is released all the same.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(3);
const MIN_CALL_TIMEOUT: Duration = Duration::from_secs(1);
const CONFLICT_RETRY: Duration = Duration::from_millis(50);
/// Wait of a new process before it creates a missing Lease. A leader whose Lease was deleted re-creates it at once.
const FIRST_CREATE_DELAY: Duration = Duration::from_secs(1);

/// Settings of the election.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease: the controller's own.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of this replica as holder: its pod name.
    pub identity: String,
    /// Time that other replicas wait after the last renewal.
    pub lease_duration: Duration,
    /// Time after which a leader that cannot renew stops acting; below `lease_duration`.
    pub renew_deadline: Duration,
    /// Time between two renewals or reads; below `renew_deadline`.
    pub retry_period: Duration,
    /// Time from the start of a term until its series are published.
    pub takeover_delay: Duration,
}

/// Returns the handle and the task, which ends at `stopping`, after it has released the Lease. `client` should not
/// retry.
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
    // Leaves a leader time for several attempts before its deadline.
    let limit = election.retry_period.min(election.renew_deadline / 2).max(MIN_CALL_TIMEOUT);
    let task = ElectionTask {
        store: LeaseStore::new(client, &election.namespace, &election.name, limit),
        election,
        clock,
        state,
        validity,
        observation: LeaseObservation::default(),
        acquired: None,
        failures: RepeatCounter::default(),
    };
    (leadership, Box::pin(task.run(stopping)))
}

struct ElectionTask {
    store: LeaseStore,
    election: Election,
    clock: Clock,
    state: watch::Sender<State>,
    validity: Validity,
    observation: LeaseObservation,
    /// Last attempt of this process to acquire the Lease. With the name it identifies its own Lease, even if the answer
    /// was lost. The name alone does not: another process may have the same.
    acquired: Option<MicroTime>,
    failures: RepeatCounter,
}

struct AcquiredLease {
    lease: Lease,
    at: Moment,
}

enum RenewError {
    Lost,
    /// Deleted, or changed without a change of its holder. The next attempt starts from its new state.
    Changed(Option<Box<Lease>>),
    Call(CallError),
}

enum TermEnd {
    Stopping,
    Lost,
}

impl ElectionTask {
    async fn run(mut self, stopping: CancellationToken) {
        let mut changes = self.store.watch_holder();
        while let Some(AcquiredLease { lease, at }) = self.compete(&mut changes, &stopping).await {
            self.run_term(lease, at, &mut changes, &stopping).await;
        }
        self.release().await;
    }

    /// `None` when it should stop.
    async fn compete(
        &mut self,
        changes: &mut HolderChanges,
        stopping: &CancellationToken,
    ) -> Option<AcquiredLease> {
        let started = Instant::now();
        self.failures = RepeatCounter::default();
        loop {
            let mut wait = self.election.retry_period;
            match stopping.run_until_cancelled(self.store.read()).await? {
                Ok(None) if self.acquired.is_none() && started.elapsed() < FIRST_CREATE_DELAY => {
                    wait = wait.min(FIRST_CREATE_DELAY);
                }
                Ok(found) => {
                    let free_at = self.record_lease(found.as_ref());
                    if Instant::now() >= free_at {
                        match self.acquire(found).await {
                            Ok(taken) => return Some(taken),
                            Err(RenewError::Call(error)) => self.log_failure(&error),
                            Err(RenewError::Lost | RenewError::Changed(_)) => wait = CONFLICT_RETRY,
                        }
                    } else {
                        self.failures = RepeatCounter::default();
                        wait = wait.min(free_at.saturating_duration_since(Instant::now()));
                    }
                }
                Err(error) => self.log_failure(&error),
            }
            tokio::select! {
                () = stopping.cancelled() => return None,
                () = tokio::time::sleep(wait) => {}
                _ = changes.next() => {}
            }
        }
    }

    /// Returns the time from which the Lease may be acquired.
    fn record_lease(&mut self, found: Option<&Lease>) -> Instant {
        let spec = found.and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(lease::holder).map(str::to_owned);
        self.state.send_if_modified(|state| {
            let differs = state.holder != holder;
            let other = holder.as_ref().filter(|holder| **holder != self.election.identity);
            if differs && let Some(holder) = other {
                tracing::info!(lease = self.election.name, holder, "Another replica leads; standing by");
            }
            state.holder = holder;
            differs
        });
        let free_at = self.observation.record(found, Instant::now());
        // An earlier term of this process ended without an answer.
        if self.is_own(spec) { Instant::now() } else { free_at }
    }

    fn is_own(&self, spec: Option<&LeaseSpec>) -> bool {
        spec.is_some_and(|spec| {
            lease::holder(spec) == Some(self.election.identity.as_str())
                && self.acquired.is_some()
                && spec.acquire_time == self.acquired
        })
    }

    async fn acquire(&mut self, found: Option<Lease>) -> Result<AcquiredLease, RenewError> {
        let at = self.validity.now();
        let e = &self.election;
        let exists = found.is_some();
        let lease = lease::acquired(found, &e.name, &e.identity, e.lease_duration, (self.clock)());
        self.acquired = lease.spec.as_ref().and_then(|spec| spec.acquire_time.clone());
        let lease = self.write(exists, &lease).await?;
        Ok(AcquiredLease { lease, at })
    }

    async fn write(&self, exists: bool, lease: &Lease) -> Result<Lease, RenewError> {
        match self.store.write(exists, lease).await {
            Ok(lease) => Ok(lease),
            Err(WriteError::Call(error)) => Err(RenewError::Call(error)),
            // Another client wrote in between.
            Err(WriteError::Changed) => match self.store.read().await {
                Ok(None) => Err(RenewError::Changed(None)),
                // A label or an annotation, or a write of this process whose answer was lost.
                Ok(Some(found)) if self.is_own(found.spec.as_ref()) => {
                    Err(RenewError::Changed(Some(Box::new(found))))
                }
                Ok(Some(_)) => Err(RenewError::Lost),
                Err(error) => Err(RenewError::Call(error)),
            },
        }
    }

    /// Renews the Lease until that is impossible or `stopping`.
    async fn run_term(
        &mut self,
        lease: Lease,
        at: Moment,
        changes: &mut HolderChanges,
        stopping: &CancellationToken,
    ) {
        let mut work_done = self.begin_term(&lease, at, stopping);
        let end = self.renew_until_end(lease, at, changes, stopping).await;
        self.end_term();
        // After the work of the term, so that the next leader does not overlap with it.
        if matches!(end, TermEnd::Stopping) && timeout(HANDOVER_TIMEOUT, work_done.recv()).await.is_err() {
            tracing::warn!("Work of the leader did not end in time; releasing the Lease anyway");
        }
    }

    fn begin_term(&mut self, lease: &Lease, at: Moment, stopping: &CancellationToken) -> WorkDone {
        let (term, work_done) = Term::begin(stopping);
        self.observation.record(Some(lease), Instant::now());
        self.validity.extend(at, self.election.renew_deadline);
        self.state.send_replace(State { holder: Some(self.election.identity.clone()), term: Some(term) });
        tracing::info!(lease = self.election.name, identity = self.election.identity, "Leading");
        work_done
    }

    async fn renew_until_end(
        &mut self,
        lease: Lease,
        started: Moment,
        changes: &mut HolderChanges,
        stopping: &CancellationToken,
    ) -> TermEnd {
        let mut held = Some(lease);
        let (renew_deadline, retry_period) = (self.election.renew_deadline, self.election.retry_period);
        let mut deadline = started.monotonic + renew_deadline;
        let mut next = started.monotonic + retry_period;
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return TermEnd::Stopping,
                () = sleep_until(deadline) => return self.log_expired(),
                // The watch also reports this replica's own renewals.
                Some(holder) = changes.next() => if holder.as_ref() == Some(&self.election.identity) { continue },
                () = sleep_until(next) => {}
            }
            // The wall clock continues while a machine is suspended.
            if !self.validity.is_valid() {
                return self.log_expired();
            }
            let at = self.validity.now();
            let renewed = tokio::select! {
                biased;
                () = stopping.cancelled() => return TermEnd::Stopping,
                () = sleep_until(deadline) => return self.log_expired(),
                renewed = self.renew(&mut held) => renewed,
            };
            next = match renewed {
                Ok(()) => {
                    self.validity.extend(at, renew_deadline);
                    deadline = at.monotonic + renew_deadline;
                    at.monotonic + retry_period
                }
                Err(RenewError::Lost) => return self.log_lost(),
                Err(RenewError::Changed(found)) => {
                    held = found.map(|lease| *lease);
                    Instant::now() + CONFLICT_RETRY
                }
                Err(RenewError::Call(error)) => {
                    self.log_not_renewed(&error);
                    (at.monotonic + retry_period).max(Instant::now() + CONFLICT_RETRY)
                }
            };
        }
    }

    fn log_lost(&self) -> TermEnd {
        tracing::warn!(lease = self.election.name, "Another replica acquired the Lease");
        TermEnd::Lost
    }

    fn log_not_renewed(&self, error: &CallError) {
        tracing::warn!(lease = self.election.name, %error, "Cannot renew the Lease; retrying");
    }

    fn log_expired(&self) -> TermEnd {
        tracing::warn!(
            lease = self.election.name,
            deadline = ?self.election.renew_deadline,
            "Lease not renewed in time; this replica stops leading"
        );
        TermEnd::Lost
    }

    async fn renew(&mut self, held: &mut Option<Lease>) -> Result<(), RenewError> {
        let e = &self.election;
        let now = (self.clock)();
        let exists = held.is_some();
        let lease = match held.clone() {
            Some(lease) => lease::renewed(lease, now),
            None => lease::acquired(None, &e.name, &e.identity, e.lease_duration, now),
        };
        self.acquired = lease.spec.as_ref().and_then(|spec| spec.acquire_time.clone());
        let written = self.write(exists, &lease).await?;
        self.observation.record(Some(&written), Instant::now());
        *held = Some(written);
        Ok(())
    }

    fn end_term(&self) {
        self.validity.end();
        let term = self.state.send_replace(State::default()).term;
        if let Some(term) = term {
            term.ended.cancel();
        }
    }

    /// The Lease may be this replica's even without an answer to the write.
    async fn release(&self) {
        // Again for a Lease that was changed in between.
        for _ in 0..2 {
            if self.acquired.is_none() {
                return;
            }
            let released = match self.store.read().await {
                Ok(Some(found)) if self.is_own(found.spec.as_ref()) => {
                    self.store.write(true, &lease::released(found, (self.clock)())).await
                }
                Ok(_) => return,
                Err(error) => Err(WriteError::Call(error)),
            };
            match released {
                Ok(_) => return tracing::info!(lease = self.election.name, "Released the Lease"),
                Err(WriteError::Changed) => {}
                Err(WriteError::Call(error)) => {
                    let lease = &self.election.name;
                    return tracing::warn!(lease, %error, "Cannot release the Lease; it expires by itself");
                }
            }
        }
    }

    /// Skips repeats.
    fn log_failure(&mut self, error: &CallError) {
        if let Some(stage) = self.failures.record(true, Instant::now().into_std()) {
            let (lease, count) = (&self.election.name, stage.count());
            tracing::warn!(lease, %error, count, "Cannot compete for the Lease; retrying");
        }
    }
}
