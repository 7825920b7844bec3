//! Tasks that must run as long as the process does. Each has a name and is joined: one that ends, panics or is dropped
//! is told of, so that no process goes on without a part of itself.

use std::collections::BTreeMap;

use tokio::task::{Id, JoinError, JoinSet};

/// The end of a task.
#[derive(Debug)]
pub struct Ended {
    /// What the task did, in words.
    pub task: &'static str,
    /// Why it ended; `Ok` when it was asked to.
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
    /// Starts a task.
    pub fn spawn(
        &mut self,
        task: &'static str,
        run: impl Future<Output = Result<(), String>> + Send + 'static,
    ) {
        #[cfg(debug_assertions)]
        let run = Fault::within(self.fault.as_ref().filter(|fault| fault.task == task).cloned(), run);
        let handle = self.set.spawn(run);
        self.names.insert(handle.id(), task);
    }

    /// Waits for the next task that ends. `None` when none is left.
    pub async fn next_ended(&mut self) -> Option<Ended> {
        let (id, result) = match self.set.join_next_with_id().await? {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(broken(error))),
        };
        Some(Ended { task: self.names.remove(&id).unwrap_or("a task"), result })
    }

    /// What runs now, in the order it was started.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.values().copied()
    }

    /// Drops what is left.
    pub async fn abort(&mut self) {
        self.set.shutdown().await;
        self.names.clear();
    }
}

/// Why a task gave no result. What it panicked with says more than that it did.
fn broken(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "was dropped".to_owned() };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_default())
}

/// What tests do to a task of the real program, to see that the process does not outlive it. Only debug builds can.
#[cfg(debug_assertions)]
#[derive(Clone, Debug)]
pub struct Fault {
    task: String,
    how: How,
}

#[cfg(debug_assertions)]
#[derive(Clone, Debug)]
enum How {
    End,
    Panic,
    /// Runs no further once this file exists, and does not end.
    Freeze(std::path::PathBuf),
}

#[cfg(debug_assertions)]
impl Fault {
    /// When it strikes.
    const AFTER: std::time::Duration = std::time::Duration::from_secs(1);

    /// Between two looks for the file that freezes a task.
    const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

    /// Reads `end:<task>`, `panic:<task>` or `freeze:<task>:<file>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (how, rest) = text.split_once(':')?;
        let (task, how) = match how {
            "end" => (rest, How::End),
            "panic" => (rest, How::Panic),
            "freeze" => {
                let (task, file) = rest.split_once(':')?;
                (task, How::Freeze(file.into()))
            }
            _ => return None,
        };
        Some(Self { task: task.to_owned(), how })
    }

    /// Tasks that are started from here on, with this fault in the one it names.
    #[must_use]
    pub fn tasks(fault: Option<Self>) -> Tasks {
        Tasks { fault, ..Tasks::default() }
    }

    /// Once the file exists it is polled no more, and keeps what it holds.
    async fn until_frozen(
        file: &std::path::Path,
        run: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let mut run = std::pin::pin!(run);
        loop {
            tokio::select! {
                result = &mut run => return result,
                () = tokio::time::sleep(Self::LOOK) => {}
            }
            if file.exists() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn within(
        fault: Option<Self>,
        run: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let Some(fault) = fault else { return run.await };
        if let How::Freeze(file) = &fault.how {
            return Self::until_frozen(file, run).await;
        }
        tokio::select! {
            result = run => result,
            () = tokio::time::sleep(Self::AFTER) => {
                assert!(!matches!(fault.how, How::Panic), "as WVA_FAULT asks for");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whatever_way_a_task_ends_its_name_is_told() {
        let mut tasks = Fault::tasks(Fault::parse("panic:struck"));
        tasks.spawn("fails", async { Err("no".to_owned()) });
        tasks.spawn("struck", std::future::pending());
        let mut ended = Vec::new();
        for _ in 0..2 {
            let Ended { task, result } = tasks.next_ended().await.unwrap();
            ended.push((task, result.unwrap_err()));
        }
        assert_eq!(ended[0], ("fails", "no".to_owned()));
        assert_eq!(ended[1], ("struck", "panicked: as WVA_FAULT asks for".to_owned()));
        assert!(tasks.next_ended().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_ends_the_task_it_names_and_no_other() {
        let mut tasks = Fault::tasks(Fault::parse("end:b"));
        tasks.spawn("a", std::future::pending());
        tasks.spawn("b", std::future::pending());
        assert_eq!(tasks.next_ended().await.map(|e| (e.task, e.result)), Some(("b", Ok(()))));
        assert_eq!(tasks.names().collect::<Vec<_>>(), ["a"]);
        tasks.abort().await;
        assert_eq!(tasks.names().count(), 0);
        assert!(Fault::parse("freeze:b").is_none());
        assert!(Fault::parse("drop:b").is_none() && Fault::parse("b").is_none());
    }
}
