//! What the throughput analyzer reads and remembers: counters of servers that have been busy for minutes, and the memory
//! of the cycles that have watched them.

use std::mem::size_of;
use std::time::Duration;

use wva_crds::GoDuration;
use wva_scaling::snapshot::{Curve, Learned, LearnedPod, Need, WorkSample};
use wva_scaling::{Snapshot, decide};

use crate::fleet::{Random, amount};

/// Cycles that have watched a fleet, and the time between two of them.
const CYCLES: u32 = 12;
const STEP: Duration = Duration::from_secs(15);
/// Scrapes of a pod that a snapshot carries.
const SCRAPES: u32 = 6;
/// Mean tokens of a request, and the times of a step of the engine in seconds.
const SHAPE: (f64, f64) = (550.0, 250.0);
const ENGINE: (f64, f64, f64) = (0.02, 0.0003, 0.0001);

/// Has every model of a fleet watched for long enough to be learnt, and to be taken from.
pub(crate) fn watch(mut snapshot: Snapshot, random: &mut Random) -> Snapshot {
    let running: Vec<f64> = snapshot.models.iter().map(|_| 4.0 + 150.0 * random.share()).collect();
    for cycle in 1..=CYCLES {
        show(&mut snapshot, &running, cycle);
        let learned = decide(&snapshot).next.learned;
        snapshot.learned = learned.into_iter().map(|learned| learned.after(STEP)).collect();
    }
    show(&mut snapshot, &running, CYCLES + 1);
    for learned in &mut snapshot.learned {
        learned.watched = GoDuration::from_secs(3600);
        learned.needs.clear();
    }
    snapshot
}

/// Gives each pod the scrapes that it has after so many cycles.
fn show(snapshot: &mut Snapshot, running: &[f64], cycle: u32) {
    for (model, running) in snapshot.models.iter_mut().zip(running) {
        for replica in model.variants.iter_mut().flat_map(|v| &mut v.replicas) {
            let scrapes = (0..SCRAPES.min(cycle)).rev();
            replica.work = scrapes.map(|ago| scrape(*running, cycle - ago, ago)).collect();
        }
    }
}

/// A scrape of a server after so many cycles, taken so many before the present one.
fn scrape(running: f64, cycles: u32, ago: u32) -> WorkSample {
    let ((input, output), (a, b, c)) = (SHAPE, ENGINE);
    let step = a + running * (b + c * input / output);
    let done = running / (output * step) * (STEP * cycles).as_secs_f64();
    WorkSample {
        age: GoDuration::from(Duration::from_secs(5) + STEP * ago),
        completed: amount(done),
        prompt_tokens: amount(done * input),
        generated_tokens: amount(done * output),
        prefills: amount(done),
        prefill_seconds: amount(done * (a + running * b + c * input)),
        gaps: amount(done * output),
        gap_seconds: amount(done * output * step),
        running: amount(running),
        waiting: amount(0.0),
    }
}

/// Bytes that the analyzer's memory takes for each pod, the share of its model included: in memory, and in a file.
pub(crate) struct State {
    pub(crate) pods: usize,
    pub(crate) in_memory: usize,
    pub(crate) in_a_file: usize,
    /// What the scrapes of a pod take beside that, in memory.
    pub(crate) scrapes: usize,
}

impl State {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let learned = decide(snapshot).next.learned;
        let pods = learned.iter().map(|l| l.pods.len()).sum::<usize>();
        let in_memory = learned.iter().map(|l| size_of::<Learned>() + heap(l)).sum::<usize>();
        let in_a_file = serde_json::to_string(&learned).unwrap().len();
        let scrapes = usize::try_from(SCRAPES).unwrap() * size_of::<WorkSample>();
        Self { pods, in_memory: in_memory / pods, in_a_file: in_a_file / pods, scrapes }
    }
}

/// What stands behind the pointers of a memory.
fn heap(learned: &Learned) -> usize {
    let figures = 8 * (learned.arrivals.capacity() + learned.completed.capacity());
    let pods = learned.pods.capacity() * size_of::<LearnedPod>()
        + learned.pods.iter().map(|pod| pod.pod.capacity()).sum::<usize>();
    let of_curve =
        |curve: &Curve| size_of::<Curve>() + curve.accelerator.capacity() + curve.engine_args.capacity();
    let curves = learned.curves.iter().map(of_curve).sum::<usize>();
    let needs = learned.needs.capacity() * size_of::<Need>();
    learned.model_id.capacity() + learned.namespace.capacity() + figures + needs + pods + curves
}
