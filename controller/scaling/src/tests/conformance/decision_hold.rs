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
# Out of bounds: the target is not clamped, and a new decision follows at once.
above the maximum | a: 3 desired=5 max=4 kv=.60 | a 3->3 OutOfBounds desired=5 max=4
below the minimum | a: 3 desired=1 min=2 kv=.60 | a 3->3 OutOfBounds desired=1 min=2
at the maximum it holds | a: 3 desired=4 max=4 kv=.60 | a 3->4 KeptDecision
at the minimum it holds | a: 3 desired=2 min=2 kv=.60 | a 3->2 KeptDecision
out of bounds, and it shrinks | a: 3 desired=5 max=4 kv=.1 | a 3->2 OutOfBounds ScaleDownSafe
out of bounds comes before superseded | a: 3 desired=1 min=2 kv=.75 | a 3->4 OutOfBounds SpareBelowTarget
# Superseded.
superseded where all are saturated | a: 3 desired=2 kv=.9 | a 3->4 Superseded AllSaturated
superseded, and the cheapest takes the step | a: 3 cost=80 desired=2 kv=.75; b: 1 cost=40 kv=.75 | a 3->3 Superseded; b 1->2 SpareBelowTarget
superseded comes before not carried out | a: 3 desired=2 desiredAge=11m kv=.75 | a 3->4 Superseded SpareBelowTarget
a kept scale-up is not superseded by calm | a: 3 desired=5 desiredAge=5m kv=.1 | a 3->5 KeptDecision
# Not carried out.
just before the hold ends | a: 3 desired=4 desiredAge=9m59s kv=.60 | a 3->4 KeptDecision age=9m59s
the hold ends | a: 3 desired=4 desiredAge=10m kv=.60 | a 3->3 NotCarriedOut desired=4 ageSeconds=600 age=0s
the hold ends, and the variant is decided again | a: 3 desired=4 desiredAge=10m kv=.75 | a 3->4 NotCarriedOut SpareBelowTarget age=0s
the hold of a scale-down ends, and the variant is decided again | a: 3 desired=2 desiredAge=10m kv=.1 | a 3->2 NotCarriedOut ScaleDownSafe age=0s
a configured hold | config decisionHold: 1m; a: 3 desired=4 desiredAge=1m kv=.60 | a 3->3 NotCarriedOut
a new decision starts its time | a: 3 desired=3 desiredAge=9m kv=.75 | a 3->4 SpareBelowTarget age=0s
the age of a held decision continues | a: 3 desired=6 desiredAge=8m kv=.60 | a 3->6 KeptDecision age=8m0s
# Outside mode auto no decision holds.
recommend holds no decision | a: 3 desired=4 mode=recommend kv=.60 | a 3->3 RecommendOnly
paused holds no decision | a: 3 desired=4 mode=paused kv=.60 | a 3->4 Paused decided=3
fixed holds no decision | a: 3 desired=4 mode=fixed=5 kv=.60 | a 3->5 Fixed decided=3
a model at 0 holds no decision | a: 0 desired=2 desiredAge=1m | a 0->0 NoChange
a model at 0 with a minimum holds none | a: 0 min=1 desired=2 desiredAge=1m | a 0->0 NoChange
";
