//! Replicas that are not ready. A variant with starting replicas takes no step. Replicas that do not become ready make it
//! stuck, and the next cheapest variant takes the step.

pub(super) const ROWS: &str = "
starting: no step up | a: 3 ready=2 kv=.78 | a 3->3 PendingReplicas pending=1
starting: no step down | a: 3 ready=2 kv=.1 | a 3->3 PendingReplicas
starting: another variant shrinks | a: 3 ready=2 cost=80 kv=.1; b: 2 cost=40 kv=.1 | a 3->3 PendingReplicas; b 2->1 ScaleDownSafe
starting, without a need | a: 3 ready=2 kv=.60 | a 3->3 NoChange
more ready than current: surge pods | a: 2 ready=5 pods=2 kv=.78 | a 2->3 SpareBelowTarget
grace just lasts | a: 2 ready=1 cost=40 pending=10m/starting kv=.78; b: 0 cost=80 | a 2->2 PendingReplicas; b 0->1 SpareBelowTarget
grace is over | a: 2 ready=1 cost=40 pending=10m1s/starting kv=.78; b: 0 cost=80 | a 2->2 Stuck stuck=1; b 0->1 SpareBelowTarget
unschedulable for a minute | a: 2 ready=1 cost=40 pending=60s/unschedulable kv=.78; b: 0 cost=80 | a 2->2 PendingReplicas; b 0->1 SpareBelowTarget
unschedulable for longer | a: 2 ready=1 cost=40 pending=61s/unschedulable kv=.78; b: 0 cost=80 | a 2->2 Stuck; b 0->1 SpareBelowTarget
crash-looping for a minute | a: 2 ready=1 cost=40 pending=60s/crashLooping kv=.78; b: 0 cost=80 | a 2->2 PendingReplicas; b 0->1 SpareBelowTarget
crash-looping for longer | a: 2 ready=1 cost=40 pending=61s/crashLooping kv=.78; b: 0 cost=80 | a 2->2 Stuck; b 0->1 SpareBelowTarget
a configured grace | config pendingGrace: 2m; a: 2 ready=1 cost=40 pending=2m1s/starting kv=.78; b: 0 cost=80 | a 2->2 Stuck; b 0->1 SpareBelowTarget
a short grace holds for failing ones, too | config pendingGrace: 10s; a: 2 ready=1 cost=40 pending=11s/unschedulable kv=.78; b: 0 cost=80 | a 2->2 Stuck; b 0->1 SpareBelowTarget
stuck, without another variant | a: 2 ready=1 pending=11m/starting kv=.78 | a 2->2 Stuck
one is stuck, one starts | a: 3 ready=1 pending=11m/starting,1m/starting kv=.78 | a 3->3 Stuck stuck=1
several are stuck | a: 3 ready=1 pending=11m/starting,2m/crashLooping kv=.78 | a 3->3 Stuck stuck=2
all are ready: a further pending pod is a surge pod | a: 2 pending=11m/starting kv=.78 | a 2->3 SpareBelowTarget
stuck replicas are not pending: it may shrink | a: 3 ready=2 pending=11m/starting kv=.1 | a 3->2 ScaleDownSafe
a stuck variant is passed over for a starting one, and for the next | a: 2 ready=1 cost=10 pending=11m/starting kv=.78; b: 1 ready=0 cost=20; c: 0 cost=30 | a 2->2 Stuck; b 1->1 PendingReplicas; c 0->1 SpareBelowTarget
it recovers with a replica that is ready | a: 3 ready=2 cost=40 pending=1s/unschedulable kv=.78; b: 0 cost=80 | a 3->3 PendingReplicas; b 0->1 SpareBelowTarget
";
