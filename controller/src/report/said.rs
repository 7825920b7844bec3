//! What has been said of a variant, as far as events go: by the publication before, or, where there was none, by the
//! status that another process left. What was said already is no news, whoever said it.

use std::collections::BTreeSet;

use wva_crds::VariantAutoscalingStatus;
use wva_scaling::Decision;

use crate::published::PublishedVariant;
use crate::report::conditions::{NOT_CARRIED_OUT, NOT_WAKEABLE, limited_accelerator, stuck};

/// What a Warning event tells of a variant, for as long as it is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// Its workload does not exist.
    TargetMissing,
    /// The analysis failed, and something is held.
    SafetyNet,
    /// Replicas do not become ready.
    Stuck,
    /// Nobody carried out a target.
    NotCarriedOut,
    /// Scale to zero is on, and nothing would wake it.
    NotWakeable,
}

/// What has been said of one variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The target.
    pub(crate) target: Option<u32>,
    /// What is wrong with it.
    pub(crate) troubles: BTreeSet<Trouble>,
    /// The accelerator of which too little is left.
    pub(crate) limited_by: Option<String>,
}

impl Said {
    /// By a publication.
    pub(crate) fn by(variant: &PublishedVariant) -> Self {
        let decision = variant.decision.as_ref();
        let has = |trouble: fn(&Decision) -> bool| decision.is_some_and(trouble);
        Self {
            target: variant.target().or(variant.last_target),
            troubles: troubles([
                (Trouble::TargetMissing, is_missing(variant.conditions.ready.reason)),
                (Trouble::SafetyNet, has(|d| d.safety_net.is_some())),
                (Trouble::Stuck, has(|d| d.stuck)),
                (Trouble::NotCarriedOut, has(|d| d.not_carried_out.is_some())),
                (Trouble::NotWakeable, has(|d| d.wake_obstacle.is_some())),
            ]),
            limited_by: decision.and_then(|d| d.limited_by.clone()),
        }
    }

    /// By a status, whose conditions name one reason and tell of all.
    pub(crate) fn by_status(status: &VariantAutoscalingStatus) -> Self {
        let condition = |type_: &str| {
            let found = status.conditions.iter().find(|c| c.type_ == type_);
            found.map_or(("", ""), |c| (c.reason.as_str(), c.message.as_str()))
        };
        let ((ready, message), (optimization, decided)) =
            (condition("Ready"), condition("OptimizationReady"));
        let held = ready == "SafetyNet" || ["SafetyNet", "MetricsUnavailable"].contains(&optimization);
        let target = status.desired_optimized_alloc.as_ref();
        Self {
            target: target.and_then(|alloc| u32::try_from(alloc.num_replicas).ok()),
            troubles: troubles([
                (Trouble::TargetMissing, is_missing(ready)),
                (Trouble::SafetyNet, held),
                (Trouble::Stuck, message.contains(stuck())),
                (Trouble::NotCarriedOut, message.contains(NOT_CARRIED_OUT)),
                (Trouble::NotWakeable, decided.contains(NOT_WAKEABLE)),
            ]),
            limited_by: limited_accelerator(decided).map(str::to_owned),
        }
    }

    /// It has been said that this is wrong.
    pub(crate) fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }
}

fn troubles(all: [(Trouble, bool); 5]) -> BTreeSet<Trouble> {
    all.into_iter().filter(|(_, holds)| *holds).map(|(trouble, _)| trouble).collect()
}

fn is_missing(ready: &str) -> bool {
    ready == "DeploymentNotFound"
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::fixture::{decision, published, replicas, without_target};
    use crate::report::status::wanted;
    use crate::report::written::Written;

    #[test]
    fn a_status_says_what_the_publication_said_that_it_was_written_from() {
        let of = |variant, config| published(decision(variant, config));
        let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
        let loading = json!({"ready": 1, "pending": [{"age": "11m"}], "replicas": replicas(1, 0.5, "1s")});
        let late = json!({"desired": 4, "desiredAge": "11m", "replicas": replicas(2, 0.5, "1s")});
        // Stuck, late, and without metrics: the reason of `Ready` is one of them.
        let all = json!({"ready": 0, "pending": [{"age": "11m"}, {"age": "11m"}]});
        let mut all = decision(all, json!({}));
        all.not_carried_out = Some(3);
        let mut unusable = of(json!({"replicas": replicas(2, 0.78, "1s")}), limits.clone());
        unusable.conditions.settings_unusable("because");
        for variant in [
            of(json!({"replicas": replicas(2, 0.5, "1s")}), json!({})),
            of(json!({"replicas": replicas(2, 0.78, "1s")}), limits),
            of(json!({"desired": 2}), json!({})),
            of(json!({"desired": 2, "mode": "paused"}), json!({})),
            of(loading, json!({})),
            of(late, json!({})),
            published(all),
            unusable,
            without_target(),
        ] {
            let interval = std::time::Duration::from_mins(1);
            let status = wanted(&variant, &Written::default(), Timestamp::UNIX_EPOCH, interval).unwrap();
            assert_eq!(Said::by_status(&status), Said::by(&variant), "{:?}", variant.conditions);
        }
        assert_eq!(Said::by_status(&VariantAutoscalingStatus::default()), Said::default());
    }
}
