//! Log of an interrupted watch: one line at the start, each hour, and at the end.

use std::time::Instant;

use kube::runtime::watcher::{Error, Event};

use crate::api_call::ApiCall;
use crate::repeats::{RepeatCounter, RepeatStage};

/// Logs the interruptions of one watch.
#[derive(Debug)]
pub struct InterruptionLogger {
    task: &'static str,
    namespace: String,
    counter: RepeatCounter,
}

impl InterruptionLogger {
    /// `None`: all namespaces.
    #[must_use]
    pub fn new(task: &'static str, namespace: Option<&str>) -> Self {
        let namespace = namespace.unwrap_or_default().to_owned();
        Self { task, namespace, counter: RepeatCounter::default() }
    }

    /// Logs the start or end of an interruption.
    pub fn log<K>(&mut self, event: &Result<Event<K>, Error>) {
        // Every attempt emits `Init` first, a failed one too.
        if !matches!(event, Ok(Event::Init)) {
            self.log_error(event.as_ref().err());
        }
    }

    /// Logs an error of the watch, or its end (`None`). For watches of one object, which have no events.
    pub fn log_error(&mut self, error: Option<&Error>) {
        let stage = self.counter.record(error.is_some(), Instant::now());
        let (task, failure) = (self.task, error.map(|error| self.failure(error)));
        match (stage.map(RepeatStage::count), failure) {
            (Some(count), Some(error)) => {
                tracing::warn!(error, task, count, "Watch interrupted; retrying");
            }
            (Some(count), None) => tracing::info!(task, count, "Watch resumed"),
            (None, _) => {}
        }
    }

    fn failure(&self, error: &Error) -> String {
        let verb = if matches!(error, Error::InitialListFailed(_)) { "list" } else { "watch" };
        let resource = self.task.strip_prefix("watch of ").unwrap_or(self.task);
        ApiCall { verb, resource, namespace: &self.namespace, name: "" }.describe_failure(error)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn names_request_and_cause_of_a_refused_watch() {
        let status =
            Status::failure("pods is forbidden: User \"wva\" cannot list it", "Forbidden").with_code(403);
        let error = Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        let message = InterruptionLogger::new("watch of Pods", Some("prod")).failure(&error);
        let want = "list Pods in namespace prod: pods is forbidden: User \"wva\" cannot list it: Forbidden";
        assert_eq!(message, want);
    }
}
