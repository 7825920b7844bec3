//! How a process ends: by a signal, or because a part that must run has ended. Nobody stays ready but dead.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use wva_controller::CycleProgress;
use wva_runtime::auth::Gate;
use wva_runtime::{EndSignal, Ended, Signals, Tasks};

/// How long reviews are still taken after SIGTERM: by then every proxy of the cluster has heard that this replica is no
/// endpoint any more.
const LAME_DUCK: Duration = Duration::from_secs(5);
/// How long tasks may take to end after that. The kubelet's default grace period is 30 s for all of it.
const GRACE: Duration = Duration::from_secs(20);
/// The same for a process of which a part has ended: it must be gone within 5 s.
const LAME_DUCK_OF_A_FAILED: Duration = Duration::from_secs(1);
const GRACE_OF_A_FAILED: Duration = Duration::from_secs(2);

/// The two steps of an end.
#[derive(Clone, Debug, Default)]
pub(super) struct End {
    /// Not ready any more; the leader's work ends and its Lease is given back. Reviews are still taken.
    pub(super) stopping: CancellationToken,
    /// Everything ends.
    pub(super) shutdown: CancellationToken,
}

/// Why a process ends.
enum Reason {
    /// A signal.
    Signal(EndSignal),
    /// A part that must run has ended.
    Failed(String),
}

/// Waits for a signal or for the first task that ends without being asked to, then ends all of them. `serves`: there
/// is a server that others still call for a moment.
///
/// # Errors
/// Which task ended, and why.
pub(super) async fn supervise(
    mut tasks: Tasks,
    end: End,
    serves: bool,
    mut signals: Signals,
) -> anyhow::Result<()> {
    let reason = tokio::select! {
        signal = signals.received() => Reason::Signal(signal),
        Some(ended) = tasks.next_ended() => Reason::Failed(early(&ended)),
    };
    if let Reason::Failed(reason) = &reason {
        tracing::error!(reason, "A part of this process that must run has ended");
    }
    tracing::info!("Shutting down");
    end.stopping.cancel();
    let (lame_duck, grace) = match &reason {
        Reason::Signal(EndSignal::Terminate) if serves => (LAME_DUCK, GRACE),
        Reason::Failed(_) if serves => (LAME_DUCK_OF_A_FAILED, GRACE_OF_A_FAILED),
        Reason::Failed(_) => (Duration::ZERO, GRACE_OF_A_FAILED),
        Reason::Signal(_) => (Duration::ZERO, GRACE),
    };
    tokio::select! {
        () = sleep(lame_duck) => {}
        // Whoever presses Ctrl-C does not want to wait.
        () = signals.interrupted() => {}
    }
    end.shutdown.cancel();
    if timeout(grace, join(&mut tasks)).await.is_err() {
        let left = tasks.names().collect::<Vec<_>>().join(", ");
        tracing::warn!(left, "Some tasks did not end within {} s and are dropped", grace.as_secs());
        tasks.abort().await;
    }
    match reason {
        Reason::Failed(reason) => {
            Err(anyhow::anyhow!("{reason}; the process ends rather than run without it"))
        }
        Reason::Signal(_) => Ok(()),
    }
}

fn early(ended: &Ended) -> String {
    match &ended.result {
        Ok(()) => format!("{}: ended although nobody asked it to", ended.task),
        Err(reason) => format!("{}: {reason}", ended.task),
    }
}

async fn join(tasks: &mut Tasks) {
    while let Some(Ended { task, result }) = tasks.next_ended().await {
        if let Err(reason) = result {
            tracing::warn!(task, reason, "A task ended badly");
        }
    }
}

/// An empty set of tasks. Debug builds read from the environment what is to go wrong with one of them, for tests.
pub(super) fn tasks() -> Tasks {
    #[cfg(debug_assertions)]
    if let Some(fault) = std::env::var("WVA_FAULT").ok().and_then(|text| wva_runtime::Fault::parse(&text)) {
        tracing::warn!(?fault, "A task of this process will be made to end");
        return wva_runtime::Fault::tasks(Some(fault));
    }
    Tasks::default()
}

/// When the engine last decided. A debug build that is to freeze a task counts in seconds, for tests.
pub(super) fn progress() -> CycleProgress {
    #[cfg(debug_assertions)]
    if std::env::var("WVA_FAULT").is_ok_and(|text| text.starts_with("freeze:")) {
        return CycleProgress::new(Duration::from_secs(1));
    }
    CycleProgress::default()
}

/// Authenticates and authorizes requests. A debug build can forget reviews after a second, for tests of an outage.
pub(super) fn gate(client: kube::Client) -> Gate {
    if cfg!(debug_assertions) && std::env::var("WVA_FAULT").is_ok_and(|text| text == "forget-reviews") {
        return Gate::with_cache_lifetime(client, Duration::from_secs(1));
    }
    Gate::new(client)
}

/// Tells tests which tasks there are.
pub(super) fn tell_names(tasks: &Tasks) {
    if cfg!(debug_assertions) && std::env::var("WVA_FAULT").is_ok_and(|text| text == "list") {
        let tasks = tasks.names().collect::<Vec<_>>().join(",");
        tracing::info!(tasks, "Tasks that can be ended");
    }
}
