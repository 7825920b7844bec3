//! Shutdown after a signal or a failed task, so that no process stays ready with a part missing.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use wva_controller::CycleProgress;
use wva_runtime::auth::DelegatedAuth;
use wva_runtime::server::ShutdownSignals;
use wva_runtime::{EndSignal, Signals, TaskExit, Tasks};

/// Time between the two shutdown signals after SIGTERM. By its end, every proxy of the cluster has removed this replica
/// from its endpoints.
const STOPPING_TIME: Duration = Duration::from_secs(5);
/// The kubelet's default grace period for both is 30 s.
const TASK_TIMEOUT: Duration = Duration::from_secs(20);
/// The same two times after a failure: the process must end within 5 s.
const FAILED_STOPPING_TIME: Duration = Duration::from_secs(1);
const FAILED_TASK_TIMEOUT: Duration = Duration::from_secs(2);

enum Reason {
    Signal(EndSignal),
    /// A required task has ended.
    Failed(String),
}

/// Waits for a signal or the end of a task, then shuts down. `serves`: clients still call for a moment.
///
/// # Errors
/// The task that ended, and its reason.
pub(super) async fn supervise(
    mut tasks: Tasks,
    signals: ShutdownSignals,
    serves: bool,
    mut os_signals: Signals,
) -> anyhow::Result<()> {
    let reason = tokio::select! {
        signal = os_signals.recv() => Reason::Signal(signal),
        Some(exit) = tasks.next_exit() => Reason::Failed(describe_exit(&exit)),
    };
    if let Reason::Failed(reason) = &reason {
        tracing::error!(reason, "A required task has ended");
    }
    tracing::info!("Shutting down");
    signals.stopping.cancel();
    let (stopping_time, task_timeout) = match &reason {
        Reason::Signal(EndSignal::Terminate) if serves => (STOPPING_TIME, TASK_TIMEOUT),
        Reason::Failed(_) if serves => (FAILED_STOPPING_TIME, FAILED_TASK_TIMEOUT),
        Reason::Failed(_) => (Duration::ZERO, FAILED_TASK_TIMEOUT),
        Reason::Signal(_) => (Duration::ZERO, TASK_TIMEOUT),
    };
    tokio::select! {
        () = sleep(stopping_time) => {}
        // Ctrl-C skips the wait.
        () = os_signals.recv_interrupt() => {}
    }
    signals.shutdown.cancel();
    if timeout(task_timeout, join_all(&mut tasks)).await.is_err() {
        let left = tasks.names().collect::<Vec<_>>().join(", ");
        tracing::warn!(left, limit = ?task_timeout, "Dropped tasks that did not end in time");
        tasks.abort().await;
    }
    match reason {
        Reason::Failed(reason) => Err(anyhow::anyhow!("required task ended: {reason}")),
        Reason::Signal(_) => Ok(()),
    }
}

fn describe_exit(exit: &TaskExit) -> String {
    match &exit.result {
        Ok(()) => format!("{}: returned unexpectedly", exit.task),
        Err(reason) => format!("{}: {reason}", exit.task),
    }
}

async fn join_all(tasks: &mut Tasks) {
    while let Some(TaskExit { task, result }) = tasks.next_exit().await {
        if let Err(reason) = result {
            tracing::warn!(task, reason, "Task failed during shutdown");
        }
    }
}

/// Debug builds inject the fault of `WVA_FAULT`.
pub(super) fn tasks() -> Tasks {
    #[cfg(debug_assertions)]
    if std::env::var("WVA_FAULT").is_ok_and(|text| text == "leak") {
        std::thread::spawn(leak);
    }
    #[cfg(debug_assertions)]
    if let Some(fault) = std::env::var("WVA_FAULT").ok().and_then(|text| wva_runtime::Fault::parse(&text)) {
        tracing::warn!(?fault, "Injecting a fault into a task");
        return wva_runtime::Fault::tasks_with(Some(fault));
    }
    Tasks::default()
}

/// Loses 1 MiB and one descriptor a minute, to test the soak.
#[cfg(debug_assertions)]
fn leak() {
    loop {
        std::thread::sleep(Duration::from_mins(1));
        Vec::leak(vec![1_u8; 1 << 20]);
        let _ = std::fs::File::open("/dev/null").map(std::os::fd::IntoRawFd::into_raw_fd);
    }
}

/// A debug build with a `freeze` fault has a limit of seconds.
pub(super) fn progress() -> CycleProgress {
    #[cfg(debug_assertions)]
    if std::env::var("WVA_FAULT").is_ok_and(|text| text.starts_with("freeze:")) {
        return CycleProgress::new(Duration::from_secs(1));
    }
    CycleProgress::default()
}

/// A debug build can cache reviews for only a second, to test an outage.
pub(super) fn delegated_auth(client: kube::Client) -> DelegatedAuth {
    if cfg!(debug_assertions) && std::env::var("WVA_FAULT").is_ok_and(|text| text == "forget-reviews") {
        return DelegatedAuth::with_cache_lifetime(client, Duration::from_secs(1));
    }
    DelegatedAuth::new(client)
}

/// Logs the names of all tasks, for tests.
pub(super) fn log_task_names(tasks: &Tasks) {
    if cfg!(debug_assertions) && std::env::var("WVA_FAULT").is_ok_and(|text| text == "list") {
        let tasks = tasks.names().collect::<Vec<_>>().join(",");
        tracing::info!(tasks, "Names of all tasks");
    }
}
