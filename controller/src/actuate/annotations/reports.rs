//! Events on annotated autoscalers that get no VariantAutoscaling.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use wva_crds::digest::digest;
use wva_crds::events::{EventReason, object_reference};
use wva_rules::{AnnotationVerdict, replaced_message};

use super::{AutoscalerKey, Failure, Planned};
use crate::publish::events::{EventReporter, PendingEvent};

/// The API server deletes events after an hour.
const REPEAT: Duration = Duration::from_mins(30);
/// Events after one publication.
const MAX_EVENTS: usize = 20;
pub(super) const REFUSED: EventReason = EventReason::AnnotationsRefused;
pub(super) const NOT_USED: EventReason = EventReason::AnnotationsNotUsed;

/// What the last event on each autoscaler said.
#[derive(Default)]
pub(super) struct Reports(BTreeMap<AutoscalerKey, Report>);

struct Report {
    note: String,
    at: Instant,
}

impl Reports {
    pub(super) fn retain(&mut self, keep: impl Fn(&AutoscalerKey) -> bool) {
        self.0.retain(|key, _| keep(key));
    }

    /// Once for each text. Event names contain its digest, so repetitions and other leaders create no second event.
    pub(super) async fn send(
        &mut self,
        reporter: &EventReporter,
        planned: &[Planned],
        failures: &BTreeMap<AutoscalerKey, Failure>,
    ) {
        let mut sent = 0;
        for planned in planned {
            let key = planned.key();
            let Some((reason, note)) = problem(planned, failures.get(&key)) else {
                self.0.remove(&key);
                continue;
            };
            let is_known = |report: &Report| report.note == note && report.at.elapsed() < REPEAT;
            if self.0.get(&key).is_some_and(is_known) || sent == MAX_EVENTS {
                continue;
            }
            sent += 1;
            let (namespace, autoscaler) = (&key.0, &key.1);
            let uid = planned.autoscaler.uid();
            let regarding = object_reference(autoscaler.kind.api(), namespace, &autoscaler.name, Some(uid));
            let digest = Some(digest(&[uid, reason.as_str(), &note]));
            let event = PendingEvent { warning: reason == REFUSED, reason, note: note.clone(), digest };
            if self.0.get(&key).is_none_or(|report| report.note != note) {
                let (autoscaler, reason) = (autoscaler.to_string(), reason.as_str());
                tracing::warn!(namespace, autoscaler, reason, "{note}");
            }
            reporter.report_on(regarding, planned.autoscaler.workload().reference(), &event).await;
            self.0.insert(key, Report { note, at: Instant::now() });
        }
    }
}

fn problem(planned: &Planned, failure: Option<&Failure>) -> Option<(EventReason, String)> {
    match &planned.verdict {
        AnnotationVerdict::Refused(cause) => Some((REFUSED, cause.clone())),
        AnnotationVerdict::Replaced(by) => Some((NOT_USED, replaced_message(by))),
        AnnotationVerdict::Variant(_) | AnnotationVerdict::Waiting(_) => {
            let failure = failure.filter(|failure| !failure.error.is_temporary())?;
            Some((REFUSED, failure.error.to_string()))
        }
    }
}
