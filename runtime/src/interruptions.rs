//! What is logged of a watch that breaks: one line when it breaks, one an hour, and one when it goes on.

use std::time::Instant;

use kube::runtime::watcher::{Error, Event};

use crate::api_call::ApiCall;
use crate::repeats::{RepeatCounter, Stage};

/// Interruptions of one watch.
#[derive(Debug)]
pub struct Interruptions {
    task: &'static str,
    namespace: String,
    counter: RepeatCounter,
}

impl Interruptions {
    /// Of the watch that a task runs, in one namespace or all.
    #[must_use]
    pub fn new(task: &'static str, namespace: Option<&str>) -> Self {
        let namespace = namespace.unwrap_or_default().to_owned();
        Self { task, namespace, counter: RepeatCounter::default() }
    }

    /// Logs an event of the watch, where that is new.
    pub fn log<K>(&mut self, event: &Result<Event<K>, Error>) {
        // Each attempt begins with it, a failed one too.
        if !matches!(event, Ok(Event::Init)) {
            self.log_error(event.as_ref().err());
        }
    }

    /// Logs whether the watch works, where that is new: of a watch of one object, which has no events.
    pub fn log_error(&mut self, error: Option<&Error>) {
        let stage = self.counter.note(error.is_some(), Instant::now());
        let (task, failure) = (self.task, error.map(|error| self.failure(error)));
        match (stage.map(Stage::count), failure) {
            (Some(count), Some(error)) => {
                tracing::warn!(error, task, count, "A watch was interrupted and is being resumed");
            }
            (Some(count), None) => tracing::info!(task, count, "A watch goes on after an interruption"),
            (None, _) => {}
        }
    }

    /// What was tried, and why it failed.
    fn failure(&self, error: &Error) -> String {
        let verb = if matches!(error, Error::InitialListFailed(_)) { "list" } else { "watch" };
        let resource = self.task.strip_prefix("watch of ").unwrap_or(self.task);
        ApiCall { verb, resource, namespace: &self.namespace, name: "" }.failed(error)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refused_watch_says_what_was_tried_and_no_structure() {
        let status =
            Status::failure("pods is forbidden: User \"wva\" cannot list it", "Forbidden").with_code(403);
        let error = Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        let said = Interruptions::new("watch of Pods", Some("prod")).failure(&error);
        let want = "list Pods in namespace prod: pods is forbidden: User \"wva\" cannot list it: Forbidden";
        assert_eq!(said, want);
    }
}
