//! Scale-ups within ResourceQuotas, and replicas that wait for quota.

pub(super) const ROWS: &str = "
given: config limitedMode: true
it has room | quota team/pods=3/2; a: 1 needs=team/pods:1 kv=.78 | a 1->2 SpareBelowTarget
it has none | quota team/pods=2/2; a: 1 needs=team/pods:1 kv=.78 | a 1->1 SpareBelowTarget LimitedByQuota quota=team resource=pods left=0 perReplica=1
more used than allowed | quota team/pods=1/2; a: 1 needs=team/pods:1 kv=.78 | a 1->1 SpareBelowTarget LimitedByQuota left=0
the smallest of several quotas | quota team/pods=9 all/requests.memory=30/20; a: 1 needs=team/pods:1,all/requests.memory:20 kv=.78 | a 1->1 SpareBelowTarget LimitedByQuota quota=all resource=requests.memory left=10 perReplica=20
a quota that is gone limits nothing | quota team/pods=0; a: 1 needs=former/pods:1 kv=.78 | a 1->2 SpareBelowTarget
a quota of another namespace limits nothing | quota team/pods=0; == other/m; a: 1 needs=team/pods:1 kv=.78 | a 1->2 SpareBelowTarget
a replica that takes nothing | quota team/requests.cpu=0; a: 1 needs=team/requests.cpu:0 kv=.78 | a 1->2 SpareBelowTarget
scale-downs are not limited | quota team/pods=0; a: 3 needs=team/pods:1 kv=.1 | a 3->2 ScaleDownSafe
models of a namespace share it | quota team/pods=1; == m1; a: 1 needs=team/pods:1 kv=.75; == m2; b: 1 needs=team/pods:1 kv=.78 | a 1->1 SpareBelowTarget LimitedByQuota left=0; b 1->2 SpareBelowTarget
an earlier scale-up is booked first | quota team/pods=1; == m1; a: 1 desired=2 needs=team/pods:1 kv=.60; == m2; b: 1 needs=team/pods:1 kv=.78 | a 1->2 KeptDecision; b 1->1 SpareBelowTarget LimitedByQuota
another variant grows | quota team/requests.memory=0; a: 1 cost=40 needs=team/requests.memory:20 kv=.78; b: 0 cost=80 | a 1->1 SpareBelowTarget LimitedByQuota; b 0->1 SpareBelowTarget
no permission | config quotasForbidden: true; a: 1 kv=.78 | a 1->2 SpareBelowTarget; warning QuotasForbidden
given:
the limiter is off | quota team/pods=0; a: 1 needs=team/pods:1 kv=.78 | a 1->2 SpareBelowTarget
the limiter is on for the model | config saturation: {x: {model_id: m, enableLimiter: true}}; quota team/pods=0; a: 1 needs=team/pods:1 kv=.78 | a 1->1 SpareBelowTarget LimitedByQuota
GPUs are scarcer | stock H100=0; quota team/pods=5; a: 1 accelerator=H100 needs=team/pods:1 kv=.78 | a 1->1 SpareBelowTarget LimitedBy left=0
the quota is scarcer | stock H100=5; quota team/requests.nvidia.com/gpu=1; a: 1 accelerator=H100 gpus=2 needs=team/requests.nvidia.com/gpu:2 kv=.78 | a 1->1 SpareBelowTarget LimitedByQuota left=1 perReplica=2
tokens: whole replicas within the quota | tokens; each blocks=1000 in=512 out=128; config limitedMode: true; quota team/pods=2; a: 4 needs=team/pods:1 kv=.9 queue=4 | a 4->6 DemandAboveSupply LimitedByQuota left=2
# Replicas that a scheduling gate or a quota holds back.
held for a moment: it starts | a: 2 ready=1 pending=60s/waitingForQuota kv=.78; b: 0 cost=20 | a 2->2 PendingReplicas; b 0->1 SpareBelowTarget
held for longer: not stuck, and others grow | a: 2 ready=1 pending=61s/waitingForQuota gate=kueue.x-k8s.io/admission kv=.78; b: 0 cost=20 | a 2->2 WaitingForQuota waiting=1; b 0->1 SpareBelowTarget
held for hours: not stuck | a: 2 ready=1 pending=5h/waitingForQuota kv=.60 | a 2->2 NoChange
tokens: held replicas are no capacity to come | tokens; each blocks=1000 in=512 out=128; a: 2 ready=1 pending=2m/waitingForQuota kv=.9; b: 0 cost=20 capacity=12800 | a 2->2 WaitingForQuota; b 0->1 DemandAboveSupply
a held replica of a woken model: the next variant wakes | waiting 1; a: 1 ready=0 pending=2m/waitingForQuota; b: 0 cost=20 | a 1->1 SafetyNet; b 0->1 SafetyNet RequestsWaiting
";
