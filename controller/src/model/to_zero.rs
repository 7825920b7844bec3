//! The gates of a step to zero, in the order in which they are asked. A step that does not pass one waits for a later cycle.
//!
//! 1. The decision: the target is 0. `wva_scaling` decides it on the evidence of `cycle::evidence`, and publishes the signal.
//! 2. The [`SecondCheck`]: what was measured after the signal became 0 shows no request either. It gives a [`Permit`].
//! 3. The signal: the status shows the target within [`SIGNAL_WAIT`]. An HPA that reads the old one would undo the step.
//! 4. The last look, in `actuate`: the replicas are those of the decision, the permit counts and the target is not withdrawn,
//!    and the model servers themselves have no request.
//!
//! Mode `fixed=0` needs only the first and the third.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_scaling::snapshot::Model;

/// How long a second check counts.
const VALIDITY: Duration = Duration::from_secs(2);
/// How long a step to zero waits for an endpoint picker to report an empty queue. Then the idle period of its model
/// restarts, because autoscalers already follow the signal.
const PICKER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a step to zero waits until the status shows its target.
pub(crate) const SIGNAL_WAIT: Duration = Duration::from_secs(2);

/// What a second check reads about a variant whose signal is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecondCheck<'a> {
    /// Time since which the signal has been 0.
    pub(crate) since: Instant,
    pub(crate) now: Instant,
    /// The model as the newest samples show it.
    pub(crate) model: Option<&'a Model>,
    pub(crate) variant: &'a str,
    /// Time of the newest count of completed requests; `None` if the model needs none.
    pub(crate) counted_at: Option<Instant>,
    /// Neither pickers nor Prometheus report the queue of the model.
    pub(crate) is_queue_unknown: bool,
}

/// Why a second check does not let a step pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotYet {
    /// A count of completed requests is from before the signal.
    OldCount,
    /// The queue of the model is unknown.
    UnknownQueue,
    /// The queue was unknown for so long that the idle period restarts.
    PickerTimeout,
    /// A sample is from before the signal.
    OldSample,
    /// A server has requests, or does not report them.
    Requests,
}

impl SecondCheck<'_> {
    /// Lets the step pass, or names the first gate that is closed.
    pub(crate) fn result(self) -> Result<Permit, NotYet> {
        let waited = self.now.saturating_duration_since(self.since);
        if self.is_queue_unknown {
            let is_late = waited >= PICKER_TIMEOUT;
            return Err(if is_late { NotYet::PickerTimeout } else { NotYet::UnknownQueue });
        }
        if self.counted_at.is_some_and(|at| at <= self.since) {
            return Err(NotYet::OldCount);
        }
        let model = self.model.filter(|model| is_sampled_within(model, waited)).ok_or(NotYet::OldSample)?;
        if !is_idle(model, self.variant) {
            return Err(NotYet::Requests);
        }
        Ok(Permit { until: self.now + VALIDITY, ranks: BTreeSet::new() })
    }
}

/// Lets a step to zero pass until its evidence is outdated. Such a step asks the model servers first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    pub(crate) until: Instant,
    /// Data-parallel ranks in each pod, which have a page of their own.
    pub(crate) ranks: BTreeSet<u16>,
}

impl Permit {
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        now >= self.until
    }
}

fn is_sampled_within(model: &Model, time: Duration) -> bool {
    let is_newer = |age: GoDuration| age.get() < time;
    !time.is_zero()
        && model.variants.iter().all(|v| {
            let in_flight = v.running.is_none() || v.running_age.is_some_and(is_newer);
            in_flight && v.replicas.iter().all(|r| is_newer(r.age))
        })
}

fn is_idle(model: &Model, name: &str) -> bool {
    model.variants.iter().find(|v| v.name == name).is_some_and(|v| {
        v.running.is_some_and(|running| running.get() <= 0.0)
            && v.replicas.iter().all(|r| r.queue.is_none_or(|queue| queue.get() <= 0.0))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_gate_stops_a_step() {
        let now = Instant::now();
        let seen = |running: u32, age: &str| -> Model {
            let replica = json!({"pod": "v-0", "queue": 0, "age": age});
            let variant = json!({"name": "v", "current": 1, "running": running, "runningAge": age,
                "replicas": [replica]});
            serde_json::from_value(json!({"modelID": "m", "namespace": "ns", "variants": [variant]})).unwrap()
        };
        let (idle, busy, old) = (seen(0, "1s"), seen(1, "1s"), seen(0, "6s"));
        let open = SecondCheck {
            since: now.checked_sub(5 * SECOND).unwrap(),
            now,
            model: Some(&idle),
            variant: "v",
            counted_at: now.checked_sub(SECOND),
            is_queue_unknown: false,
        };
        let permit = open.result().unwrap();
        assert!(!permit.is_expired(now) && permit.is_expired(now + VALIDITY));
        assert!(SecondCheck { counted_at: None, ..open }.result().is_ok(), "no count is needed");
        let before = now.checked_sub(PICKER_TIMEOUT).unwrap();
        for (check, why) in [
            (SecondCheck { is_queue_unknown: true, ..open }, NotYet::UnknownQueue),
            (SecondCheck { is_queue_unknown: true, since: before, ..open }, NotYet::PickerTimeout),
            (SecondCheck { counted_at: Some(open.since), ..open }, NotYet::OldCount),
            (SecondCheck { model: Some(&old), ..open }, NotYet::OldSample),
            (SecondCheck { model: None, ..open }, NotYet::OldSample),
            (SecondCheck { since: now, counted_at: None, ..open }, NotYet::OldSample),
            (SecondCheck { model: Some(&busy), ..open }, NotYet::Requests),
            (SecondCheck { variant: "another", ..open }, NotYet::Requests),
        ] {
            assert_eq!(check.result(), Err(why));
        }
    }
}
