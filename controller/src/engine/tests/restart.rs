//! What a process that starts takes over from the statuses that it finds.

use super::*;
use crate::report::conditions::not_carried_out;
use crate::report::said::{Said, Trouble};

/// What a process that starts now publishes first of variant `a`, whose status is this.
async fn after_a_restart(status: &Value) -> Arc<PublishedVariant> {
    Bench::new(cluster(json!({"status": status})), busy()).await.turn().await
}

#[tokio::test]
async fn the_first_publication_knows_what_the_status_said() {
    // The target counts while it is young; that it is not carried out, while nothing has moved either.
    for (age, current, target, ready) in
        [(1, 2, Some(4), "NotCarriedOut"), (1, 3, Some(4), "Ready"), (20, 2, None, "Ready")]
    {
        let condition = json!({"type": "Ready", "status": "False", "reason": "NotCarriedOut",
            "message": not_carried_out(4), "lastTransitionTime": Timestamp::now().to_string()});
        let status = json!({"desiredOptimizedAlloc": alloc(4, age), "currentReplicas": current, "conditions": [condition]});
        let v = after_a_restart(&status).await;
        assert_eq!((v.inherited.target, v.conditions.ready.reason), (target, ready), "{age} min, {current}");
        assert!(ready == "Ready" || v.inherited.has(Trouble::NotCarriedOut));
    }
    assert_eq!(after_a_restart(&Value::Null).await.inherited, Said::default());
}
