//! The token analyzer: demand, supply, and the choice of variants. A replica holds 12,800 tokens, and a waiting request
//! needs 512.

pub(super) const ROWS: &str = "
given: tokens; each blocks=1000 in=512 out=128
# Demand.
in use and waiting | a: 1 kv=.1 queue=2 | a 1->1 NoChange demand=2624 supply=12800
the caches of all engines | a: 1 ranks=4 kv=.1 queue=2 | a 1->1 NoChange demand=7424 supply=51200
in use is rounded half away from zero | a: 1 blocks=1 size=5 kv=.5 | a 1->1 NoChange demand=3
in use is rounded down below a half | a: 1 blocks=1 size=5 kv=.49 | a 1->1 NoChange demand=2
no mean input anywhere | a: 1 kv=.1 queue=4 in=- | a 1->1 NoChange demand=1600
the mean input of the others | a: 3 kv=.5 in=400,600,- queue=0,0,2 | a 3->3 NoChange demand=25000
the mean input of another variant | a: 1 kv=.5 in=400; b: 1 kv=.5 queue=2 in=- | a 1->1 NoChange demand=16800; b 1->1 NoChange
the scheduler's queue in bytes | waiting 10 40000; a: 1 kv=.775 | a 1->3 DemandAboveSupply demand=23680
twice the bytes | waiting 10 80000; a: 1 kv=.775 | a 1->4 DemandAboveSupply demand=33680
the scheduler's queue in requests | waiting 10; a: 1 kv=.775 | a 1->2 DemandAboveSupply demand=18800
the scheduler's queue without means | waiting 10 400; a: 1 kv=.1 in=- out=- | a 1->1 NoChange demand=1700
plain means for the scheduler's queue | waiting 10; a: 2 kv=.5 in=100,200 out=30,50 | a 2->2 NoChange demand=17900
prompts found in the prefix cache are not demand | waiting 10 40000; a: 1 kv=.775 hit=.5 | a 1->2 DemandAboveSupply demand=18680
the mean of the hit rates that are known | waiting 10 40000; a: 3 kv=.5 hit=.2,.4,- | a 3->3 NoChange demand=32280
a scheduler queue that is unknown | model schedulerQueue: null; a: 1 kv=.775 | a 1->2 DemandAboveSupply demand=12400
no scale-down while the scheduler queue is unknown | model schedulerQueue: null; a: 3 kv=0 | a 3->3 NoChange
# Supply, and pending replicas.
starting replicas are anticipated | a: 6 ready=4 kv=.9 queue=4 | a 6->7 DemandAboveSupply demand=65792 supply=51200 anticipated=76800
enough is anticipated | a: 7 ready=4 kv=.9 queue=4 | a 7->7 NoChange required=0
stuck replicas are not anticipated | a: 7 ready=4 pending=11m/starting,11m/starting,11m/starting kv=.9 queue=4 | a 7->7 Stuck anticipated=51200
# Up.
demand just at the threshold | a: 1 kv=.68 | a 1->1 NoChange demand=10880 required=0
demand just above it | a: 1 kv=.6801 | a 1->2 DemandAboveSupply demand=10882
a threshold of its own | tokens scaleUpThreshold: 1; a: 2 kv=.71 queue=2 | a 2->2 NoChange demand=24768
several at once | a: 4 kv=.9 queue=4 | a 4->7 DemandAboveSupply required=26202.3529
the last target is the base | a: 4 desired=9 kv=.9 queue=4 | a 4->9 NoChange
the last target is not enough | a: 4 desired=5 kv=.9 queue=4 | a 4->7 DemandAboveSupply
an earlier scale-down does not hold | a: 4 desired=2 kv=.9 queue=4 | a 4->7 DemandAboveSupply
rounded up to what the HPA acts on | a: 20 hpa=.1 kv=.69 | a 20->23 DemandAboveSupply
more than what the HPA acts on | a: 4 hpa=.1 kv=.9 queue=4 | a 4->7 DemandAboveSupply
the rest goes to the next | a: 4 cost=10 max=5 kv=.9 queue=4; b: 0 cost=20 capacity=12800 | a 4->5 DemandAboveSupply AtMaximum; b 0->2 DemandAboveSupply
at its maximum it is passed over | a: 4 cost=10 max=4 kv=.9 queue=4; b: 0 cost=20 capacity=12800 | a 4->4 AtMaximum; b 0->3 DemandAboveSupply
so near its maximum that the HPA would ignore it | a: 10 cost=10 max=11 hpa=.1 kv=.69; b: 0 cost=20 capacity=12800 | a 10->10 AtMaximum; b 0->1 DemandAboveSupply
stuck it is passed over | a: 5 ready=4 cost=10 pending=11m/starting kv=.9 queue=4; b: 0 cost=20 capacity=12800 | a 5->5 Stuck; b 0->3 DemandAboveSupply
cheapest by token, not by replica | a: 4 cost=10 kv=.9 queue=4; b: 0 cost=15 capacity=25600 | a 4->4 NoChange; b 0->2 DemandAboveSupply
equal price: the first by name | b: 1 kv=.95; a: 0 capacity=12800 | a 0->1 DemandAboveSupply; b 1->1 NoChange
at 0 it grows at its real cost | a: 1 cost=40 kv=.9; b: 0 cost=10 capacity=6400 | a 1->1 NoChange; b 0->1 DemandAboveSupply
a capacity of 0 is not eligible | a: 1 cost=40 kv=.9; b: 0 cost=1 capacity=0 | a 1->2 DemandAboveSupply; b 0->0 NoChange
below its minimum, and it grows | a: 1 min=4 kv=.9 | a 1->4 AtMinimum
# A scale-down that is not carried out yet is revoked as far as the demand calls for it.
it fits on the target | a: 4 desired=2 before=4 kv=.2 | a 4->2 NoChange demand=12800
it does not fit, so replicas stay | a: 4 desired=2 before=4 kv=.4 | a 4->3 Superseded desired=2
all stay, and more are added | a: 4 desired=2 before=4 kv=.9 queue=4 | a 4->7 Superseded DemandAboveSupply
no more than there were before | a: 4 desired=2 before=3 kv=.45 | a 4->3 Superseded
a gap in the signals suspends it | a: 4 desired=2 before=4 kv=.2 age=0s,0s,0s,121s | a 4->4 MetricsStale stale=1
a gap in another variant, too | a: 4 cost=40 desired=2 before=4 kv=.2; b: 2 cost=80 kv=.1 age=0s,121s | a 4->4 MetricsStale; b 2->2 MetricsStale
one that is carried out stays | a: 2 desired=2 before=4 kv=.2 age=0s,121s | a 2->2 MetricsStale
the cheapest token stays | a: 4 cost=20 desired=2 before=4 kv=.4; b: 4 cost=10 desired=2 before=4 kv=.4 | a 4->2 NoChange; b 4->4 Superseded
# Down.
supply just at the boundary | a: 2 kv=.28 | a 2->1 SupplyAboveDemand demand=8960 spare=12800
supply just below it | a: 2 kv=.2801 | a 2->2 NoChange demand=8964
a boundary of its own | tokens scaleDownBoundary: 0.5; a: 2 kv=.28 | a 2->2 NoChange spare=7680
without demand the last one stays | a: 3 kv=0 | a 3->1 SupplyAboveDemand
a single replica stays | a: 1 kv=0 | a 1->1 NoChange
the most expensive first | a: 2 cost=10 kv=.1; b: 2 cost=20 kv=.1 | a 2->1 SupplyAboveDemand; b 2->0 SupplyAboveDemand
equal cost: by name | a: 2 kv=.1; b: 2 kv=.1 | a 2->0 SupplyAboveDemand; b 2->1 SupplyAboveDemand
down to its minimum, the rest from the next | a: 2 cost=10 kv=.1; b: 2 cost=20 min=1 kv=.1 | a 2->0 SupplyAboveDemand; b 2->1 SupplyAboveDemand
a more expensive one that serves stays while the cheaper one starts | a: 1 ready=0 cost=10; b: 1 cost=20 kv=0 | a 1->1 NoChange; b 1->1 NoChange
the cheapest is the last | a: 1 cost=10 kv=0; b: 1 cost=20 kv=0 | a 1->1 NoChange; b 1->0 SupplyAboveDemand
starting replicas are not removed | a: 4 ready=2 kv=0 | a 4->2 SupplyAboveDemand
a step the HPA would ignore | a: 20 hpa=.1 kv=.5 | a 20->20 WithinTolerance step=2 tolerance=0.1
a step the HPA acts on | a: 20 hpa=.1 kv=.45 | a 20->17 SupplyAboveDemand
a scrape gap | a: 2 cost=10 kv=.1; b: 2 cost=20 pods=1 kv=.1 | a 2->2 ScrapeGap; b 2->2 ScrapeGap ready=4 reporting=3
late samples | a: 2 kv=.1 age=61s | a 2->2 MetricsStale stale=2
a stale sample | a: 2 kv=.1 age=0s,121s | a 2->2 MetricsStale stale=1
late samples do not keep it from growing | a: 1 kv=.9 age=61s | a 1->2 DemandAboveSupply
something of unknown size waits | a: 2 kv=.01 in=- queue=1,0 | a 2->2 NoChange
something of unknown size waits in the scheduler | waiting 1; a: 2 kv=.01 in=- | a 2->2 NoChange
nothing waits | a: 2 kv=.01 in=- queue=0 | a 2->1 SupplyAboveDemand
# The rest of the pipeline.
no metrics | a: 2 desired=4 | a 2->4 SafetyNet cause=noMetrics
stale metrics alone | a: 2 desired=4 kv=.9 age=121s | a 2->4 SafetyNet
a model at 0 stays there | a: 0 kv=.9 | a 0->0 NoChange
an idle model goes to zero | zero; idle; a: 2 running=0 kv=0 | a 2->0 SupplyAboveDemand NoRequests
above its maximum | a: 5 max=4 kv=.6 | a 5->4 AtMaximum AtMaximum
# Choice by cost. A big replica holds ten times the tokens of a small one at eight times its cost.
given: tokens
the cheapest token is added | big: 1 cost=40 kv=1 blocks=6250; small: 0 cost=5 capacity=8000 | big 1->2 DemandAboveSupply; small 0->0 NoChange
the most expensive is taken first | a: 1 cost=10 kv=0 blocks=6250; b: 3 cost=9 kv=.33 blocks=3125 | a 1->0 SupplyAboveDemand; b 3->2 SupplyAboveDemand
";
