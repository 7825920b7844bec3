//! State that a new process takes from existing statuses.

use super::*;
use crate::model::reported::{Problem, ReportedState};
use crate::model::status_fingerprint::StatusFingerprint;
use crate::publish::events::transitions;
use crate::publish::status::desired_status;

/// The first publication of a new process for variant `a` with this status.
async fn after_a_restart(status: &Value) -> Arc<PublishedVariant> {
    Bench::new(cluster(json!({"status": status})), busy()).await.turn().await
}

#[tokio::test]
async fn the_first_publication_has_the_state_of_the_status() {
    // The target applies while it is recent, and the problem while nothing has changed.
    for (age, current, target, ready) in
        [(1, 2, Some(4), "NotCarriedOut"), (1, 3, Some(4), "Ready"), (20, 2, None, "Ready")]
    {
        let condition = json!({"type": "Ready", "status": "False", "reason": "NotCarriedOut",
            "message": "The target 4 was not carried out: check that an HPA or ScaledObject reads it", "lastTransitionTime": Timestamp::now().to_string()});
        let status = json!({"desiredOptimizedAlloc": alloc(4, age), "currentReplicas": current, "conditions": [condition]});
        let v = after_a_restart(&status).await;
        assert_eq!(
            (v.inherited.target, v.conditions.ready.reason.as_str()),
            (target, ready),
            "{age} min, {current}"
        );
        assert!(ready == "Ready" || v.inherited.has(Problem::NotCarriedOut));
    }
    assert_eq!(after_a_restart(&Value::Null).await.inherited, ReportedState::default());
}

/// The next leader may be of another release, so nothing is read from a message.
#[tokio::test]
async fn reworded_messages_change_no_decision_and_no_event() {
    // As release 0.1.0 wrote it.
    let late = json!({"type": "Ready", "status": "False", "reason": "NotCarriedOut",
        "message": "The target 4 was not carried out: check that an HPA or ScaledObject reads wva_desired_replicas",
        "lastTransitionTime": Timestamp::now().to_string()});
    let late = json!({"desiredOptimizedAlloc": alloc(4, 1), "currentReplicas": 2, "conditions": [late]});
    for (status, ready) in [(Value::Null, "Ready"), (late, "NotCarriedOut")] {
        let first = after_a_restart(&status).await;
        assert_eq!(first.conditions.ready.reason.as_str(), ready);
        let written =
            desired_status(&first, &StatusFingerprint::default(), Timestamp::now(), Duration::from_mins(1))
                .unwrap();
        let mut reworded = serde_json::to_value(&written).unwrap();
        for condition in reworded["conditions"].as_array_mut().unwrap() {
            condition["message"] = json!("reworded");
        }
        let next = after_a_restart(&reworded).await;
        let same = after_a_restart(&serde_json::to_value(&written).unwrap()).await;
        assert_eq!(next.decision, same.decision);
        assert_eq!(next.inherited.problems, ReportedState::from_publication(&first).problems);
        let events: Vec<_> = transitions(&next.inherited, &next).iter().map(|e| e.reason).collect();
        assert_eq!(events, [], "{status}");
    }
}
