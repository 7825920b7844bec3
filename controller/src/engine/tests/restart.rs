//! What a process that starts takes over from the statuses that it finds.

use super::*;
use crate::report::conditions::not_carried_out;
use crate::report::said::Said;
use crate::report::said::Trouble;

/// What a process that starts now publishes first of variant `a`, whose status is this.
async fn after_a_restart(status: &Value, fake: &FakePrometheus) -> Arc<PublishedVariant> {
    let cluster = cluster(json!({"status": status}));
    turn(&engine(&cluster, fake.client()), &mut State::default()).await
}

#[tokio::test]
async fn the_first_publication_knows_what_the_status_said() {
    let now = Timestamp::now();
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let alloc = |age: i64| {
        let at = now - jiff::SignedDuration::from_mins(age);
        json!({"numReplicas": 4, "accelerator": "H100", "lastRunTime": at.to_string()})
    };
    let ready = |message: &str| {
        json!([{"type": "Ready", "status": "False", "reason": "NotCarriedOut", "message": message,
            "lastTransitionTime": now.to_string()}])
    };
    let message = not_carried_out(4);
    let status =
        json!({"desiredOptimizedAlloc": alloc(1), "currentReplicas": 2, "conditions": ready(&message)});
    let v = after_a_restart(&status, &fake).await;
    assert_eq!((v.inherited.target, v.inherited.has(Trouble::NotCarriedOut)), (Some(4), true));
    assert_eq!(v.conditions.ready.reason, "NotCarriedOut", "nothing has moved since");
    // The replicas have moved, or the status says nothing of now.
    for (age, current) in [(1, 3), (20, 2)] {
        let status = json!({"desiredOptimizedAlloc": alloc(age), "currentReplicas": current, "conditions": ready(&message)});
        let v = after_a_restart(&status, &fake).await;
        assert_eq!(v.conditions.ready.reason, "Ready", "{age} minutes, {current} replicas");
        assert_eq!(v.inherited.target, (age == 1).then_some(4));
    }
    assert_eq!(after_a_restart(&Value::Null, &fake).await.inherited, Said::default());
}

#[tokio::test]
async fn after_a_restart_the_target_is_that_of_a_young_status() {
    for (minutes_ago, target, ready) in [(1, 5, "SafetyNet"), (16, 2, "MetricsUnavailable")] {
        let last_run = Timestamp::now() - jiff::SignedDuration::from_mins(minutes_ago);
        let alloc = json!({"numReplicas": 5, "accelerator": "", "lastRunTime": last_run.to_string()});
        let cluster = cluster(json!({"status": {"desiredOptimizedAlloc": alloc}}));
        let fake = FakePrometheus::start(Answers::By(down)).await;
        let engine = engine(&cluster, fake.client());
        let mut state = State::default();
        for cycle in 0..3 {
            let v = turn(&engine, &mut state).await;
            assert_eq!((v.signal(), v.conditions.ready.reason), (Some(target), ready), "cycle {cycle}");
        }
    }
}
