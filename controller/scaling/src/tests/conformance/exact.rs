//! `optimizer: exact`: the cheapest way to meet a need. A big replica holds ten times the tokens of a small one at eight
//! times its cost, so a token of it is cheaper, and one that is full lacks 100000/.85 - 80000 = 37647.

pub(super) const ROWS: &str = "
given: tokens optimizer: costAware
the rule takes the cheapest token | big: 1 cost=40 kv=1 blocks=6250; small: 0 cost=5 capacity=8000 | big 1->2 DemandAboveSupply; small 0->0 NoChange
the rule takes the dearest away first | a: 1 cost=10 kv=0 blocks=6250; b: 3 cost=9 kv=.33 blocks=3125 | a 1->0 SupplyAboveDemand; b 3->2 SupplyAboveDemand
given: tokens optimizer: exact
5 small ones cost 25, a big one 40 | big: 1 cost=40 kv=1 blocks=6250; small: 0 cost=5 capacity=8000 | big 1->1 NoChange; small 0->5 DemandAboveSupply
for 72941, 10 small ones would cost more | waiting 0 120000; big: 1 cost=40 kv=1 blocks=6250; small: 0 cost=5 capacity=8000 | big 1->2 DemandAboveSupply; small 0->0 NoChange
for 107647, a big one and 4 small ones | waiting 0 238000; big: 1 cost=40 kv=1 blocks=6250; small: 0 cost=5 capacity=8000 | big 1->2 DemandAboveSupply; small 0->4 DemandAboveSupply
# What is in the way.
at most 2 small ones | big: 1 cost=40 kv=1 blocks=6250; small: 0 max=2 cost=5 capacity=8000 | big 1->2 DemandAboveSupply; small 0->0 NoChange
no further big one | big: 1 max=1 cost=40 kv=1 blocks=6250; small: 0 cost=5 capacity=8000 | big 1->1 AtMaximum; small 0->5 DemandAboveSupply
small ones are stuck | big: 1 cost=40 kv=1 blocks=6250; small: 1 ready=0 cost=5 pending=11m/starting capacity=8000 | big 1->2 DemandAboveSupply; small 1->1 NoChange
it asks for nothing that is not there | stock L4=4; big: 1 cost=40 kv=1 blocks=6250; small: 0 accelerator=L4 cost=5 capacity=8000 | big 1->2 DemandAboveSupply; small 0->0 NoChange
where the need cannot be met, all there is | stock L4=4; big: 1 max=1 cost=40 kv=1 blocks=6250; small: 0 accelerator=L4 cost=5 capacity=8000 | big 1->1 AtMaximum; small 0->4 DemandAboveSupply LimitedBy
# Spare: 80000 + 5 * 8000 - 40000/.7 = 62857, less than the big one and more than all small ones.
what fits is taken | big: 1 cost=40 kv=.4 blocks=6250; small: 5 cost=5 kv=0 blocks=625 | big 1->1 NoChange; small 5->0 SupplyAboveDemand
# Of 129,286 that are spare, one at 10 that holds 80,000 leaves room for one at 9 that holds 40,000; three of those save more.
the dearest first is not always best | a: 1 cost=10 kv=0 blocks=6250; b: 3 cost=9 kv=.33 blocks=3125 | a 1->1 NoChange; b 3->0 SupplyAboveDemand
the last one that serves stays | a: 1 cost=10 kv=0 blocks=625 | a 1->1 NoChange
the cheaper of the last two stays | a: 1 cost=10 kv=0 blocks=625; b: 1 cost=20 kv=0 blocks=625 | a 1->1 NoChange; b 1->0 SupplyAboveDemand
late samples keep both | a: 1 cost=10 kv=0 blocks=625; b: 1 cost=20 kv=0 blocks=625 age=90s | a 1->1 MetricsStale; b 1->1 MetricsStale
";
