//! Scale-ups within the free GPUs of the inventory: earlier decisions first, then the most saturated model, the cheapest
//! variant, by name.

pub(super) const ROWS: &str = "
it fits | stock H100=2; a: 1 accelerator=H100 gpus=2 kv=.78 | a 1->2 SpareBelowTarget
a replica takes two, one is left | stock H100=1; a: 1 accelerator=H100 gpus=2 kv=.78 | a 1->1 SpareBelowTarget LimitedBy accelerator=H100 left=1 gpusPerReplica=2
used GPUs are not free | config limitedMode: true, inventory: {H100: {limit: 8, used: 8}}; a: 1 accelerator=H100 kv=.78 | a 1->1 SpareBelowTarget LimitedBy left=0
more used than there is | config limitedMode: true, inventory: {H100: {limit: 8, used: 9}}; a: 1 accelerator=H100 kv=.78 | a 1->1 SpareBelowTarget LimitedBy left=0
the limiter is off | config inventory: {H100: {limit: 0}}; a: 1 accelerator=H100 kv=.78 | a 1->2 SpareBelowTarget
the limiter is on for the model | config inventory: {H100: {limit: 0}}, saturation: {x: {model_id: m, enableLimiter: true}}; a: 1 accelerator=H100 kv=.78 | a 1->1 SpareBelowTarget LimitedBy
no inventory limits nothing | config limitedMode: true; a: 1 accelerator=H100 kv=.78 | a 1->2 SpareBelowTarget
an empty inventory knows nothing | config limitedMode: true, inventory: {}; a: 1 accelerator=H100 kv=.78 | a 1->2 SpareBelowTarget; warning AcceleratorNotInInventory a H100
scale-downs are not limited | stock H100=0; a: 3 accelerator=H100 kv=.1 | a 3->2 ScaleDownSafe
current replicas stay | stock H100=0; a: 3 accelerator=H100 kv=.60 | a 3->3 NoChange
# Names.
a label's long name | stock H100=0; a: 1 accelerator=NVIDIA-H100-80GB-HBM3 kv=.78 | a 1->1 SpareBelowTarget LimitedBy accelerator=NVIDIA-H100-80GB-HBM3
the inventory's long name | stock NVIDIA-H100-80GB-HBM3=0; a: 1 accelerator=h100 kv=.78 | a 1->1 SpareBelowTarget LimitedBy
two spellings are one stock | stock H100=1 NVIDIA-H100-PCIe=1; a: 1 accelerator=H100 gpus=2 kv=.78 | a 1->2 SpareBelowTarget
not in the inventory: unlimited, with a warning | stock H100=0; a: 1 accelerator=B200 kv=.78 | a 1->2 SpareBelowTarget; warning AcceleratorNotInInventory a B200
unresolved: unlimited, with a warning | stock H100=0; a: 1 kv=.78 | a 1->2 SpareBelowTarget; warning AcceleratorNotInInventory a unresolved
no GPUs: unlimited | stock H100=0; a: 1 accelerator=H100 gpus=0 kv=.78 | a 1->2 SpareBelowTarget
# Other variants get what a limited one cannot.
the next cheapest | stock H100=0 L4=1; a: 1 cost=40 accelerator=H100 kv=.78; b: 0 cost=80 accelerator=L4 | a 1->1 SpareBelowTarget LimitedBy; b 0->1 SpareBelowTarget
a step so small that the HPA would ignore it | stock H100=1 L4=1; a: 10 hpa=0.1 cost=40 accelerator=H100 kv=.78; b: 0 cost=80 accelerator=L4 | a 10->10 SpareBelowTarget LimitedBy left=1; b 0->1 SpareBelowTarget
no variant can get any | stock H100=0 L4=0; a: 1 cost=40 accelerator=H100 kv=.78; b: 0 cost=80 accelerator=L4 | a 1->1 SpareBelowTarget LimitedBy; b 0->0 SpareBelowTarget LimitedBy
the next cheapest is woken | stock H100=0 L4=1; waiting 1; a: 0 cost=40 accelerator=H100; b: 0 cost=80 accelerator=L4 | a 0->0 RequestsWaiting LimitedBy; b 0->1 RequestsWaiting
a minimum is limited, too | stock H100=1; a: 1 min=4 accelerator=H100 kv=.60 | a 1->2 AtMinimum LimitedBy left=1
below its minimum the HPA acts on any step | stock H100=1; a: 2 min=4 hpa=.6 accelerator=H100 kv=.60 | a 2->3 AtMinimum LimitedBy
# Order.
the most saturated model | stock H100=1; == m1; a: 1 accelerator=H100 kv=.75; == m2; b: 1 accelerator=H100 kv=.78 | a 1->1 SpareBelowTarget LimitedBy; b 1->2 SpareBelowTarget
equally saturated: the cheapest | stock H100=1; == m1; a: 1 cost=80 accelerator=H100 kv=.78; == m2; b: 1 cost=40 accelerator=H100 kv=.78 | a 1->1 SpareBelowTarget LimitedBy; b 1->2 SpareBelowTarget
equal cost: by namespace | stock H100=1; == ns2/m1; b: 1 accelerator=H100 kv=.78; == ns1/m2; a: 1 accelerator=H100 kv=.78 | a 1->2 SpareBelowTarget; b 1->1 SpareBelowTarget LimitedBy
equal namespace: by model | stock H100=1; == m2; b: 1 accelerator=H100 kv=.78; == m1; c: 1 accelerator=H100 kv=.78 | c 1->2 SpareBelowTarget; b 1->1 SpareBelowTarget LimitedBy
all saturated is the most saturated | stock H100=1; == m1; a: 1 cost=1 accelerator=H100 kv=.799; == m2; b: 1 cost=9 accelerator=H100 kv=.9 | a 1->1 SpareBelowTarget LimitedBy; b 1->2 AllSaturated
a kept scale-up is booked first | stock H100=1; == m1; a: 1 accelerator=H100 desired=2 kv=.60; == m2; b: 1 accelerator=H100 kv=.78 | a 1->2 KeptDecision; b 1->1 SpareBelowTarget LimitedBy left=0
a kept scale-up is not limited again | stock H100=0; a: 1 accelerator=H100 desired=3 kv=.60 | a 1->3 KeptDecision
the safety net is booked first | stock H100=1; == m1; a: 1 accelerator=H100 desired=2; == m2; b: 1 accelerator=H100 kv=.78 | a 1->2 SafetyNet; b 1->1 SpareBelowTarget LimitedBy
a woken variant is booked first | stock H100=1; == m1; a: 0 accelerator=H100 wokenAgo=1s; == m2; b: 1 accelerator=H100 kv=.78 | a 0->1 WakeHold; b 1->1 SpareBelowTarget LimitedBy
recommend books nothing | stock H100=1; == m1; a: 1 accelerator=H100 mode=recommend kv=.79; == m2; b: 1 accelerator=H100 kv=.78 | a 1->2 SpareBelowTarget RecommendOnly; b 1->2 SpareBelowTarget
a fixed number has its turn after loads | stock H100=2; == m1; a: 1 accelerator=H100 mode=fixed=1000 kv=.60; == m2; b: 1 accelerator=H100 kv=.78 | a 1->1000 Fixed; b 1->2 SpareBelowTarget
a paused target, too | stock H100=1; == m1; a: 1 accelerator=H100 mode=paused desired=2 kv=.60; == m2; b: 1 accelerator=H100 kv=.78 | a 1->2 Paused; b 1->2 SpareBelowTarget
so do replicas without a node | stock H100=1; == m1; a: 9 accelerator=H100 unplaced=8 ready=1 mode=fixed=9 kv=.60; == m2; b: 1 accelerator=H100 kv=.78 | a 9->9 Fixed; b 1->2 SpareBelowTarget
and those of mode auto that wva did not decide | stock H100=1; == m1; a: 9 accelerator=H100 unplaced=8 ready=1 kv=.60; == m2; b: 1 accelerator=H100 kv=.78 | a 9->9 NoChange; b 1->2 SpareBelowTarget
a fixed number of a better class is booked before a worse one | config inventory: {H100: {limit: 2}}, limitedMode: true, namespacePriorities: {ns: {m1: 1, m2: 2}}; == m1; a: 1 accelerator=H100 mode=fixed=3 kv=.60; == m2; b: 1 accelerator=H100 kv=.78 | a 1->3 Fixed; b 1->1 SpareBelowTarget LimitedBy left=0
paused below the current replicas frees nothing yet | stock H100=0; == m1; a: 3 accelerator=H100 mode=paused desired=1 kv=.60; == m2; b: 1 accelerator=H100 kv=.78 | a 3->1 Paused; b 1->1 SpareBelowTarget LimitedBy left=0
a model without the limiter books all the same | config inventory: {H100: {limit: 1}}, saturation: {x: {model_id: m2, enableLimiter: true}}; == m1; a: 1 accelerator=H100 kv=.79; == m2; b: 1 accelerator=H100 kv=.78 | a 1->2 SpareBelowTarget; b 1->1 SpareBelowTarget LimitedBy
given: tokens; each blocks=1000 in=512 out=128
tokens: the least spare share of the supply | stock H100=1; == m1; a: 1 accelerator=H100 kv=.75; == m2; b: 1 accelerator=H100 kv=.9 | a 1->1 DemandAboveSupply LimitedBy; b 1->2 DemandAboveSupply
tokens: recommend books nothing within its model | stock H100=1; a: 1 cost=40 accelerator=H100 mode=recommend kv=.9; b: 1 cost=80 accelerator=H100 kv=.9 | a 1->1 DemandAboveSupply LimitedBy RecommendOnly; b 1->2 DemandAboveSupply
tokens: whole replicas within what is left, the rest to the next | stock H100=1; a: 4 cost=10 accelerator=H100 kv=.9 queue=4; b: 0 cost=20 capacity=12800 | a 4->5 DemandAboveSupply LimitedBy left=1; b 0->2 DemandAboveSupply
tokens: variants of one accelerator share what is left | stock H100=2; a: 4 cost=10 accelerator=H100 kv=.9 queue=4; b: 0 cost=20 accelerator=H100 capacity=12800; c: 0 cost=30 capacity=12800 | a 4->6 DemandAboveSupply LimitedBy; b 0->0 DemandAboveSupply LimitedBy left=0; c 0->1 DemandAboveSupply
tokens: replicas of two GPUs | stock H100=5; a: 4 accelerator=H100 gpus=2 kv=.9 queue=4 | a 4->6 DemandAboveSupply LimitedBy left=5
";
