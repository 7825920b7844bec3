//! Tasks that must run as long as the process. The process notices when one returns, panics or is dropped.

use std::collections::BTreeMap;

use tokio::task::{Id, JoinError, JoinSet};

/// End of a task.
#[derive(Debug)]
pub struct TaskExit {
    /// Name of the task.
    pub task: &'static str,
    /// `Ok` for shutdown; else the reason.
    pub result: Result<(), String>,
}

/// The tasks of one process.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<Result<(), String>>,
    names: BTreeMap<Id, &'static str>,
    #[cfg(debug_assertions)]
    fault: Option<Fault>,
}

impl Tasks {
    /// Starts a task. `task` is its name.
    pub fn spawn(
        &mut self,
        task: &'static str,
        run: impl Future<Output = Result<(), String>> + Send + 'static,
    ) {
        #[cfg(debug_assertions)]
        let run = Fault::inject(self.fault.as_ref().filter(|fault| fault.task == task).cloned(), run);
        let handle = self.set.spawn(run);
        self.names.insert(handle.id(), task);
    }

    /// Waits until a task ends. `None` if no tasks are left.
    pub async fn next_exit(&mut self) -> Option<TaskExit> {
        let (id, result) = match self.set.join_next_with_id().await? {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(describe(error))),
        };
        Some(TaskExit { task: self.names.remove(&id).unwrap_or("a task"), result })
    }

    /// Names of the running tasks, in order of their start.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.values().copied()
    }

    /// Drops all running tasks.
    pub async fn abort(&mut self) {
        self.set.shutdown().await;
        self.names.clear();
    }
}

/// Includes the text of its panic.
fn describe(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "was dropped".to_owned() };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_default())
}

/// Fault that tests inject into a task, to check that the process ends. Debug builds only.
#[cfg(debug_assertions)]
#[derive(Clone, Debug)]
pub struct Fault {
    task: String,
    kind: FaultKind,
}

#[cfg(debug_assertions)]
#[derive(Clone, Debug)]
enum FaultKind {
    End,
    Panic,
    /// Once this file exists.
    Freeze(std::path::PathBuf),
}

#[cfg(debug_assertions)]
impl Fault {
    /// Time from the start of the task to the fault.
    const DELAY: std::time::Duration = std::time::Duration::from_secs(1);

    const POLL: std::time::Duration = std::time::Duration::from_millis(100);

    /// Parses `end:<task>`, `panic:<task>` or `freeze:<task>:<file>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        let (task, kind) = match kind {
            "end" => (rest, FaultKind::End),
            "panic" => (rest, FaultKind::Panic),
            "freeze" => {
                let (task, file) = rest.split_once(':')?;
                (task, FaultKind::Freeze(file.into()))
            }
            _ => return None,
        };
        Some(Self { task: task.to_owned(), kind })
    }

    /// Injects `fault` into the task that it names.
    #[must_use]
    pub fn tasks_with(fault: Option<Self>) -> Tasks {
        Tasks { fault, ..Tasks::default() }
    }

    async fn run_until_frozen(
        file: &std::path::Path,
        run: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let mut run = std::pin::pin!(run);
        loop {
            tokio::select! {
                result = &mut run => return result,
                () = tokio::time::sleep(Self::POLL) => {}
            }
            if file.exists() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn inject(
        fault: Option<Self>,
        run: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let Some(fault) = fault else { return run.await };
        if let FaultKind::Freeze(file) = &fault.kind {
            return Self::run_until_frozen(file, run).await;
        }
        tokio::select! {
            result = run => result,
            () = tokio::time::sleep(Self::DELAY) => {
                assert!(!matches!(fault.kind, FaultKind::Panic), "injected by WVA_FAULT");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn exit_has_task_name_and_reason() {
        let mut tasks = Fault::tasks_with(Fault::parse("panic:panics"));
        tasks.spawn("fails", async { Err("no".to_owned()) });
        tasks.spawn("panics", std::future::pending());
        let mut exits = Vec::new();
        for _ in 0..2 {
            let TaskExit { task, result } = tasks.next_exit().await.unwrap();
            exits.push((task, result.unwrap_err()));
        }
        assert_eq!(exits[0], ("fails", "no".to_owned()));
        assert_eq!(exits[1], ("panics", "panicked: injected by WVA_FAULT".to_owned()));
        assert!(tasks.next_exit().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn fault_ends_only_the_named_task() {
        let mut tasks = Fault::tasks_with(Fault::parse("end:b"));
        tasks.spawn("a", std::future::pending());
        tasks.spawn("b", std::future::pending());
        assert_eq!(tasks.next_exit().await.map(|e| (e.task, e.result)), Some(("b", Ok(()))));
        assert_eq!(tasks.names().collect::<Vec<_>>(), ["a"]);
        tasks.abort().await;
        assert_eq!(tasks.names().count(), 0);
        assert!(Fault::parse("freeze:b").is_none());
        assert!(Fault::parse("drop:b").is_none() && Fault::parse("b").is_none());
    }
}
