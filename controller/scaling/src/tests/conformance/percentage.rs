//! The percentage analyzer: saturation, growing and shrinking of a model, choice of the variant, and choice of settings.

pub(super) const ROWS: &str = "
# Saturated from the threshold on.
KV at its threshold | a: 1 kv=.80 | a 1->2 AllSaturated nonSaturated=0 meanSpareKv=0
KV just below its threshold | a: 1 kv=.799 | a 1->2 SpareBelowTarget nonSaturated=1
queue at its threshold | a: 1 kv=.10 queue=5 | a 1->2 AllSaturated nonSaturated=0
queue just below its threshold | a: 1 kv=.10 queue=4.9 | a 1->2 SpareBelowTarget nonSaturated=1
one by KV, one by queue | a: 2 kv=.85,.10 queue=0,9 | a 2->3 AllSaturated
# A spare at its trigger is enough.
spare KV at its trigger | a: 1 kv=.70 | a 1->1 NoChange meanSpareKv=0.1
spare KV below its trigger | a: 1 kv=.71 | a 1->2 SpareBelowTarget meanSpareKv=0.09
spare queue at its trigger | a: 1 kv=.10 queue=2 | a 1->1 NoChange meanSpareQueue=3
spare queue below its trigger | a: 1 kv=.10 queue=2.1 | a 1->2 SpareBelowTarget meanSpareQueue=2.9
both spares at their triggers | a: 1 kv=.70 queue=2 | a 1->1 NoChange
# The mean is that of the replicas that are not saturated, over all variants.
a mean of .08 | a: 2 kv=.65,.79 | a 2->3 SpareBelowTarget meanSpareKv=0.08
a saturated replica leaves the mean | a: 2 kv=.65,.80 | a 2->2 NoChange meanSpareKv=0.15 nonSaturated=1
the mean is the model's, not the variant's | a: 1 cost=40 kv=.78; b: 1 cost=80 kv=.40 | a 1->1 NoChange meanSpareKv=0.21; b 1->1 NoChange meanSpareKv=0.21
replicas of many sizes of load | a: 3 kv=.50,.70,.90 | a 3->3 NoChange meanSpareKv=0.2 reporting=3
# One of the two signals is enough; the other counts as 0.
a replica with KV alone | a: 1 kv=.75 queue=- | a 1->2 SpareBelowTarget meanSpareQueue=5
a replica with a queue alone | a: 1 kv=- queue=2.5 | a 1->2 SpareBelowTarget meanSpareKv=0.8
a replica with neither does not report | a: 3 kv=.1,.1,- queue=0,0,- | a 3->3 ScrapeGap ready=3 reporting=2
# Scale-down.
two at .35 fit on one | a: 2 kv=.35 | a 2->1 ScaleDownSafe
two at .36 do not fit on one | a: 2 kv=.36 | a 2->2 NoChange
queues of 1 fit on one | a: 2 kv=.1 queue=1 | a 2->1 ScaleDownSafe
queues of 1.1 do not fit on one | a: 2 kv=.1 queue=1.1 | a 2->2 NoChange
the last replica stays | a: 1 kv=0 | a 1->1 NoChange
one unsaturated replica is not enough | a: 3 kv=.05,.85,.85 | a 3->3 NoChange nonSaturated=1
the unsaturated fit, all together do not | a: 4 kv=.45,.45,.45,.95 | a 4->4 NoChange
the unsaturated fit, and all together do | a: 4 kv=.30,.30,.30,.95 | a 4->3 ScaleDownSafe
a full queue counts among all | a: 3 kv=.1 queue=0,0,6 | a 3->3 NoChange
a full queue spread over three | a: 4 kv=.1 queue=0,0,0,6 | a 4->3 ScaleDownSafe
a surge pod is not capacity | a: 2 kv=.50,.50,.50 | a 2->2 NoChange
even without the surge pod it fits | a: 2 kv=.20,.20,.20 | a 2->1 ScaleDownSafe
# Rounding does not decide: .8 - .7 is a little less than .1 in binary.
three times .7 | a: 3 kv=.70 | a 3->3 NoChange
.525 * 4/3 leaves exactly the trigger | a: 4 kv=.525 | a 4->3 ScaleDownSafe
.526 * 4/3 leaves less | a: 4 kv=.526 | a 4->4 NoChange
the cheapest grows | a: 1 cost=80 kv=.78; b: 1 cost=40 kv=.78 | a 1->1 NoChange; b 1->2 SpareBelowTarget
costs are numbers | a: 1 cost=10 kv=.78; b: 1 cost=9.5 kv=.78 | a 1->1 NoChange; b 1->2 SpareBelowTarget
a cost of 0 grows | a: 1 cost=0 kv=.78; b: 1 cost=0.1 kv=.75 | a 1->2 SpareBelowTarget; b 1->1 NoChange
10 is 10.0 | a: 1 cost=10.0 kv=.78; b: 1 cost=10 kv=.77 | a 1->1 NoChange; b 1->2 SpareBelowTarget
the most expensive shrinks | a: 2 cost=80 kv=.20; b: 2 cost=40 kv=.10 | a 2->1 ScaleDownSafe; b 2->2 NoChange
the most expensive with more than one replica | a: 1 cost=80 kv=.20; b: 2 cost=40 kv=.10 | a 1->1 NoChange; b 2->1 ScaleDownSafe
equal cost and KV: more spare queue grows | a: 1 kv=.75 queue=1; b: 1 kv=.75 | a 1->1 NoChange; b 1->2 SpareBelowTarget
all equal: the first by name grows | b: 1 kv=.75; a: 1 kv=.75 | a 1->2 SpareBelowTarget; b 1->1 NoChange
equal cost and KV: more spare queue shrinks | a: 2 kv=.2; b: 2 kv=.2 queue=1 | a 2->1 ScaleDownSafe; b 2->2 NoChange
all equal: the last by name shrinks | a: 2 kv=.20; b: 2 kv=.20 | a 2->2 NoChange; b 2->1 ScaleDownSafe
a variant's own spare leaves saturated replicas out | a: 2 kv=.82,.70; b: 1 kv=.72 | a 2->3 SpareBelowTarget; b 1->1 NoChange
a saturated variant has no spare | a: 1 kv=.85; b: 1 kv=.79 | a 1->1 NoChange; b 1->2 SpareBelowTarget
at 0 it grows where it is the cheapest | a: 1 cost=80 kv=.78; b: 0 cost=40 | a 1->1 NoChange; b 0->1 SpareBelowTarget
at 0 it stays if it is more expensive | a: 1 cost=40 kv=.78; b: 0 cost=80 | a 1->2 SpareBelowTarget; b 0->0 NoChange
at 0 it has no spare | a: 1 kv=.78; b: 0 | a 1->2 SpareBelowTarget; b 0->0 NoChange
no variant has spare: the first by name | b: 0; a: 1 kv=.9 | a 1->2 AllSaturated; b 0->0 NoChange
three variants, one step | a: 2 cost=30 kv=.75; b: 2 cost=20 kv=.75; c: 2 cost=25 kv=.75 | a 2->2 NoChange; b 2->3 SpareBelowTarget; c 2->2 NoChange
two models, each its own step | a: 1 kv=.78; == m2; b: 2 kv=.1 | a 1->2 SpareBelowTarget; b 2->1 ScaleDownSafe
the same model in two namespaces is two models | a: 1 kv=.78; == other/m; b: 1 kv=.1 | a 1->2 SpareBelowTarget; b 1->1 NoChange
a default for all | config saturation: {default: {kvSpareTrigger: 0.3}}; a: 1 kv=.51 | a 1->2 SpareBelowTarget kvSpareTrigger=0.3
an override inherits what it leaves out | config saturation: {default: {kvSpareTrigger: 0.3}, x: {model_id: m, kvCacheThreshold: 0.9}}; a: 1 kv=.60 | a 1->1 NoChange kvSpareTrigger=0.3 kvCacheThreshold=0.9
its own fields apply | config saturation: {default: {kvSpareTrigger: 0.3}, x: {model_id: m, kvCacheThreshold: 0.9}}; a: 1 kv=.61 | a 1->2 SpareBelowTarget
another model's override does not apply | config saturation: {x: {model_id: other, kvSpareTrigger: 0.5}}; a: 1 kv=.5 | a 1->1 NoChange kvSpareTrigger=0.1
another namespace's override does not apply | config saturation: {x: {model_id: m, namespace: other, kvSpareTrigger: 0.5}}; a: 1 kv=.5 | a 1->1 NoChange kvSpareTrigger=0.1
model and namespace win over the model | config saturation: {x: {model_id: m, kvSpareTrigger: 0.5}, y: {model_id: m, namespace: ns, kvSpareTrigger: 0.1}}; a: 1 kv=.5 | a 1->1 NoChange kvSpareTrigger=0.1
a queue threshold of 0 saturates all | config saturation: {default: {queueLengthThreshold: 0}}; a: 1 kv=.1 | a 1->2 AllSaturated
a KV threshold of 1 is reached at 1 alone | config saturation: {default: {kvCacheThreshold: 1, kvSpareTrigger: 0}}; a: 2 kv=1,.99 | a 2->2 NoChange nonSaturated=1 meanSpareKv=0.01
triggers of 0 need no spare | config saturation: {default: {kvSpareTrigger: 0, queueSpareTrigger: 0}}; a: 1 kv=.79 queue=4 | a 1->1 NoChange
triggers of 0 leave little when it shrinks | config saturation: {default: {kvSpareTrigger: 0, queueSpareTrigger: 0}}; a: 2 kv=.4 queue=2.5 | a 2->1 ScaleDownSafe
an entry that breaks a rule is ignored | config saturation: {x: {model_id: m, namespace: ns, kvCacheThreshold: 0.05}}; a: 1 kv=.60 | a 1->1 NoChange kvCacheThreshold=0.8; warning SettingsDropped x
";
