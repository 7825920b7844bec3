//! Service class priorities: who gets the last GPU, and who gives one back.

pub(super) const ROWS: &str = "
# Who gets the last GPU.
the better priority, not the most saturated | stock H100=1; priority m1=2 m2=1; == m1; a: 1 accelerator=H100 kv=.79; == m2; b: 1 accelerator=H100 kv=.75 | a 1->1 SpareBelowTarget LimitedBy; b 1->2 SpareBelowTarget
of equals the most saturated | stock H100=1; priority m1=2 m2=2; == m1; a: 1 accelerator=H100 kv=.79; == m2; b: 1 accelerator=H100 kv=.75 | a 1->2 SpareBelowTarget; b 1->1 SpareBelowTarget LimitedBy
a model without a class comes last | stock H100=1; priority m2=9; == m1; a: 1 accelerator=H100 kv=.79; == m2; b: 1 accelerator=H100 kv=.75 | a 1->1 SpareBelowTarget LimitedBy; b 1->2 SpareBelowTarget
earlier decisions come before priorities | stock H100=1; priority m1=1 m2=2; == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 1 desired=2 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 1->2 KeptDecision
the rest is kept for the better one | stock H100=1; priority m1=1 m2=2; == m1; a: 1 accelerator=H100 gpus=2 kv=.78; == m2; b: 1 accelerator=H100 kv=.78 | a 1->1 SpareBelowTarget LimitedBy left=1; b 1->1 SpareBelowTarget YieldsTo modelID=m1 namespace=ns
a quota is kept, too | config limitedMode: true; quota team/requests.cpu=1500; priority m1=1 m2=2; == m1; a: 1 needs=team/requests.cpu:2000 kv=.78; == m2; b: 1 needs=team/requests.cpu:500 kv=.78 | a 1->1 SpareBelowTarget LimitedByQuota left=1500; b 1->1 SpareBelowTarget YieldsTo modelID=m1
another accelerator is not kept | stock H100=1 L4=1; priority m1=1 m2=2; == m1; a: 1 accelerator=H100 gpus=2 kv=.78; == m2; b: 1 accelerator=L4 kv=.78 | a 1->1 SpareBelowTarget LimitedBy; b 1->2 SpareBelowTarget
a recommendation keeps nothing | stock H100=1; priority m1=1 m2=2; == m1; a: 1 accelerator=H100 gpus=2 mode=recommend kv=.78; == m2; b: 1 accelerator=H100 kv=.78 | a 1->1 SpareBelowTarget LimitedBy RecommendOnly; b 1->2 SpareBelowTarget
# Who gives one back: the worst priority, while more is refused than becomes free.
given: stock H100=0; priority m1=1 m2=2 m3=3
the worse one | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 2->1 YieldsTo modelID=m1
although it needs more itself | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 accelerator=H100 kv=.78 | a 1->1 SpareBelowTarget LimitedBy; b 2->1 SpareBelowTarget YieldsTo YieldsTo modelID=m1
the worst of several | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 accelerator=H100 kv=.60; == m3; c: 2 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 2->2 NoChange; c 2->1 YieldsTo modelID=m1
several, one replica each | == m1; a: 1 accelerator=H100 gpus=2 kv=.78; == m2; b: 3 accelerator=H100 kv=.60; == m3; c: 3 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 3->2 YieldsTo; c 3->2 YieldsTo
its most expensive variant | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 cost=10 accelerator=H100 kv=.60; c: 2 cost=20 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 2->2 NoChange; c 2->1 YieldsTo
the smallest step of the HPA | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 10 hpa=0.1 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 10->8 StepNotSafe YieldsTo
never its last replica | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 1 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 1->1 NoChange
never below its minimum | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 min=2 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 2->2 NoChange
never a fixed variant | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 accelerator=H100 mode=fixed=2 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 2->2 Fixed
never a paused variant | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 accelerator=H100 mode=paused kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 2->2 Paused
never without metrics | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 accelerator=H100 | a 1->1 SpareBelowTarget LimitedBy; b 2->2 SafetyNet
never with old metrics | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 accelerator=H100 kv=.60 age=0s,121s | a 1->1 SpareBelowTarget LimitedBy; b 2->2 NoChange
never while a replica does not report | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 pods=1 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 2->2 NoChange
never to a worse priority | == m1; a: 2 accelerator=H100 kv=.60; == m2; b: 1 accelerator=H100 kv=.78 | a 2->2 NoChange; b 1->1 SpareBelowTarget LimitedBy
never without a class | == m1; a: 1 accelerator=H100 kv=.78; == free; b: 2 accelerator=H100 kv=.60 | b 2->2 NoChange; a 1->1 SpareBelowTarget LimitedBy
another accelerator is of no use | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 accelerator=L4 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 2->2 NoChange; warning AcceleratorNotInInventory b L4
one becomes free anyway: its target is lower | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 3 desired=2 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 3->2 KeptDecision
one becomes free anyway: it scales down | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 3 accelerator=H100 kv=.1; == m3; c: 2 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 3->2 ScaleDownSafe; c 2->2 NoChange
one becomes free anyway: its pod ends | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 terminating=1 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; b 2->2 NoChange
another variant of the better model grows | == m1; a: 1 cost=10 accelerator=H100 kv=.78; d: 0 cost=20 gpus=0; == m2; b: 2 accelerator=H100 kv=.60 | a 1->1 SpareBelowTarget LimitedBy; d 0->1 SpareBelowTarget; b 2->2 NoChange
a quota is not given back | config quotas: [{namespace: ns, quota: team, resource: pods, limit: 0}]; == m1; a: 1 gpus=0 needs=team/pods:1 kv=.78; == m2; b: 2 accelerator=H100 needs=team/pods:1 kv=.60 | a 1->1 SpareBelowTarget LimitedByQuota; b 2->2 NoChange
given: stock H100=1; priority m1=1 m2=2
# What was given back is kept for two minutes.
although the better one needs less now | == m1; a: 1 accelerator=H100 kv=.60; == m2; b: 1 returned=m1/120s accelerator=H100 kv=.78 | a 1->1 NoChange; b 1->1 SpareBelowTarget YieldsTo modelID=m1
from other models, too | == m1; a: 1 accelerator=H100 kv=.60; == m2; b: 1 returned=m1/1s accelerator=H100 kv=.60; == m3; c: 1 accelerator=H100 kv=.78 | a 1->1 NoChange; b 1->1 NoChange; c 1->1 SpareBelowTarget YieldsTo modelID=m1
the better one takes it | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 1 returned=m1/1s accelerator=H100 kv=.78 | a 1->2 SpareBelowTarget; b 1->1 SpareBelowTarget LimitedBy left=0
the better one has taken it | == m1; a: 2 currentFor=9s accelerator=H100 kv=.60; == m2; b: 1 returned=m1/10s accelerator=H100 kv=.78 | a 2->2 NoChange; b 1->2 SpareBelowTarget
no longer | == m1; a: 1 accelerator=H100 kv=.60; == m2; b: 1 returned=m1/121s accelerator=H100 kv=.78 | a 1->1 NoChange; b 1->2 SpareBelowTarget
satisfied: nothing goes back | == m1; a: 1 accelerator=H100 kv=.78; == m2; b: 2 accelerator=H100 kv=.60 | a 1->2 SpareBelowTarget; b 2->2 NoChange
given: stock H100=1 L4=1; priority m1=1 m2=2
another accelerator is not kept for it | == m1; a: 1 accelerator=H100 kv=.60; == m2; b: 1 returned=m1/1s accelerator=L4 kv=.60; == m3; c: 1 accelerator=H100 kv=.78 | a 1->1 NoChange; b 1->1 NoChange; c 1->2 SpareBelowTarget
given: stock H100=2; priority m1=1 m2=2
only what was given back is kept | == m1; a: 1 accelerator=H100 kv=.60; == m2; b: 1 returned=m1/1s accelerator=H100 kv=.78 | a 1->1 NoChange; b 1->2 SpareBelowTarget
# A model's name gives no rank in another namespace: the operator binds a class to namespaces.
given: stock H100=0; priority m1=1 m2=2
nothing is given back for a name | == m2; b: 3 accelerator=H100 kv=.60; == other/m1; a: 1 accelerator=H100 kv=.78 | b 3->3 NoChange; a 1->1 SpareBelowTarget LimitedBy
within a namespace it is | == m2; b: 3 accelerator=H100 kv=.60; == m1; c: 1 accelerator=H100 kv=.78; == other/m1; a: 1 accelerator=H100 kv=.78 | c 1->1 SpareBelowTarget LimitedBy; b 3->2 YieldsTo modelID=m1 namespace=ns; a 1->1 SpareBelowTarget LimitedBy
given: stock H100=0; priority other/m1=1 ns/m2=2 m3=3
a bound class counts everywhere | == m2; b: 3 accelerator=H100 kv=.60; == other/m1; a: 1 accelerator=H100 kv=.78 | b 3->2 YieldsTo modelID=m1 namespace=other; a 1->1 SpareBelowTarget LimitedBy
only where it is bound | == m2; b: 3 accelerator=H100 kv=.60; == third/m1; a: 1 accelerator=H100 kv=.78 | b 3->3 NoChange; a 1->1 SpareBelowTarget LimitedBy
a class that is not bound gives nothing to it | == m3; b: 3 accelerator=H100 kv=.60; == other/m1; a: 1 accelerator=H100 kv=.78 | b 3->3 NoChange; a 1->1 SpareBelowTarget LimitedBy
given: stock H100=1; priority m1=1 m2=2
the last GPU goes to the most saturated, whatever its name | == m2; b: 1 accelerator=H100 kv=.79; == other/m1; a: 1 accelerator=H100 kv=.75 | b 1->2 SpareBelowTarget; a 1->1 SpareBelowTarget LimitedBy
within a namespace to the better name, in its place | == m1; c: 1 accelerator=H100 kv=.75; == m2; b: 1 accelerator=H100 kv=.79; == other/m2; a: 1 accelerator=H100 kv=.77 | c 1->2 SpareBelowTarget; b 1->1 SpareBelowTarget LimitedBy; a 1->1 SpareBelowTarget LimitedBy
the rest is kept within the namespace | == m1; c: 1 accelerator=H100 gpus=2 kv=.79; == m2; b: 1 accelerator=H100 kv=.78; == other/m9; a: 1 accelerator=H100 kv=.77 | c 1->1 SpareBelowTarget LimitedBy left=1; b 1->1 SpareBelowTarget YieldsTo modelID=m1; a 1->2 SpareBelowTarget
what a namespace gave back stays its own | == m1; c: 1 accelerator=H100 kv=.78; == m2; b: 1 returned=m1/1s accelerator=H100 kv=.60; == other/m1; a: 1 accelerator=H100 kv=.79 | c 1->2 SpareBelowTarget; b 1->1 NoChange; a 1->1 SpareBelowTarget YieldsTo modelID=m1 namespace=ns
a class that is not bound keeps nothing | == m2; b: 1 accelerator=H100 kv=.60; == other/m9; a: 0 returned=m2/1s accelerator=H100; waiting 1 | b 1->1 NoChange; a 0->1 RequestsWaiting
given: stock H100=1; priority other/m1=1 m1=9 m2=2
a bound class gets the last GPU | == m2; b: 1 accelerator=H100 kv=.79; == other/m1; a: 1 accelerator=H100 kv=.75 | b 1->1 SpareBelowTarget LimitedBy; a 1->2 SpareBelowTarget
and keeps the rest from all | == m2; b: 1 accelerator=H100 kv=.79; == other/m1; a: 1 accelerator=H100 gpus=2 kv=.75 | b 1->1 SpareBelowTarget YieldsTo modelID=m1; a 1->1 SpareBelowTarget LimitedBy left=1
";
