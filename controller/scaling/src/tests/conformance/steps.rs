//! Size of a step: the tolerance of the HPA, and the bounds.

pub(super) const ROWS: &str = "
# The smallest n with n/current > tolerance.
no HPA | a: 10 kv=.72 | a 10->11 SpareBelowTarget
tolerance 0 | a: 10 hpa=0 kv=.72 | a 10->11 SpareBelowTarget
2/20 is not above 0.1 | a: 20 hpa=0.1 kv=.72 | a 20->23 SpareBelowTarget
tolerance 0.2 at 10 | a: 10 hpa=0.2 kv=.72 | a 10->13 SpareBelowTarget
tolerance 0.3 at 10 | a: 10 hpa=0.3 kv=.72 | a 10->14 SpareBelowTarget
# .58 * 50 is a little less than 29 in binary.
tolerance 0.58 at 50 | a: 50 hpa=0.58 kv=.72 | a 50->80 SpareBelowTarget
tolerance 1 at 1 | a: 1 hpa=1 kv=.72 | a 1->3 SpareBelowTarget
a different tolerance upwards | a: 10 hpaUp=0.2 hpaDown=0 kv=.72 | a 10->13 SpareBelowTarget
a different tolerance downwards | a: 10 hpaUp=0.2 hpaDown=0 kv=.40 | a 10->9 ScaleDownSafe
tolerance 0 is 1 also at very many | a: 2000000000 hpa=0 pods=1 kv=.72 | a 2000000000->2000000001 SpareBelowTarget
from 0 a tolerance means nothing | a: 1 cost=80 kv=.78; b: 0 cost=40 hpa=0.9 | a 1->1 NoChange; b 0->1 SpareBelowTarget
# Downwards it must be safe as a whole, and leave one.
a step down that leaves none | a: 2 hpa=0.6 kv=.1 | a 2->2 StepNotSafe step=2
a step down that leaves one | a: 3 hpa=0.6 kv=.1 | a 3->1 ScaleDownSafe
the queue decides, too | a: 10 hpa=0.1 kv=.1 queue=1.7 | a 10->10 StepNotSafe step=2
one fewer would be safe | a: 10 hpa=0 kv=.1 queue=1.7 | a 10->9 ScaleDownSafe
the most expensive one has no safe step, and no other shrinks | a: 2 cost=80 hpa=0.6 kv=.1; b: 2 cost=40 kv=.1 | a 2->2 StepNotSafe; b 2->2 NoChange
# Bounds.
at its maximum, alone | a: 2 max=2 kv=.78 | a 2->2 AtMaximum max=2
at its maximum it leaves the step to the next | a: 2 cost=40 max=2 kv=.78; b: 1 cost=80 kv=.78 | a 2->2 AtMaximum; b 1->2 SpareBelowTarget
so near its maximum that the HPA would ignore it | a: 10 cost=40 max=11 hpa=0.1 kv=.78; b: 1 cost=80 kv=.78 | a 10->10 AtMaximum; b 1->2 SpareBelowTarget
near enough | a: 10 cost=40 max=12 hpa=0.1 kv=.78 | a 10->12 SpareBelowTarget
a more expensive one at its maximum has no reason | a: 2 cost=80 max=2 kv=.78; b: 1 cost=40 kv=.78 | a 2->2 NoChange; b 1->2 SpareBelowTarget
all at their maxima | a: 2 cost=40 max=2 kv=.78; b: 1 cost=80 max=1 kv=.78 | a 2->2 AtMaximum; b 1->1 AtMaximum
at its minimum, alone | a: 3 min=3 kv=.1 | a 3->3 NoChange
at its minimum it leaves the step to the next | a: 2 cost=80 min=2 kv=.10; b: 2 cost=40 kv=.10 | a 2->2 NoChange; b 2->1 ScaleDownSafe
so near its minimum that the HPA would ignore it | a: 12 min=11 hpa=0.1 kv=.10 | a 12->12 NoChange
near enough to its minimum | a: 12 min=10 hpa=0.1 kv=.10 | a 12->10 ScaleDownSafe
below its minimum | a: 1 min=3 kv=.10 | a 1->3 AtMinimum min=3
below its minimum, and it grows | a: 1 min=3 kv=.75 | a 1->3 SpareBelowTarget AtMinimum
above its maximum, and it shrinks | a: 12 max=10 kv=.1 | a 12->9 ScaleDownSafe
above its maximum, and it needs more | a: 12 max=10 kv=.75 | a 12->10 AtMaximum AtMaximum
bounds that contradict each other: the maximum holds | a: 2 min=5 max=3 kv=.5 | a 2->3 AtMinimum min=5
a maximum of 0 | a: 1 max=0 kv=.1 | a 1->0 AtMaximum max=0
a maximum of 0 passes the one that is kept to the next | a: 1 cost=40 max=0 kv=.1; b: 0 cost=80 | a 1->0 AtMaximum; b 0->1 MinimumKept
";
