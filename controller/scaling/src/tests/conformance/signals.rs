//! Missing signals: scrape gaps, samples of every age, and the safety net without any sample.

pub(super) const ROWS: &str = "
# A gap forbids scale-down alone.
fewer report than are ready | a: 3 kv=.1,.1 | a 3->3 ScrapeGap ready=3 reporting=2
a gap does not keep it from growing | a: 3 kv=.78,.78 | a 3->4 SpareBelowTarget
a gap anywhere holds the whole model | a: 3 cost=40 kv=.1,.1; b: 2 cost=80 kv=.1 | a 3->3 NoChange; b 2->2 ScrapeGap ready=5 reporting=4
a surge pod of one does not hide the gap of another | a: 3 cost=80 kv=.1,.1; b: 2 kv=.1,.1,.1 | a 3->3 ScrapeGap ready=5 reporting=4; b 2->2 NoChange
replicas that are not ready need not report | a: 3 ready=2 pending=11m/starting kv=.1,.1 | a 3->2 ScaleDownSafe
a kept scale-down continues in a gap | a: 3 desired=2 kv=.1,.1 | a 3->2 KeptDecision
bounds hold in a gap | a: 3 max=2 kv=.60,.60 | a 3->2 AtMaximum
another model's gap does not matter | a: 3 kv=.1; == m2; b: 3 kv=.1,.1 | a 3->2 ScaleDownSafe; b 3->3 ScrapeGap
# One of the two main signals alone: the other counts as 0 for growth, and the load is unknown for scale-down.
without the KV use | a: 3 kv=- queue=0 | a 3->3 SignalUnknown replicas=3; warning SignalMissing a KvUsage 3
one of four without the KV use | a: 4 kv=-,.1,.1,.1 queue=0 | a 4->4 SignalUnknown replicas=1; warning SignalMissing a KvUsage 1
without the queue (counts as 0), with a warning | a: 2 kv=.75,.75 queue=-,0 | a 2->3 SpareBelowTarget; warning SignalMissing a Queue 1
each variant and each signal by itself | a: 2 kv=-,.72 queue=0,-; b: 2 kv=.72 | a 2->2 NoChange; b 2->2 NoChange; warning SignalMissing a KvUsage 1; warning SignalMissing a Queue 1
samples that do not count raise no warning | a: 3 kv=.1,.1,- age=0s,0s,121s | a 3->3 MetricsStale; warning none
replicas without any signal raise no warning | a: 2 kv=.60,- queue=0,- | a 2->2 NoChange; warning none
# What a replica does.
a cache full of prefixes counts as 0 | a: 1 running=0 kv=.95 | a 1->1 NoChange meanSpareKv=0.8
a cache full of prefixes does not keep it from shrinking | a: 3 running=0 kv=.95 | a 3->2 ScaleDownSafe
requests that run fill the cache | a: 1 running=2 kv=.95 | a 1->2 AllSaturated
asleep adds no capacity | a: 3 kv=.78,.1,.1 queue=4,0,0 asleep=-,y,y | a 3->4 SpareBelowTarget reporting=1
asleep does not count as spare | a: 3 kv=.50,.1,.1 asleep=-,y,y | a 3->3 NoChange
enough awake ones, and one that sleeps | a: 4 kv=.1 asleep=-,-,-,y | a 4->3 ScaleDownSafe
all asleep | a: 2 kv=0 asleep=y | a 2->2 SafetyNet
requests that nothing serves | a: 7 running=0 kv=.1,.1,.1,.1,.1,.1,0 queue=213,78,40,32,30,22,0 | a 7->7 NoProgress
stalled for ten minutes, which forbids scale-down | a: 4 kv=.1 stalled=10m,-,-,- | a 4->4 NoProgress
# Ages: fresh to 1m, stale to 2m, unknown to 5m, then missing.
fresh to the last second | a: 3 kv=.1 age=60s | a 3->2 ScaleDownSafe
late, which forbids scale-down | a: 3 kv=.1 age=60s,60s,61s | a 3->3 MetricsStale stale=1
late, and it counts | a: 3 kv=.78,.78,.1 age=0s,0s,120s | a 3->3 NoChange reporting=3
late, and it grows | a: 2 kv=.75 age=61s | a 2->3 SpareBelowTarget
stale, and it does not count | a: 3 kv=.78,.78,.1 age=0s,0s,121s | a 3->4 SpareBelowTarget reporting=2
stale, which forbids scale-down | a: 3 kv=.1 age=0s,0s,121s | a 3->3 MetricsStale stale=1
stale to the last second | a: 3 kv=.1 age=0s,0s,300s | a 3->3 MetricsStale stale=1
missing | a: 3 kv=.1 age=0s,0s,301s | a 3->3 ScrapeGap reporting=2
older than the last change of replicas, which forbids scale-down | a: 3 currentFor=10s kv=.1 age=0s,0s,11s | a 3->3 MetricsStale stale=1
newer than the last change of replicas | a: 3 currentFor=10s kv=.1 age=10s | a 3->2 ScaleDownSafe
a configured age | config metricsAge: {fresh: 5s}; a: 3 kv=.1 age=6s | a 3->3 MetricsStale stale=3
all ages configured | config metricsAge: {fresh: 5s, stale: 6s, unavailable: 7s}; a: 4 kv=.1 age=5s,6s,7s,8s | a 4->4 ScrapeGap ready=4 reporting=3
# The safety net.
the last target is held | a: 3 desired=5 | a 3->5 SafetyNet fallbackSource=previous-desired cause=noMetrics
without a last target the current replicas are held | a: 3 | a 3->3 SafetyNet fallbackSource=current-replicas ready=3
the hold does not end it | a: 3 desired=5 desiredAge=1h | a 3->5 SafetyNet
a lower last target is held, too | a: 3 desired=2 | a 3->2 SafetyNet fallbackSource=previous-desired
it is clamped to the maximum | a: 3 desired=5 max=4 | a 3->4 SafetyNet AtMaximum
it is clamped to the minimum | a: 1 min=2 | a 1->2 SafetyNet AtMinimum
where every sample is stale | a: 3 desired=5 kv=.78 age=121s | a 3->5 SafetyNet
where no sample has a signal | a: 2 kv=- queue=- | a 2->2 SafetyNet
a target of 0 needs its evidence | a: 1 desired=0 | a 1->1 SafetyNet fallbackSource=current-replicas
variants at 0 hold what they had | a: 1 desired=1; b: 0 desired=1; c: 0 | a 1->1 SafetyNet; b 0->1 SafetyNet; c 0->0 SafetyNet
one variant that reports is enough | a: 2 kv=.60; b: 1 | a 2->2 NoChange; b 1->1 NoChange
a model at 0 needs none | a: 0 desired=2 | a 0->0 NoChange
terminating pods are not load of a model at 0 | a: 0 kv=.95,.95 | a 0->0 NoChange
one model's failure never stops another | a: 2; == m2; b: 2 kv=.78 | a 2->2 SafetyNet; b 2->3 SpareBelowTarget
";
