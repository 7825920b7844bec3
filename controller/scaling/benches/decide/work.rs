//! Input of the throughput analyzer: counters of servers that have been busy for minutes, and the memory of the cycles
//! before.

use std::mem::size_of;
use std::time::Duration;

use wva_crds::GoDuration;
use wva_scaling::snapshot::{Curve, NeedPeak, PodHistory, ThroughputMemory, WorkSample};
use wva_scaling::{Snapshot, decide};

use crate::fleet::{Random, amount};

/// Cycles before the measured one.
const CYCLES: u32 = 12;
/// Time between two cycles.
const STEP: Duration = Duration::from_secs(15);
/// Scrapes of a pod in a snapshot.
const SCRAPES: u32 = 6;
/// Mean prompt and generated tokens of a request.
const INPUT: f64 = 550.0;
const OUTPUT: f64 = 250.0;
/// Time of an engine step, seconds: fixed, per running sequence, and per prompt token.
const FIXED: f64 = 0.02;
const PER_SEQUENCE: f64 = 0.0003;
const PER_PROMPT_TOKEN: f64 = 0.0001;

/// Runs cycles until the analyzer has learned every model and may shrink it.
pub(crate) fn run_cycles(mut snapshot: Snapshot, random: &mut Random) -> Snapshot {
    let running: Vec<f64> = snapshot.models.iter().map(|_| 4.0 + 150.0 * random.share()).collect();
    for cycle in 1..=CYCLES {
        set_scrapes(&mut snapshot, &running, cycle);
        let learned = decide(&snapshot).next.learned;
        snapshot.learned = learned.into_iter().map(|learned| learned.aged_by(STEP)).collect();
    }
    set_scrapes(&mut snapshot, &running, CYCLES + 1);
    for learned in &mut snapshot.learned {
        learned.watched = GoDuration::from_secs(3600);
        learned.needs.clear();
    }
    snapshot
}

/// Sets the scrapes of each pod after `cycle` cycles.
fn set_scrapes(snapshot: &mut Snapshot, running: &[f64], cycle: u32) {
    for (model, running) in snapshot.models.iter_mut().zip(running) {
        for replica in model.variants.iter_mut().flat_map(|v| &mut v.replicas) {
            let scrapes = (0..SCRAPES.min(cycle)).rev();
            replica.work = scrapes.map(|ago| scrape(*running, cycle - ago, ago)).collect();
        }
    }
}

/// A scrape of a server after `cycles` cycles, taken `ago` cycles before the present one.
fn scrape(running: f64, cycles: u32, ago: u32) -> WorkSample {
    let step = FIXED + running * (PER_SEQUENCE + PER_PROMPT_TOKEN * INPUT / OUTPUT);
    let done = running / (OUTPUT * step) * (STEP * cycles).as_secs_f64();
    WorkSample {
        age: GoDuration::from(Duration::from_secs(5) + STEP * ago),
        completed: amount(done),
        first_tokens: amount(done + running),
        prompt_tokens: amount(done * INPUT),
        generated_tokens: amount(done * OUTPUT),
        prefills: amount(done),
        prefill_seconds: amount(done * (FIXED + running * PER_SEQUENCE + PER_PROMPT_TOKEN * INPUT)),
        gaps: amount(done * OUTPUT),
        gap_seconds: amount(done * OUTPUT * step),
        running: amount(running),
        waiting: amount(0.0),
        ..WorkSample::default()
    }
}

/// Size of the analyzer's memory in bytes per pod, including the share of its model.
pub(crate) struct MemorySize {
    pub(crate) pods: usize,
    pub(crate) in_memory: usize,
    pub(crate) in_a_file: usize,
    /// Size of the scrapes of a pod in memory.
    pub(crate) scrapes: usize,
}

impl MemorySize {
    pub(crate) fn measure(snapshot: &Snapshot) -> Self {
        let learned = decide(snapshot).next.learned;
        let pods = learned.iter().map(|l| l.pods.len()).sum::<usize>();
        let in_memory = learned.iter().map(|l| size_of::<ThroughputMemory>() + heap(l)).sum::<usize>();
        let in_a_file = serde_json::to_string(&learned).unwrap().len();
        let scrapes = usize::try_from(SCRAPES).unwrap() * size_of::<WorkSample>();
        Self { pods, in_memory: in_memory / pods, in_a_file: in_a_file / pods, scrapes }
    }
}

/// Counts in front of a shared name.
const SHARED: usize = 2 * size_of::<usize>();

/// Heap bytes of a memory. Its shared names are counted in full.
fn heap(learned: &ThroughputMemory) -> usize {
    let figures = 8 * (learned.arrivals.capacity() + learned.completed.capacity());
    let pods = learned.pods.capacity() * size_of::<PodHistory>()
        + learned.pods.iter().map(|pod| SHARED + pod.pod.len()).sum::<usize>();
    let curve_size =
        |curve: &Curve| size_of::<Curve>() + 2 * SHARED + curve.accelerator.len() + curve.engine_args.len();
    let curves = learned.curves.iter().map(curve_size).sum::<usize>();
    let needs = learned.needs.capacity() * size_of::<NeedPeak>();
    learned.model_id.capacity() + learned.namespace.capacity() + figures + needs + pods + curves
}
