//! Looks for activity of a model. Every unknown fact counts as activity.

use wva_crds::GoDuration;

use crate::reason::Activity;
use crate::view::ModelView;

/// The first fact that keeps the model from zero.
pub(crate) fn find_activity(model: &ModelView) -> Option<Activity> {
    let retention = model.to_zero.retention;
    let recent = |age: Option<GoDuration>| age.filter(|age| *age < retention);
    let evidence = model.model;
    match evidence.requests_in_retention {
        None => return Some(Activity::RequestsUnknown { retention }),
        Some(n) if n.get() > 0.0 => return Some(Activity::Requests { requests: n.get(), retention }),
        Some(_) => {}
    }
    if let Some(obstacle) = evidence.effective_wake_obstacle() {
        return Some(Activity::NotWakeable(obstacle));
    }
    if !evidence.scheduler_queue.is_empty() {
        return Some(Activity::Queued);
    }
    if let Some(observed) = recent(evidence.tracked_for) {
        return Some(Activity::ObservedTooShortly { observed, retention });
    }
    if let Some(age) = recent(evidence.since_activity) {
        return Some(Activity::RecentRequest { age, retention });
    }
    if let Some(age) = recent(evidence.since_pod_start) {
        return Some(Activity::RecentStart { age, retention });
    }
    if model.metrics_gap().is_some() {
        return Some(Activity::MetricsGap);
    }
    find_activity_of_variants(model, retention)
}

fn find_activity_of_variants(model: &ModelView, retention: GoDuration) -> Option<Activity> {
    model.variants.iter().find_map(|v| {
        let variant = v.variant.name.clone();
        if let Some(age) = v.variant.woken_ago.filter(|age| *age < retention) {
            return Some(Activity::RecentStart { age, retention });
        }
        if v.wake_hold_seconds(model.config).is_some() {
            return Some(Activity::Waking { variant });
        }
        match v.variant.running {
            Some(running) if running.get() > 0.0 => {
                return Some(Activity::Running { variant, running: running.get() });
            }
            // Without replicas no request can run.
            None if v.current > 0 => return Some(Activity::RunningUnknown { variant }),
            _ => {}
        }
        v.counted.iter().any(|sample| sample.queue > 0.0).then_some(Activity::Waiting { variant })
    })
}
