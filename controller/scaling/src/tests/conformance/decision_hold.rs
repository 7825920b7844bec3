//! Decisions that hold while they are carried out, and all ways in which they end.

pub(super) const ROWS: &str = "
kept up | a: 3 desired=4 kv=.60 | a 3->4 KeptDecision ageSeconds=0
kept up by several | a: 3 desired=7 desiredAge=1m kv=.60 | a 3->7 KeptDecision ageSeconds=60
kept up though it could shrink | a: 3 desired=4 kv=.1 | a 3->4 KeptDecision
kept down | a: 3 desired=2 kv=.1 | a 3->2 KeptDecision
kept down without spare capacity | a: 3 desired=2 kv=.60 | a 3->2 KeptDecision
reached | a: 2 desired=2 desiredAge=1h kv=.50 | a 2->2 NoChange
none | a: 2 kv=.50 | a 2->2 NoChange age=0s
kept while replicas load | a: 3 ready=2 desired=4 kv=.60 | a 3->4 KeptDecision
# A held variant takes no step, other variants do.
another variant grows meanwhile | a: 3 cost=40 desired=4 kv=.78; b: 1 cost=80 kv=.78 | a 3->4 KeptDecision; b 1->2 SpareBelowTarget
another variant shrinks meanwhile | a: 3 cost=80 desired=2 kv=.1; b: 3 cost=40 kv=.1 | a 3->2 KeptDecision; b 3->2 ScaleDownSafe
replicas that a held decision removes do not count as capacity | a: 3 cost=80 desired=2 kv=.50; b: 3 cost=40 kv=.50 | a 3->2 KeptDecision; b 3->3 NoChange
# Out of bounds: the base is the target within the maximum.
above the maximum | a: 3 desired=5 max=4 kv=.60 | a 3->4 OutOfBounds KeptDecision desired=5 max=4
below the minimum | a: 3 desired=1 min=2 kv=.60 | a 3->2 KeptDecision AtMinimum min=2
at the maximum it holds | a: 3 desired=4 max=4 kv=.60 | a 3->4 KeptDecision
at the minimum it holds | a: 3 desired=2 min=2 kv=.60 | a 3->2 KeptDecision
out of bounds, and calm | a: 3 desired=5 max=4 kv=.1 | a 3->4 OutOfBounds KeptDecision
below the minimum, and superseded | a: 3 desired=1 before=3 min=2 kv=.75 | a 3->4 Superseded SpareBelowTarget
# Superseded.
superseded where all are saturated | a: 3 desired=2 kv=.9 | a 3->3 Superseded AllSaturated
superseded, and the target before it is known | a: 3 desired=2 before=3 kv=.9 | a 3->4 Superseded AllSaturated
superseded halfway | a: 4 desired=2 before=6 kv=.9 | a 4->5 Superseded AllSaturated
superseded, and the cheapest takes the step | a: 3 cost=80 desired=2 before=3 kv=.75; b: 1 cost=40 kv=.75 | a 3->3 Superseded; b 1->2 SpareBelowTarget
superseded though it is not carried out | a: 3 desired=2 before=3 desiredAge=11m kv=.75 | a 3->4 NotCarriedOut Superseded SpareBelowTarget
a kept scale-up is not superseded by calm | a: 3 desired=5 desiredAge=5m kv=.1 | a 3->5 KeptDecision
# Not carried out.
just before the hold ends | a: 3 desired=4 desiredAge=9m59s kv=.60 | a 3->4 KeptDecision age=9m59s
the hold ends | a: 3 desired=4 desiredAge=10m kv=.60 | a 3->4 NotCarriedOut desired=4 ageSeconds=600 age=10m0s
the hold ends, and no other variant can grow | a: 3 desired=9 desiredAge=10m kv=.75 | a 3->9 NotCarriedOut SpareBelowTarget age=10m0s
the hold ends, and the next cheapest grows | a: 3 cost=40 desired=9 desiredAge=10m kv=.75; b: 1 cost=80 kv=.75 | a 3->9 NotCarriedOut age=10m0s; b 1->2 SpareBelowTarget
the hold of a scale-down ends, and it takes no further step | a: 4 desired=3 desiredAge=10m kv=.1 | a 4->3 NotCarriedOut age=10m0s
a configured hold | config decisionHold: 1m; a: 3 desired=4 desiredAge=1m kv=.60 | a 3->4 NotCarriedOut
a new decision starts its time | a: 3 desired=3 desiredAge=9m kv=.75 | a 3->4 SpareBelowTarget age=0s
the age of a held decision continues | a: 3 desired=6 desiredAge=8m kv=.60 | a 3->6 KeptDecision age=8m0s
# Replicas that differ from the target are an observation: the surge of a rollout, another writer.
a surge in a rollout | a: 22 desired=20 kv=.50 | a 22->20 KeptDecision
a surge that lasts longer than the hold | a: 22 desired=20 desiredAge=11m kv=.1 | a 22->20 NotCarriedOut
a surge inside the tolerance of the HPA | a: 22 hpa=.1 desired=20 desiredAge=11m kv=.69 | a 22->20 NoChange
a surge, and more load | a: 22 hpa=.1 desired=20 kv=.75 | a 22->21 SpareBelowTarget
a surge, and less load | a: 22 hpa=.1 desired=20 kv=.30 | a 22->19 ScaleDownSafe
another writer took replicas away | a: 2 desired=20 kv=.60 | a 2->20 KeptDecision
# An autoscaler that does not scale up gets no target that others need.
disabled upwards, and the next cheapest grows | a: 2 cost=40 blockedUp=hpa desired=8 kv=.78; b: 1 cost=80 kv=.78 | a 2->8 NotCarriedOut cause=hpa; b 1->2 SpareBelowTarget
disabled upwards before anything was asked for | a: 2 cost=40 blockedUp=hpa kv=.78; b: 1 cost=80 kv=.78 | a 2->2 CannotGrow cause=hpa; b 1->2 SpareBelowTarget
disabled upwards, and no other variant can grow | a: 2 cost=40 blockedUp=hpa kv=.78; b: 1 cost=80 max=1 kv=.78 | a 2->3 CannotGrow SpareBelowTarget; b 1->1 AtMaximum
disabled upwards, and replicas of the next one start | a: 2 cost=40 blockedUp=hpa kv=.78; b: 2 ready=1 cost=80 kv=.78 | a 2->2 CannotGrow cause=hpa; b 2->2 PendingReplicas
disabled upwards, and the next one was asked for | a: 2 cost=40 blockedUp=hpa kv=.78; b: 1 desired=2 cost=80 kv=.78 | a 2->2 CannotGrow cause=hpa; b 1->2 KeptDecision
disabled upwards, and the next one is stuck | a: 2 cost=40 blockedUp=hpa kv=.78; b: 2 ready=1 pending=11m/starting cost=80 kv=.78 | a 2->3 CannotGrow SpareBelowTarget; b 2->2 Stuck
disabled downwards | a: 5 desired=2 blockedDown=hpa kv=.60 | a 5->2 NotCarriedOut cause=hpa
# Outside mode auto no decision holds.
recommend holds no decision | a: 3 desired=4 mode=recommend kv=.60 | a 3->3 RecommendOnly
paused holds no decision | a: 3 desired=4 mode=paused kv=.60 | a 3->4 Paused decided=4
fixed holds no decision | a: 3 desired=4 mode=fixed=5 kv=.60 | a 3->5 Fixed decided=4
a model at 0 holds no decision | a: 0 desired=2 desiredAge=1m | a 0->0 NoChange
a model at 0 with a minimum holds none | a: 0 min=1 desired=2 desiredAge=1m | a 0->0 NoChange
";
