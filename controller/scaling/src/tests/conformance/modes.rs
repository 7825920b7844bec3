//! The mode annotation decides last. Earlier steps show the decision, and other variants keep scaling.

pub(super) const ROWS: &str = "
recommend | a: 2 mode=recommend kv=.75 | a 2->3 SpareBelowTarget RecommendOnly
paused without a last target | a: 2 mode=paused kv=.75 | a 2->2 SpareBelowTarget Paused decided=3
paused at the last target | a: 2 mode=paused desired=5 kv=.75 | a 2->5 SpareBelowTarget Paused decided=6
paused without a change | a: 2 mode=paused kv=.50 | a 2->2 Paused decided=2
fixed | a: 2 mode=fixed=7 kv=.75 | a 2->7 SpareBelowTarget Fixed asked=7 decided=3
fixed above the maximum | a: 2 mode=fixed=7 max=6 kv=.75 | a 2->6 SpareBelowTarget Fixed asked=7
fixed below the minimum | a: 2 mode=fixed=0 min=1 kv=.75 | a 2->1 SpareBelowTarget Fixed asked=0
fixed at 0 | a: 2 mode=fixed=0 kv=.75 | a 2->0 SpareBelowTarget Fixed
fixed without metrics | a: 2 mode=fixed=4 | a 2->4 SafetyNet Fixed
paused without metrics | a: 2 mode=paused desired=3 | a 2->3 SafetyNet Paused
fixed where the model is at 0 | a: 0 mode=fixed=2 | a 0->2 Fixed decided=0
paused, and the next grows as well | a: 1 cost=40 mode=paused kv=.78; b: 1 cost=80 kv=.78 | a 1->1 SpareBelowTarget Paused; b 1->2 SpareBelowTarget
recommend, and the next grows as well | a: 1 cost=40 mode=recommend kv=.78; b: 1 cost=80 kv=.78 | a 1->2 SpareBelowTarget RecommendOnly; b 1->2 SpareBelowTarget
fixed, and the next shrinks as well | a: 3 cost=80 mode=fixed=3 kv=.10; b: 3 cost=40 kv=.10 | a 3->3 ScaleDownSafe Fixed; b 3->2 ScaleDownSafe
a more expensive one that is paused | a: 1 cost=40 kv=.78; b: 1 cost=80 mode=paused kv=.78 | a 1->2 SpareBelowTarget; b 1->1 Paused
paused does not keep its model at 0 | waiting 3; a: 0 cost=40 mode=paused; b: 0 cost=80; c: 0 cost=90 | a 0->0 RequestsWaiting Paused; b 0->1 RequestsWaiting; c 0->0 NoChange
one is kept where the other is fixed at 0 | a: 1 cost=40 mode=fixed=0 kv=.50; b: 1 cost=80 desired=0 kv=.50 | a 1->0 Fixed decided=1; b 1->1 KeptDecision MinimumKept
given: tokens; each blocks=1000 in=512 out=128
tokens: paused, and the next grows as well | a: 1 cost=40 mode=paused kv=.9; b: 1 cost=80 kv=.9 | a 1->1 DemandAboveSupply Paused; b 1->2 DemandAboveSupply
tokens: paused, and the next shrinks as well | a: 3 cost=80 mode=paused kv=.1; b: 3 cost=40 kv=.1 | a 3->3 SupplyAboveDemand Paused decided=0; b 3->0 SupplyAboveDemand
tokens: the last replica stays where the other is fixed at 0 | a: 1 cost=40 mode=fixed=0 kv=0; b: 1 cost=80 kv=0 | a 1->0 SupplyAboveDemand Fixed; b 1->1 NoChange
";
