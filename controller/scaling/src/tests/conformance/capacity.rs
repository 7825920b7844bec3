//! Capacity of a replica by the token analyzer: memory bound k1, compute bound k2, and the capacity of variants without
//! samples. 1000 blocks of 16 tokens hold 16,000 tokens, of which 12,800 are below the threshold of 0.8.

pub(super) const ROWS: &str = "
given: tokens; each blocks=1000 in=512 out=128
# k1.
capacity times the threshold | a: 1 kv=.1 | a 1->1 NoChange perReplica=12800 capacity=12800
another threshold | tokens kvCacheThreshold: 0.5; a: 1 kv=.1 | a 1->1 NoChange perReplica=8000
another block size | a: 1 kv=.1 size=32 | a 1->1 NoChange perReplica=25600
# k2, derived: n = min(B*O/(I+O), S), k2 = n*(I + O/2).
bound by max-num-seqs | a: 1 kv=.1 args=--max-num-seqs=10 | a 1->1 NoChange perReplica=5760
bound by max-num-batched-tokens | a: 1 kv=.1 args=--max_num_batched_tokens|100 | a 1->1 NoChange perReplica=11520
bound by max-num-seqs of each engine | a: 1 ranks=2 kv=.1 args=--max-num-seqs=10 | a 1->1 NoChange perReplica=11520
bound by a longer output | a: 1 kv=.1 out=512 args=--max-num-seqs=10 | a 1->1 NoChange perReplica=7680
derived above k1 | a: 1 kv=.1 args=--max-num-seqs=100 | a 1->1 NoChange perReplica=12800
no mean input: its term is 0 | a: 1 kv=.1 in=- args=--max-num-seqs=100 | a 1->1 NoChange perReplica=6400
no mean output: no derived bound | a: 1 kv=.1 out=- args=--max-num-seqs=10 | a 1->1 NoChange perReplica=12800
no output tokens: no derived bound | a: 1 kv=.1 out=0 args=--max-num-seqs=10 | a 1->1 NoChange perReplica=12800
the output of the others where one has none | a: 2 kv=.1 out=128,- args=--max-num-seqs=10 | a 2->1 SupplyAboveDemand perReplica=5760
# k2, observed.
a full queue is an observation | a: 1 accelerator=H100 kv=.25 queue=5 | a 1->2 DemandAboveSupply perReplica=4000 demand=6560 capacity=4000; remembered H100 <500 4000
a queue just below full is not | a: 1 kv=.25 queue=4.9 | a 1->1 NoChange perReplica=12800; remembered none
a threshold of its own | tokens queueLengthThreshold: 2; a: 1 kv=.25 queue=2 | a 1->2 DemandAboveSupply perReplica=4000
a full queue with nothing in use is not | a: 1 kv=0 queue=5 | a 1->1 NoChange perReplica=12800; remembered none
observed above k1 | a: 1 accelerator=H100 kv=.9 queue=5 | a 1->2 DemandAboveSupply perReplica=12800; remembered H100 <500 14400
observed wins over derived | a: 1 kv=.5 queue=5 args=--max-num-seqs=10 | a 1->2 DemandAboveSupply perReplica=8000
observed wins over remembered | remembered H100 <500 4000; a: 1 accelerator=H100 kv=.5 queue=5 | a 1->2 DemandAboveSupply perReplica=8000; remembered H100 <500 4000,8000
without an output it is used and not remembered | a: 1 out=- kv=.25 queue=5 | a 1->2 DemandAboveSupply perReplica=4000; remembered none
it is remembered after the cycle, not in it | a: 2 accelerator=H100 kv=.25,.25 queue=5,0 | a 2->2 NoChange perReplica=8400; remembered H100 <500 4000
in order of variant and pod | b: 1 accelerator=H100 kv=.5 queue=5; a: 2 accelerator=H100 kv=.25,.125 queue=5 | a 2->2 NoChange; b 1->3 DemandAboveSupply; remembered H100 <500 4000,2000,8000
an unresolved accelerator is not remembered | a: 1 kv=.25 queue=5 | a 1->2 DemandAboveSupply; remembered none
# k2, remembered.
the mean of earlier cycles | remembered H100 <500 4000,6000; a: 1 accelerator=H100 kv=.1 | a 1->1 NoChange perReplica=5000
remembered wins over derived | remembered H100 <500 4000; a: 1 accelerator=H100 kv=.1 args=--max-num-seqs=4 | a 1->1 NoChange perReplica=4000
remembered above k1 | remembered H100 <500 15000; a: 1 accelerator=H100 kv=.1 | a 1->1 NoChange perReplica=12800
the last ten count | remembered H100 <500 1,6000,6000,6000,6000,6000,6000,6000,6000,6000,6000; a: 1 accelerator=H100 kv=.1 | a 1->1 NoChange perReplica=6000
the last ten are kept | remembered H100 <500 1,2,3,4,5,6,7,8,9,10; a: 1 accelerator=H100 kv=.5 queue=5 | a 1->2 DemandAboveSupply; remembered H100 <500 2,3,4,5,6,7,8,9,10,8000
another accelerator's do not count | remembered H100 <500 4000; a: 1 accelerator=L4 kv=.1 | a 1->1 NoChange perReplica=12800
observations of an unresolved accelerator do not count | remembered unresolved <500 4000; a: 1 kv=.1 | a 1->1 NoChange perReplica=12800
another length's do not count | remembered H100 <100 4000; a: 1 accelerator=H100 kv=.1 | a 1->1 NoChange perReplica=12800
another model's do not count | remembered H100 <500 4000; == m2; a: 1 accelerator=H100 kv=.1 | a 1->1 NoChange perReplica=12800
# Buckets.
99 tokens are short | a: 1 accelerator=H100 out=99 kv=.25 queue=5 | a 1->2 DemandAboveSupply; remembered H100 <100 4000
100 tokens are not | a: 1 accelerator=H100 out=100 kv=.25 queue=5 | a 1->2 DemandAboveSupply; remembered H100 <500 4000
499 tokens are of medium length | a: 1 accelerator=H100 out=499 kv=.25 queue=5 | a 1->2 DemandAboveSupply; remembered H100 <500 4000
500 tokens are long | a: 1 accelerator=H100 out=500 kv=.25 queue=5 | a 1->2 DemandAboveSupply; remembered H100 >=500 4000
# The median over a variant's replicas.
the middle one | a: 3 kv=.5 blocks=1000,500,2000 | a 3->3 NoChange perReplica=12800
the mean of the middle two | a: 2 kv=.5 blocks=1000,500 | a 2->2 NoChange perReplica=9600
of four | a: 4 kv=.5 blocks=1000,500,2000,100 | a 4->4 NoChange perReplica=9600
# A replica without cache config.
the median of the others | a: 3 kv=.5 blocks=1000,2000,- | a 3->3 NoChange perReplica=19200
the others before the arguments | a: 2 kv=.6 blocks=1000,- args=--num-gpu-blocks-override=10 | a 2->2 NoChange perReplica=12800
the arguments | a: 1 kv=.5 blocks=- args=--num-gpu-blocks-override=500 | a 1->1 NoChange perReplica=6400
the arguments of each engine | a: 1 ranks=4 kv=.5 blocks=- args=--num-gpu-blocks-override=500 | a 1->1 NoChange perReplica=25600
the arguments with a block size | a: 1 kv=.5 blocks=- args=--num-gpu-blocks-override|500|--block-size=32 | a 1->1 NoChange perReplica=12800
0 blocks count as unknown | a: 2 kv=.6 blocks=1000,0 | a 2->2 NoChange perReplica=12800
no source of the capacity: the analysis fails | a: 1 desired=2 kv=.5 blocks=- | a 1->2 SafetyNet cause=noCapacity pod=a-0
no source of the capacity, for one of many | a: 1 kv=.5; b: 1 kv=.5 blocks=- | a 1->1 SafetyNet cause=noCapacity pod=b-0; b 1->1 SafetyNet
no block size | a: 1 kv=.5 size=- | a 1->1 SafetyNet cause=noCapacity
# A variant without samples.
remembered | a: 1 kv=.5; b: 0 capacity=6400 | a 1->1 NoChange; b 0->0 NoChange perReplica=6400 capacity=6400
remembered wins while no replica is ready | a: 1 kv=.5; b: 1 ready=0 pods=1 kv=.1 capacity=6400 | a 1->1 NoChange; b 1->1 NoChange perReplica=6400 capacity=6400
measured while no replica is ready, without a remembered capacity | a: 1 kv=.5; b: 1 ready=0 pods=1 kv=.1 | a 1->1 NoChange; b 1->1 NoChange perReplica=12800 capacity=12800
measured wins over remembered | a: 1 kv=.1 capacity=6400 | a 1->1 NoChange perReplica=12800 capacity=12800
a compatible variant's | a: 1 accelerator=H100 kv=.5; b: 0 accelerator=H100 | a 1->1 NoChange; b 0->0 NoChange perReplica=12800 capacity=none
a compatible variant's memory | a: 1 kv=.5; b: 0 accelerator=H100 capacity=6400; c: 0 accelerator=H100 | a 1->1 NoChange; b 0->0 NoChange; c 0->0 NoChange perReplica=6400
equivalent arguments: compatible | a: 1 accelerator=H100 kv=.5 args=--port=8000; b: 0 accelerator=H100 args=--block-size=16|--port=9000 | a 1->1 NoChange; b 0->0 NoChange perReplica=12800
other arguments: not compatible | a: 1 accelerator=H100 kv=.5; b: 0 accelerator=H100 args=--kv-cache-dtype=fp8 | a 1->1 NoChange; b 0->0 NoChange perReplica=8192
another accelerator: not compatible | a: 1 accelerator=H100 kv=.5; b: 0 accelerator=L4 | a 1->1 NoChange; b 0->0 NoChange perReplica=2048
other GPUs: not compatible | a: 1 accelerator=H100 kv=.5; b: 0 accelerator=H100 gpus=2 | a 1->1 NoChange; b 0->0 NoChange perReplica=8192
unknown accelerators: not compatible | a: 1 kv=.5; b: 0 | a 1->1 NoChange; b 0->0 NoChange perReplica=8192
# The bound from the arguments.
V1 | a: 1 kv=.5; b: 0 args=VLLM_USE_V1=1 | a 1->1 NoChange; b 0->0 NoChange perReplica=8192
V0 | a: 1 kv=.5; b: 0 args=VLLM_USE_V1=0 | a 1->1 NoChange; b 0->0 NoChange perReplica=2048
V0 with a long context | a: 1 kv=.5; b: 0 args=VLLM_USE_V1=0|--max-model-len=4096 | a 1->1 NoChange; b 0->0 NoChange perReplica=4096
V0 in chunks | a: 1 kv=.5; b: 0 args=VLLM_USE_V1=0|--max-model-len=4096|--enable-chunked-prefill | a 1->1 NoChange; b 0->0 NoChange perReplica=2048
set by hand | a: 1 kv=.5; b: 0 args=VLLM_USE_V1=0|--max-num-batched-tokens|4k | a 1->1 NoChange; b 0->0 NoChange perReplica=4000
";
