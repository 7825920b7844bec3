//! The throughput analyzer: what arrives, what a replica does of it, and what is held. A replica runs 160 requests of
//! 1000 + 500 tokens at once, each takes 0.2625 s of it, and so it does 3.2381 a second at 0.85 of what it could.

pub(super) const ROWS: &str = "
given: throughput; each blocks=15625 in=1000 out=500 kv=.3 wait=0
as many as the arrivals take | learned 10; a: 1 | a 1->4 ArrivalsAboveCapacity arrivals=10 work=0.2625 running=160 throughput=3.2381 need=3.0882
enough | learned 10; a: 4 | a 4->4 NoChange need=3.0882
what loads counts | learned 10; a: 4 ready=1 | a 4->4 NoChange
what is stuck does not, and does not grow | learned 10; a: 4 ready=1 pending=11m/starting | a 4->4 Stuck
an objective between tokens | throughput itlSlo: 40; learned 10; a: 1 | a 1->5 ArrivalsAboveCapacity running=50 itlMs=40 work=0.4 throughput=2.375
an objective to the first token is shown: half a step of 40 ms, and 20 + 10 + 100 ms for its own | throughput itlSlo: 40, ttftSlo: 900; learned 10; a: 5 | a 5->5 NoChange ttftMs=150 ttftSloMs=900
what comes in beyond what replicas do waits until a cold start is over: 7.5 of 10 for 165 s | throughput itlSlo: 40, ttftSlo: 900; learned 10; a: 1 | a 1->5 ArrivalsAboveCapacity ttftMs=495150
a share of its own to plan with | throughput utilization: 0.5; learned 10; a: 1 | a 1->6 ArrivalsAboveCapacity throughput=1.9048
fewer places than the cache holds | learned 10; a: 1 args=--max-num-seqs=40 accelerator=H100 | a 1->1 NotLearnt running=40
rounded up to what the HPA acts on | learned 66; a: 20 hpa=.1 | a 20->23 ArrivalsAboveCapacity
at its maximum | learned 10; a: 2 max=2 | a 2->2 AtMaximum
a trend | rising 10 12; a: 4 | a 4->5 TrendAhead slopeT=1000 horizonSeconds=165
a trend at most half as much again | rising 0 12; a: 4 | a 4->6 TrendAhead
a trend and a warm replica | throughput warmSpare: on; rising 4 12; a: 4 | a 4->6 TrendAhead
a warm replica alone | throughput warmSpare: on; rising 4 12; a: 5 | a 5->6 WarmSpare
a long start keeps one warm by itself | rising 4 12; a: 6 coldStart=3m1s | a 6->7 WarmSpare horizonSeconds=226
what waits in the scheduler, to be done in two minutes | waiting 480; learned 10; a: 4 | a 4->5 Backlog backlog=1.2353
no more than arrives | waiting 48000; learned 10; a: 4 | a 4->7 Backlog backlog=3.0882
but nothing is taken while work for it waits | waiting 48000; learned 0; a: 3 | a 3->3 HeldPeak
in less time | throughput drain: 1m; waiting 480; learned 10; a: 4 | a 4->6 Backlog backlog=2.4706
what waits at replicas | learned 10; a: 4 wait=242 | a 4->6 Backlog backlog=2.1
most replicas are saturated for a minute | learned 1 saturated=4; a: 4 wait=3 | a 4->5 Backlog need=0.3088
so they are in bursts | learned 1 saturated=4; a: 4 queue=3 | a 4->5 Backlog
they have only just been: none is taken | learned 1; a: 4 wait=3 | a 4->4 NoChange need=0.3088
less arrives, and did for long | learned 6; a: 4 | a 4->2 SupplyAboveDemand need=1.8529
a need that is held | learned 6 need=2.5; a: 4 | a 4->3 SupplyAboveDemand
all of it is held | learned 6 need=3.5; a: 4 | a 4->4 HeldPeak held=3.5
held for less time | throughput hold: 30s; learned 6 need=3.5; a: 4 | a 4->2 SupplyAboveDemand
not watched for long enough | learned 6 watched=4m; a: 4 | a 4->4 NoChange
the last one stays | learned 0; a: 1 | a 1->1 NoChange
nothing arrives | learned 0; a: 3 | a 3->1 SupplyAboveDemand
a scrape gap | learned 6; a: 4 pods=3 | a 4->4 ScrapeGap
late samples | learned 6; a: 4 age=61s | a 4->4 MetricsStale
a step the HPA would ignore | learned 60; a: 20 hpa=.1 | a 20->20 WithinTolerance step=1
the cheapest throughput grows | learned 20; a: 1 cost=10; b: 1 cost=15 accelerator=H100 | a 1->1 NoChange; b 1->3 ArrivalsAboveCapacity throughput=6.4762
the dearest throughput shrinks | learned 6; a: 2 cost=10; b: 1 cost=15 accelerator=H100 | a 2->0 SupplyAboveDemand; b 1->1 NoChange
hardware of which nothing is learnt is as fast as it is dear | learned 10; a: 1 cost=10; b: 0 cost=25 accelerator=L4 | a 1->4 ArrivalsAboveCapacity; b 0->0 NoChange throughput=8.0952
as dear as each other: the smaller step | learned 10; a: 0 cost=400 accelerator=L4; b: 0 cost=10 accelerator=L4; c: 1 max=1 | a 0->0 NoChange; b 0->3 ArrivalsAboveCapacity; c 1->1 NoChange
a small card is no measure of the others | learned 10; a: 4; b: 1 blocks=500 cost=1 | a 4->3 SupplyAboveDemand running=160; b 1->1 NoChange running=5.12
not learnt, and calm | learned 10 samples=3; a: 2 | a 2->2 NotLearnt samples=3
not learnt, and busy in bursts | learned 10 samples=3; a: 2 queue=2 | a 2->3 NotLearnt
not learnt, and busy | learned 10 samples=3; a: 2 kv=.6 | a 2->3 NotLearnt need=3
not learnt, saturated, and more on its way | learned 10 samples=3 saturated=9; a: 4 ready=1 kv=.9 | a 4->4 NotLearnt
not learnt takes nothing away | learned 0 samples=3; a: 4 | a 4->4 NotLearnt
without counters percentages decide | learned 10; a: 2 wait=- kv=.75 | a 2->3 SignalsMissing SpareBelowTarget missing=counters
without a step as well, of a new leader that takes nothing | a: 4 kv=.1 | a 4->4 SignalsMissing
without any counters they take what they can | a: 4 kv=.1 wait=- | a 4->3 SignalsMissing ScaleDownSafe
and give what is lacking | a: 2 kv=.75 | a 2->3 SignalsMissing SpareBelowTarget missing=counters
pods that do a part of a request | learned 10; a: 2 role=prefill kv=.75 | a 2->3 SignalsMissing SpareBelowTarget missing=wholeRequests
each part by itself, though the other is idle | learned 10; a: 2 role=prefill kv=.75; b: 4 role=decode kv=.05 | a 2->3 SignalsMissing SpareBelowTarget; b 4->3 SignalsMissing ScaleDownSafe
a part that does not report keeps its target, and the other goes on | learned 10; a: 2 role=prefill kv=.75; b: 4 role=decode desired=5 age=301s | a 2->3 SignalsMissing SpareBelowTarget; b 4->5 SignalsMissing SafetyNet
pods that do whole requests are a part of their own | learned 10; a: 2 role=prefill kv=.75; b: 2 role=decode kv=.5; c: 2 kv=.5 | a 2->3 SignalsMissing SpareBelowTarget; b 2->2 SignalsMissing; c 2->2 SignalsMissing
no metrics | learned 10; a: 2 desired=4 age=301s | a 2->4 SafetyNet cause=noMetrics
a model at 0 stays there | learned 10; a: 0 | a 0->0 NoChange
";
