//! Examples of the specification: thresholds 0.80 / 5 / 0.10 / 3. Unless a row says otherwise: queue 0, all replicas ready,
//! no HPA, no bounds, no earlier decision.

pub(super) const ROWS: &str = "
example: mean spare .045 | a: 2 kv=.75,.76 | a 2->3 SpareBelowTarget meanSpareKv=0.045
example: 1 replica would have a load of 1.0 | a: 2 kv=.50,.50 | a 2->2 NoChange meanSpareKv=0.3
example: 10 replicas, tolerance 0.1 | a: 10 hpa=0.1 kv=.72 | a 10->12 SpareBelowTarget
example: 9 replicas, tolerance 0.1 | a: 9 hpa=0.1 kv=.72 | a 9->10 SpareBelowTarget
example: .40 * 10/8 = .50 | a: 10 hpa=0.1 kv=.40 | a 10->8 ScaleDownSafe
example: .58 * 10/8 = .725 | a: 10 hpa=0.1 kv=.58 | a 10->10 StepNotSafe step=2
example: a has pending replicas, b takes the step | a: 3 ready=2 cost=40 kv=.78,.77; b: 1 cost=80 kv=.75 | a 3->3 PendingReplicas pending=1; b 1->2 SpareBelowTarget
example: without b | a: 3 ready=2 cost=40 kv=.78,.77 | a 3->3 PendingReplicas
example: desired beyond the maximum | a: 3 desired=12 max=10 kv=.60 | a 3->10 OutOfBounds KeptDecision desired=12 max=10
example: desired beyond the maximum at kv .75 | a: 3 desired=12 max=10 kv=.75 | a 3->10 OutOfBounds KeptDecision
example: clamped | a: 12 max=10 kv=.65 | a 12->10 AtMaximum max=10
example: a kept scale-down is superseded | a: 3 desired=2 before=3 kv=.75 | a 3->4 Superseded SpareBelowTarget
example: a kept scale-up stays | a: 3 desired=4 kv=.75 | a 3->4 KeptDecision
example: of equal cost the one with more spare grows | a: 1 kv=.78; b: 1 kv=.70 | a 1->1 NoChange meanSpareKv=0.06; b 1->2 SpareBelowTarget meanSpareKv=0.06
example: of equal cost the one with more spare shrinks | a: 2 kv=.20; b: 2 kv=.30 | a 2->1 ScaleDownSafe; b 2->2 NoChange
example: tokens | tokens; a: 2 kv=.71 queue=2 blocks=1000 size=16 in=512 out=128 | a 2->3 DemandAboveSupply demand=24768 supply=25600 required=3538.8235 perReplica=12800
";
