//! Scaling to zero on full evidence only, waking up when requests wait, and one replica kept if zero is not allowed.

pub(super) const ROWS: &str = "
given: zero
full evidence | idle; a: 1 running=0 kv=0 | a 1->0 NoRequests retentionSeconds=600
full evidence, just old enough | idle; model trackedFor: 10m, sinceActivity: 10m, sincePodStart: 10m; a: 1 wokenAgo=10m running=0 kv=0 | a 1->0 NoRequests
every variant | idle; a: 2 running=0 kv=0; b: 0 | a 2->0 ScaleDownSafe NoRequests; b 0->0 NoChange
no scheduler at all | model requestsInRetention: 0; a: 1 running=0 kv=0 | a 1->1 NoChange; warning NothingWakesIt m NoPool
a picker without flow control | idle; model wakeObstacle: noFlowControl; a: 1 running=0 kv=0 | a 1->1 NoChange; warning NothingWakesIt m NoFlowControl
a picker that cannot be read | idle; model wakeObstacle: unreadable; a: 1 running=0 kv=0 | a 1->1 NoChange; warning NothingWakesIt m Unreadable
a picker that does not report its name | idle; model wakeObstacle: nameNotReported; a: 1 running=0 kv=0 | a 1->1 NoChange; warning NothingWakesIt m NameNotReported
a picker that was not read yet | idle; model wakeObstacle: notRead; a: 1 running=0 kv=0 | a 1->1 NoChange; warning none
a maximum of 0 needs no picker | idle; model wakeObstacle: noFlowControl; a: 1 max=0 running=0 kv=0 | a 1->0 AtMaximum
fixed at 0 needs no picker | idle; model wakeObstacle: noFlowControl; a: 1 mode=fixed=0 running=0 kv=0 | a 1->0 Fixed
a zero under way ends with its evidence | idle; model wakeObstacle: noFlowControl; a: 1 desired=0 running=0 kv=0 | a 1->1 Superseded
at zero already it stays there | idle; model wakeObstacle: noFlowControl; a: 0; b: 0 min=1 | a 0->0 NoChange; b 0->0 NoChange; warning NothingWakesIt m NoFlowControl
a request completed | model requestsInRetention: 1, schedulerQueue: {}; a: 1 running=0 kv=0 | a 1->1 NoChange
unknown whether a request completed | model schedulerQueue: {}; a: 1 running=0 kv=0 | a 1->1 NoChange
a request runs | idle; a: 1 running=1 kv=0 | a 1->1 NoChange
unknown whether a request runs | idle; a: 1 kv=0 | a 1->1 NoChange
unknown whether a request runs on a variant at 0 | idle; a: 1 running=0 kv=0; b: 0 | a 1->0 NoRequests; b 0->0 NoChange
a request runs on another variant | idle; a: 1 running=0 kv=0; b: 1 running=1 kv=0 | a 1->1 NoChange; b 1->1 NoChange
a request waits | idle; a: 1 running=0 kv=0 queue=1 | a 1->1 NoChange
a request waits in the scheduler | model requestsInRetention: 0; waiting 1; a: 1 running=0 kv=0 | a 1->1 NoChange
bytes wait in the scheduler | model requestsInRetention: 0; waiting 0 1; a: 1 running=0 kv=0 | a 1->1 NoChange
a request was refused | model requestsInRetention: 0, schedulerQueue: {refused: 1}; a: 1 running=0 kv=0 | a 1->1 NoChange
unknown what waits in the scheduler | model requestsInRetention: 0, schedulerQueue: null; a: 1 running=0 kv=0 | a 1->1 NoChange
tracked for less | idle; model trackedFor: 9m59s; a: 1 running=0 kv=0 | a 1->1 NoChange
active since | idle; model sinceActivity: 9m59s; a: 1 running=0 kv=0 | a 1->1 NoChange
a pod started since | idle; model sincePodStart: 9m59s; a: 1 running=0 kv=0 | a 1->1 NoChange
woken since | idle; a: 1 wokenAgo=9m59s running=0 kv=0 | a 1->1 NoChange
a late sample | idle; a: 1 running=0 kv=0 age=61s | a 1->1 NoChange
a scrape gap | idle; a: 2 running=0 kv=0 pods=1 | a 2->2 NoChange
no metrics | idle; a: 1 running=0 | a 1->1 SafetyNet
a replica that never became ready | idle; a: 1 ready=0 running=0 | a 1->0 SafetyNet NoRequests
a retention of its own lasts | idle; config scaleToZero: {default: {retention_period: 30m}}; model sinceActivity: 29m; a: 1 running=0 kv=0 | a 1->1 NoChange
a retention of its own is over | idle; config scaleToZero: {default: {retention_period: 30m}}; model sinceActivity: 30m; a: 1 running=0 kv=0 | a 1->0 NoRequests retentionSeconds=1800
scale to zero off for the model | idle; config scaleToZero: {x: {model_id: m, enable_scale_to_zero: false}}; a: 1 running=0 kv=0 | a 1->1 NoChange
scale to zero off for this namespace's model | idle; config scaleToZero: {x: {model_id: m, enable_scale_to_zero: true}, y: {model_id: m, namespace: ns, enable_scale_to_zero: false}}; a: 1 running=0 kv=0 | a 1->1 NoChange
# Bounds.
an HPA's minimum of 1 allows 0 | idle; a: 1 min=1 running=0 kv=0 | a 1->0 NoRequests
the variant's own minimum of 1 forbids 0 | idle; a: 1 min=1 minForbidsZero=true running=0 kv=0 | a 1->1 NoRequests AtMinimum
a minimum of 2 forbids 0 | idle; a: 2 min=2 running=0 kv=0 | a 2->2 NoRequests AtMinimum min=2
idleReplicaCount 0 allows 0 below a minimum of 2 | idle; a: 2 min=2 idlesAtZero=true running=0 kv=0 | a 2->0 NoRequests
idling does not override the variant's own minimum | idle; a: 2 min=2 idlesAtZero=true minForbidsZero=true running=0 kv=0 | a 2->2 NoRequests AtMinimum min=2
# A zero that is being carried out.
a decision to idle is kept | idle; a: 2 min=2 idlesAtZero=true desired=0 running=0 kv=0 | a 2->0 KeptDecision
a decision for 0 is kept | idle; a: 1 desired=0 running=0 kv=0 | a 1->0 KeptDecision
a decision for 0 ends without its evidence | idle; a: 1 desired=0 running=1 kv=0 | a 1->1 Superseded
a decision for 0 ends without metrics | idle; a: 1 desired=0 | a 1->1 SafetyNet fallbackSource=current-replicas
given:
# Keeping.
the last one is kept | a: 1 desired=0 kv=.1 | a 1->1 KeptDecision MinimumKept
the last one is kept on the cheapest | a: 1 cost=80 desired=0 kv=.1; b: 1 cost=40 desired=0 kv=.1 | a 1->0 KeptDecision; b 1->1 KeptDecision MinimumKept
idle, and zero is off | idle; a: 1 running=0 kv=0 | a 1->1 NoChange
on for this model alone | idle; config scaleToZero: {x: {model_id: m, enable_scale_to_zero: true}}; a: 1 running=0 kv=0 | a 1->0 NoRequests
keeping does not wake | a: 0 | a 0->0 NoChange
bounds do not wake | a: 0 min=2 | a 0->0 NoChange
a last target does not wake | a: 0 min=1 desired=2 desiredAge=1m | a 0->0 NoChange
bounds hold where another variant serves | a: 0 min=1; b: 1 kv=.1 | a 0->1 AtMinimum; b 1->1 NoChange
# Waking.
requests wait | waiting 3; a: 0 | a 0->1 RequestsWaiting size=3
bytes wait | waiting 0 9; a: 0 | a 0->1 RequestsWaiting bytes=9
requests were refused | model schedulerQueue: {refused: 2}; a: 0 cost=80; b: 0 cost=40 | a 0->0 NoChange; b 0->1 RequestsRefused refused=2
requests wait and were refused | model schedulerQueue: {size: 3, refused: 2}; a: 0 | a 0->1 RequestsWaiting size=3
without flow control | zero; model schedulerQueue: {refused: 1}, wakeObstacle: noFlowControl; a: 0 | a 0->1 RequestsRefused; warning NothingWakesIt m NoFlowControl
nothing waits | waiting 0; a: 0 | a 0->0 NoChange
unknown what waits | model schedulerQueue: null; a: 0 | a 0->0 NoChange
the cheapest | waiting 3; a: 0 cost=80; b: 0 cost=40 | a 0->0 NoChange; b 0->1 RequestsWaiting
equal cost: the first by name | waiting 3; b: 0; a: 0 | a 0->1 RequestsWaiting; b 0->0 NoChange
# Pods that do a part of a request each.
one of each part, the cheapest | waiting 3; a: 0 role=decode cost=80; b: 0 role=decode; c: 0 role=prefill cost=90 | a 0->0 NoChange; b 0->1 RequestsWaiting; c 0->1 RequestsWaiting
the part that has no replica | waiting 3; a: 1 role=decode kv=.1; b: 0 role=prefill | a 1->1 NoChange; b 0->1 RequestsWaiting
next to pods without a role the cheapest | waiting 3; a: 0 cost=5; b: 0 role=decode; c: 0 role=prefill | a 0->1 RequestsWaiting; b 0->0 NoChange; c 0->0 NoChange
one of each part is kept | a: 1 role=decode desired=0 kv=.1; b: 1 role=prefill desired=0 kv=.1 | a 1->1 KeptDecision MinimumKept; b 1->1 KeptDecision MinimumKept
with scale to zero on | zero; waiting 3; a: 0 | a 0->1 RequestsWaiting
without evidence of flow control | zero; waiting 3; model wakeObstacle: unreadable; a: 0 | a 0->1 RequestsWaiting
to its minimum | waiting 3; a: 0 min=2 | a 0->2 RequestsWaiting AtMinimum
to its minimum from idling | zero; waiting 3; a: 0 min=2 idlesAtZero=true | a 0->2 RequestsWaiting AtMinimum
not one whose maximum is 0 | waiting 3; a: 0 max=0; b: 0 cost=40 | a 0->0 NoChange; b 0->1 RequestsWaiting
not where one serves | waiting 3; a: 1 cost=80 kv=.1; b: 0 cost=40 | a 1->1 NoChange; b 0->0 NoChange
a stuck one is passed over | waiting 3; a: 1 ready=0 cost=40 pending=61s/unschedulable; b: 0 cost=80 | a 1->1 SafetyNet; b 0->1 SafetyNet RequestsWaiting
one whose target only a bound has made is woken | waiting 3; a: 1 ready=0 cost=40 pending=61s/unschedulable; b: 0 cost=80 min=1 desired=1 desiredAge=1m | a 1->1 SafetyNet; b 0->1 SafetyNet RequestsWaiting
a starting one is waited for | waiting 3; a: 1 ready=0 cost=40 pending=50s/unschedulable wokenAgo=50s; b: 0 cost=80 | a 1->1 PendingReplicas WakeHold; b 0->0 NoChange
it stays woken until its target is carried out | waiting 3; a: 0 desired=1 desiredAge=1m | a 0->1 RequestsWaiting
one that the API server refuses to scale is passed over | waiting 3; a: 0 cost=40 refusedAgo=5s wokenAgo=6s; b: 0 cost=80 | a 0->0 NotCarriedOut desired=1 ageSeconds=5; b 0->1 RequestsWaiting
a refused one is woken if there is no other | waiting 3; a: 0 cost=40 refusedAgo=5s; b: 0 cost=80 max=0 | a 0->1 NotCarriedOut RequestsWaiting; b 0->0 NoChange
of several refused ones the cheapest is woken | waiting 3; a: 0 cost=80 refusedAgo=5s; b: 0 cost=40 refusedAgo=9s | a 0->0 NotCarriedOut; b 0->1 NotCarriedOut RequestsWaiting
load scales another one up instead of a refused one | a: 0 cost=40 refusedAgo=5s; b: 1 cost=80 kv=.75 | a 0->0 NotCarriedOut; b 1->2 SpareBelowTarget
# Holding.
held at its first replica | a: 0 wokenAgo=1s | a 0->1 WakeHold wokenSeconds=1
held while it starts | a: 1 ready=0 wokenAgo=40s desired=1 | a 1->1 PendingReplicas WakeHold
not held once it reports | a: 1 wokenAgo=40s kv=.1 | a 1->1 NoChange
not held after the hold time | a: 0 wokenAgo=10m | a 0->0 NoChange
held just before the end of the hold time | a: 0 wokenAgo=9m59s | a 0->1 WakeHold
a short retention does not end it | config scaleToZero: {default: {enable_scale_to_zero: true, retention_period: 1m}}; idle; a: 1 ready=0 wokenAgo=5m running=0 | a 1->1 PendingReplicas WakeHold
without any metrics after the hold | a: 1 ready=0 wokenAgo=10m desired=1 | a 1->1 SafetyNet
# No component could wake it.
zero without a scheduler | zero; a: 1 kv=.1 | a 1->1 NoChange; warning NothingWakesIt m NoPool
zero with one that cannot be asked | zero; model schedulerQueue: null; a: 1 kv=.1 | a 1->1 NoChange; warning none
";
