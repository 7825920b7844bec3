//! The throughput analyzer: arrival rate, throughput of a replica, and peaks of the need. A replica runs 160 concurrent
//! requests of 1000 + 500 tokens. Each takes 0.2625 s of engine time, so the throughput is 3.2381 requests per second at the
//! planned utilization of 0.85.

pub(super) const ROWS: &str = "
given: throughput; each blocks=15625 in=1000 out=500 kv=.3 wait=0
as many replicas as the arrival rate needs | learned 10; a: 1 | a 1->4 ArrivalsAboveCapacity arrivals=10 work=0.2625 running=160 throughput=3.2381 need=3.0882
enough replicas | learned 10; a: 4 | a 4->4 NoChange need=3.0882
starting replicas count | learned 10; a: 4 ready=1 | a 4->4 NoChange
a target that is not followed yet stays | learned 10; a: 4 desired=9 | a 4->9 KeptDecision age=0s
until a backlog would have drained | learned 10; a: 4 desired=9 desiredAge=2m | a 4->4 SupplyAboveDemand
stuck replicas do not count, and a stuck variant does not grow | learned 10; a: 4 ready=1 pending=11m/starting | a 4->4 Stuck
an objective between tokens | throughput itlSlo: 40; learned 10; a: 1 | a 1->5 ArrivalsAboveCapacity running=50 itlMs=40 work=0.4 throughput=2.375
an objective of the first token is shown: half a step of 40 ms, and 20 + 10 + 100 ms for its own step | throughput itlSlo: 40, ttftSlo: 900; learned 10; a: 5 | a 5->5 NoChange ttftMs=150 ttftSloMs=900
arrivals beyond the throughput wait until the cold start is over: 7.5 of 10 for 165 s | throughput itlSlo: 40, ttftSlo: 900; learned 10; a: 1 | a 1->5 ArrivalsAboveCapacity ttftMs=495150
a configured utilization | throughput utilization: 0.5; learned 10; a: 1 | a 1->6 ArrivalsAboveCapacity throughput=1.9048
fewer sequences than the cache holds | learned 10; a: 1 args=--max-num-seqs=40 accelerator=H100 | a 1->1 NotLearnt running=40
rounded up to what the HPA acts on | learned 66; a: 20 hpa=.1 | a 20->23 ArrivalsAboveCapacity
at its maximum | learned 10; a: 2 max=2 | a 2->2 AtMaximum
a trend | rising 10 12; a: 4 | a 4->5 TrendAhead slopeT=1000 horizonSeconds=165
a trend at most a quarter more | rising 0 12; a: 4 | a 4->5 TrendAhead
a trend and a warm replica | throughput warmSpare: on; rising 4 12; a: 4 | a 4->6 TrendAhead
a warm replica alone | throughput warmSpare: on; rising 4 12; a: 5 | a 5->6 WarmSpare
a long start keeps one warm by itself | rising 4 12; a: 5 coldStart=3m1s | a 5->6 WarmSpare horizonSeconds=226
the scheduler queue drains in two minutes | waiting 480; learned 10; a: 4 | a 4->5 Backlog backlog=1.2353
a backlog of at most the arrival rate | waiting 48000; learned 10; a: 4 | a 4->7 Backlog backlog=3.0882
no scale-down while work waits | waiting 48000; learned 0; a: 3 | a 3->3 HeldPeak
the scheduler queue drains in less time | throughput drain: 1m; waiting 480; learned 10; a: 4 | a 4->6 Backlog backlog=2.4706
the queues of replicas | learned 10; a: 4 wait=242 | a 4->6 Backlog backlog=2.1
no replica reports, and the router has more in flight than they run | model router: {running: 1200}; learned 10; a: 4 pods=0 | a 4->6 SafetyNet RouterAboveCapacity inFlight=1200 perReplica=200
in flight at the router, up to twice the ready replicas | model router: {running: 90000}; learned 10; a: 4 pods=0 | a 4->8 SafetyNet RouterAboveCapacity
in flight at the router, and a target that is on its way | model router: {running: 90000}; learned 10; a: 4 pods=0 desired=8 | a 4->8 SafetyNet
in flight at the router, no more than they run | model router: {running: 800}; learned 10; a: 4 pods=0 | a 4->4 SafetyNet
in flight at the router, and half of the replicas report | model router: {running: 90000}; learned 10; a: 4 pods=2 | a 4->4 NoChange
in flight at the router, before the throughput is learned | model router: {running: 90000}; learned 10 samples=3; a: 4 pods=0 | a 4->4 SafetyNet
most replicas are saturated for a minute | learned 1 saturated=4; a: 4 wait=3 | a 4->5 Backlog need=0.3088
most replicas are saturated in bursts | learned 1 saturated=4; a: 4 queue=3 | a 4->5 Backlog
saturated just now: no scale-down | learned 1; a: 4 wait=3 | a 4->4 NoChange need=0.3088
fewer arrivals for long | learned 6; a: 4 | a 4->2 SupplyAboveDemand need=1.8529
a need that is held | learned 6 need=2.5; a: 4 | a 4->3 SupplyAboveDemand
a peak of all replicas is held | learned 6 need=3.5; a: 4 | a 4->4 HeldPeak held=3.5
a scale-down that is not carried out yet is revoked up to the held need | learned 6 need=2.5; a: 4 desired=2 before=4 | a 4->3 Superseded desired=2
it stays while the need fits | learned 6; a: 4 desired=2 before=4 | a 4->2 NoChange
all of it is revoked while replicas are saturated | learned 1; a: 4 desired=2 before=4 wait=3 | a 4->4 Superseded
it is revoked, and more are added | learned 16; a: 4 desired=2 before=3 | a 4->5 Superseded ArrivalsAboveCapacity
each role revokes its own | learned 10; a: 4 role=prefill desired=1 before=4; b: 4 role=decode desired=1 before=4 | a 4->2 Superseded; b 4->2 Superseded
a shorter hold | throughput hold: 30s; learned 6 need=3.5; a: 4 | a 4->2 SupplyAboveDemand
not watched for long enough | learned 6 watched=4m; a: 4 | a 4->4 NoChange
the last one stays | learned 0; a: 1 | a 1->1 NoChange
nothing arrives | learned 0; a: 3 | a 3->1 SupplyAboveDemand
a scrape gap | learned 6; a: 4 pods=3 | a 4->4 ScrapeGap
late samples | learned 6; a: 4 age=61s | a 4->4 MetricsStale
a step the HPA would ignore | learned 60; a: 20 hpa=.1 | a 20->20 WithinTolerance step=1
the cheapest throughput grows | learned 20; a: 1 cost=10; b: 1 cost=15 accelerator=H100 | a 1->1 NoChange; b 1->3 ArrivalsAboveCapacity throughput=6.4762
the most expensive throughput shrinks | learned 6; a: 2 cost=10; b: 1 cost=15 accelerator=H100 | a 2->0 SupplyAboveDemand; b 1->1 NoChange
unlearned hardware has a throughput proportional to its cost | learned 10; a: 1 cost=10; b: 0 cost=25 accelerator=L4 | a 1->4 ArrivalsAboveCapacity; b 0->0 NoChange throughput=8.0952
equal price: the smaller step | learned 10; a: 0 cost=400 accelerator=L4; b: 0 cost=10 accelerator=L4; c: 1 max=1 | a 0->0 NoChange; b 0->3 ArrivalsAboveCapacity; c 1->1 NoChange
a small card does not bound the others | learned 10; a: 4; b: 1 blocks=500 cost=1 | a 4->3 SupplyAboveDemand running=160; b 1->1 NoChange running=5.12
not learned, and calm | learned 10 samples=3; a: 2 | a 2->2 NotLearnt samples=3
not learned, and busy in bursts | learned 10 samples=3; a: 2 queue=2 | a 2->3 NotLearnt
not learned, and busy | learned 10 samples=3; a: 2 kv=.6 | a 2->3 NotLearnt need=3
not learned, saturated, with pending replicas | learned 10 samples=3 saturated=9; a: 4 ready=1 kv=.9 | a 4->4 NotLearnt
not learned, no scale-down | learned 0 samples=3; a: 4 | a 4->4 NotLearnt
without counters the percentage analyzer decides | learned 10; a: 2 wait=- kv=.75 | a 2->3 SignalsMissing SpareBelowTarget missing=counters
without a step of a new leader, no scale-down | a: 4 kv=.1 | a 4->4 SignalsMissing
without any counters the percentage analyzer scales down | a: 4 kv=.1 wait=- | a 4->3 SignalsMissing ScaleDownSafe
without a step the percentage analyzer scales up | a: 2 kv=.75 | a 2->3 SignalsMissing SpareBelowTarget missing=counters
pods that serve a part of a request | learned 10; a: 2 role=prefill kv=.75 | a 2->3 SignalsMissing SpareBelowTarget missing=wholeRequests
prefill and decode for the same arrivals: 1.03 busy prefill engines of 70 %, 200 sequences in decode | learned 10; a: 1 role=prefill; b: 1 role=decode | a 1->2 ArrivalsAboveCapacity arrivals=10 work=0.1026 need=1.4663; b 1->2 ArrivalsAboveCapacity running=160
each role shrinks to its own need | learned 10; a: 4 role=prefill; b: 4 role=decode | a 4->2 SupplyAboveDemand; b 4->2 SupplyAboveDemand
no role shrinks while the other one lacks replicas | learned 10; a: 4 role=prefill; b: 1 role=decode | a 4->4 NoChange; b 1->2 ArrivalsAboveCapacity
no role shrinks in a gap of the other one | learned 10; a: 4 role=prefill; b: 4 role=decode age=90s | a 4->4 NoChange; b 4->4 NoChange
no role shrinks while work waits | waiting 48000; learned 1; a: 5 role=prefill; b: 5 role=decode | a 5->5 HeldPeak; b 5->5 HeldPeak
not learned, no role shrinks | learned 10 samples=3; a: 2 role=prefill kv=.75; b: 4 role=decode kv=.05 | a 2->3 NotLearnt; b 4->4 NotLearnt
a part that does not report keeps its target, and the other goes on | learned 10; a: 2 role=prefill kv=.75; b: 4 role=decode desired=5 age=301s | a 2->3 SignalsMissing SpareBelowTarget; b 4->5 SignalsMissing SafetyNet
pods that serve whole requests are a group of their own | learned 10; a: 2 role=prefill kv=.75; b: 2 role=decode kv=.5; c: 2 kv=.5 | a 2->3 SignalsMissing SpareBelowTarget; b 2->2 SignalsMissing; c 2->2 SignalsMissing
no metrics | learned 10; a: 2 desired=4 age=301s | a 2->4 SafetyNet cause=noMetrics
a model at 0 stays there | learned 10; a: 0 | a 0->0 NoChange
";
