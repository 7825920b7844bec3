//! Random snapshots for the laws. They resemble a cluster: most replicas report and are not saturated, and some models are
//! idle or at 0. `laws/coverage.rs` checks that every rule occurs.

mod budgets;
mod learned;
mod obstacles;

use std::fmt;
use std::ops::Deref;

use proptest::collection::{btree_map, vec};
use proptest::option::{of, weighted};
use proptest::prelude::*;
use wva_crds::GoDuration;
use wva_crds::entries::PositiveDuration;

use crate::snapshot::{
    AnalyzerName, Attainment, ComputeBounds, Config, GpuCount, HpaTolerance, Inventory, Lateness, Mode,
    Model, OutputBucket, Pending, PendingState, QueueFigures, Replica, Role, RouterLoad, SaturationEntry,
    SchedulerQueue, Snapshot, Variant, WakeObstacle, WarmSpare, WindowShares, WorkSample,
};
use crate::units::{Amount, Cost, Fraction, KvUsage, QueueLength};

/// A snapshot whose `Debug` form is a file for `wva decide`.
#[derive(Clone, PartialEq)]
pub(super) struct Case(pub(super) Snapshot);

impl Deref for Case {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yaml = serde_saphyr::to_string(&self.0).map_err(|_| fmt::Error)?;
        write!(f, "the snapshot\n{yaml}")
    }
}

/// Converts a figure to a type with a range.
pub(super) fn figure<T: TryFrom<f64, Error = wva_crds::entries::OutOfRange>>(value: f64) -> T {
    T::try_from(value).unwrap()
}

fn seconds(choices: &'static [u64]) -> impl Strategy<Value = GoDuration> {
    prop::sample::select(choices).prop_map(GoDuration::from_secs)
}

/// Age of a sample, mostly fresh.
fn sample_age() -> impl Strategy<Value = GoDuration> {
    prop_oneof![20 => Just(10), 1 => Just(90), 1 => Just(200), 1 => Just(400)].prop_map(GoDuration::from_secs)
}

/// An age on either side of every limit.
fn age() -> impl Strategy<Value = GoDuration> {
    seconds(&[0, 30, 61, 540, 600, 660, 3600])
}

fn amount(choices: &'static [u32]) -> impl Strategy<Value = Amount> {
    prop::sample::select(choices).prop_map(|n| figure(f64::from(n)))
}

fn replica() -> impl Strategy<Value = Replica> {
    let kv = weighted(0.97, prop_oneof![3 => 0..=40_u32, 3 => 40..80_u32, 1 => 80..=100_u32]);
    let queue = weighted(0.97, prop_oneof![5 => Just(0), 2 => 0..5_u32, 1 => 5..9_u32]);
    let blocks = weighted(0.97, amount(&[500, 1000, 2000]));
    let shape = (weighted(0.95, amount(&[100, 512])), weighted(0.95, amount(&[20, 128, 600])));
    let hit = of(prop::sample::select(&[0.0, 0.5][..]));
    let pace = weighted(0.95, prop::sample::select(&[0.0, 0.2, 1.0, 3.0][..]));
    let state = (weighted(0.01, Just(GoDuration::from_secs(600))), prop::bool::weighted(0.01));
    (kv, queue, sample_age(), blocks, shape, hit, (pace, state)).prop_map(
        |(kv, queue, age, blocks, shape, hit, (pace, (stalled_for, asleep)))| Replica {
            stalled_for,
            asleep,
            work: pace.map(|pace| work(pace, f64::from(queue.unwrap_or(0)))).unwrap_or_default(),
            kv: kv.map(|percent| figure::<KvUsage>(f64::from(percent) / 100.0)),
            queue: queue.map(|n| figure::<QueueLength>(f64::from(n))),
            num_gpu_blocks: blocks,
            block_size: blocks.map(|_| figure(16.0)),
            mean_input: shape.0,
            mean_output: shape.1,
            prefix_hit_rate: hit.map(figure::<Fraction>),
            age,
            ..Replica::default()
        },
    )
}

/// Scrapes of a replica that finishes `pace` requests per second.
fn work(pace: f64, waiting: f64) -> Vec<WorkSample> {
    let sample = |age: u64| {
        let done = (pace * f64::from(u32::try_from(10_000 - age).unwrap())).floor();
        WorkSample {
            age: GoDuration::from_secs(age),
            completed: figure(done),
            first_tokens: figure(done + (pace * 4.0).ceil()),
            refused: figure(if waiting > 0.0 { done } else { 0.0 }),
            prompt_tokens: figure(done * 500.0),
            cached_tokens: figure((done * 125.0 * waiting).min(done * 500.0)),
            generated_tokens: figure(done * 100.0),
            prefills: figure(done),
            prefill_seconds: figure((done * 0.125).floor()),
            gaps: figure(done * 99.0),
            gap_seconds: figure(done * 2.0),
            running: figure((pace * 4.0).ceil()),
            waiting: figure(waiting),
        }
    };
    [5, 20, 65].map(sample).into()
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![12 => Just(Mode::Auto), 1 => Just(Mode::Recommend), 1 => Just(Mode::Paused), 1 => (0_u32..9).prop_map(Mode::Fixed)]
}

fn pending() -> impl Strategy<Value = Pending> {
    let state = prop::sample::select(
        &[
            PendingState::Starting,
            PendingState::Unschedulable,
            PendingState::CrashLooping,
            PendingState::WaitingForQuota,
            PendingState::WaitingForQuota,
        ][..],
    );
    (age(), state).prop_map(|(age, state)| Pending { age, state })
}

/// Bounds; the minimum is sometimes above the maximum.
fn bounds() -> impl Strategy<Value = (Option<u32>, Option<u32>, bool)> {
    (weighted(0.3, 0_u32..4), weighted(0.3, 0_u32..8), any::<bool>())
}

fn engine_args() -> impl Strategy<Value = Vec<String>> {
    let args = &["", "", "", "--max-num-seqs=8", "--num-gpu-blocks-override=800", "VLLM_USE_V1=0"][..];
    let words = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
    prop::sample::select(args).prop_map(words)
}

/// Current replicas, those that are not ready, and the surplus of reporting replicas.
fn counts() -> impl Strategy<Value = (u32, u32, i32)> {
    let current = prop_oneof![1 => Just(0), 8 => 1_u32..5, 1 => 9_u32..13];
    let unready = prop_oneof![5 => Just(0), 1 => 1_u32..4];
    (current, unready, prop_oneof![10 => Just(0), 1 => -2..=2])
}

fn variant() -> impl Strategy<Value = Variant> {
    let decided = (weighted(0.4, prop_oneof![1 => Just(0), 2 => 0_u32..8]), of(age()));
    let unready = (weighted(0.3, vec(pending(), 0..4)), weighted(0.2, age()));
    let workload = (counts(), unready, obstacles::any(), engine_args());
    let hardware = (
        prop::sample::select(
            &[None, Some("H100"), Some("NVIDIA-H100-80GB-HBM3"), Some("L4"), Some("B200")][..],
        ),
        0_u32..3,
        of(amount(&[0, 6400, 12_800])),
    );
    let user = (0_u32..4, mode(), bounds(), weighted(0.4, prop::sample::select(&[0.0, 0.1, 0.3, 0.6][..])));
    let load = (weighted(0.6, amount(&[0, 2, 2])), vec(replica(), 1..5));
    (decided, workload, hardware, user, load).prop_map(|(decided, workload, hardware, user, load)| {
        let ((current, unready, surplus), (pending, woken_ago), obstacles, engine_args) = workload;
        let ready = current.saturating_sub(unready);
        let count = ready.saturating_add_signed(surplus);
        let replicas = load.1.iter().cycle().take(usize::try_from(count).unwrap()).enumerate();
        let (min, max, min_forbids_zero) = user.2;
        Variant {
            accelerator: hardware.0.map(str::to_owned),
            cost: figure::<Cost>(f64::from(user.0)),
            mode: user.1,
            current,
            ready: (unready > 0).then_some(ready),
            desired: decided.0,
            desired_age: decided.1,
            min,
            max,
            min_forbids_zero,
            hpa_tolerance: user.3.map(|t| HpaTolerance { up: figure(t), down: figure(t) }),
            woken_ago,
            obstacles,
            remembered_capacity: hardware.2,
            pending,
            running: load.0,
            gpus_per_replica: GpuCount(hardware.1),
            engine_args,
            replicas: replicas.map(|(i, r)| Replica { pod: format!("p{i}"), ..r.clone() }).collect(),
            // Sample ages and stuck replicas have the effect of `current_for` and `refused_ago`.
            ..Variant::default()
        }
    })
}

/// Load of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LoadKind {
    Busy,
    Idle,
    AtZero,
}

fn queue() -> impl Strategy<Value = SchedulerQueue> {
    let waiting =
        |size: Amount| QueueFigures { size, bytes: figure(size.get() * 1000.0), ..QueueFigures::default() };
    let refused = QueueFigures { refused: figure(2.0), ..QueueFigures::default() };
    prop_oneof![
        3 => Just(SchedulerQueue::Absent),
        1 => Just(SchedulerQueue::Unknown),
        1 => Just(SchedulerQueue::Known(refused)),
        3 => amount(&[0, 0, 3, 20]).prop_map(move |size| SchedulerQueue::Known(waiting(size))),
    ]
}

fn obstacle() -> impl Strategy<Value = Option<WakeObstacle>> {
    let all = Vec::from([WakeObstacle::NoFlowControl, WakeObstacle::NotRead, WakeObstacle::NameNotReported]);
    weighted(0.2, prop::sample::select(all))
}

fn model() -> impl Strategy<Value = Model> {
    let kind = prop_oneof![6 => Just(LoadKind::Busy), 1 => Just(LoadKind::Idle), 1 => Just(LoadKind::AtZero)];
    let ages = (of(age()), of(age()), of(age()));
    let has_roles = prop::bool::weighted(0.2);
    let router = weighted(0.8, (router(), prop::bool::weighted(0.2)));
    let states = (queue(), obstacle(), has_roles, of(lateness()), router);
    (vec(variant(), 1..4), kind, of(amount(&[0, 5])), states, ages).prop_map(
        |(mut variants, kind, requests, (queue, obstacle, has_roles, lateness, router), ages)| {
            if has_roles {
                assign_roles(&mut variants);
            }
            for variant in &mut variants {
                // No page of a server can be read.
                if router.is_some_and(|(_, is_alone)| is_alone) {
                    variant.replicas.clear();
                }
                match kind {
                    LoadKind::Busy => {}
                    LoadKind::Idle => make_idle(variant),
                    LoadKind::AtZero => (variant.current, variant.ready) = (0, None),
                }
            }
            let idle = kind == LoadKind::Idle;
            Model {
                requests_in_retention: if idle { Some(figure(0.0)) } else { requests },
                scheduler_queue: if idle { SchedulerQueue::Known(QueueFigures::default()) } else { queue },
                wake_obstacle: obstacle,
                tracked_for: ages.0.filter(|_| !idle),
                since_activity: ages.1.filter(|_| !idle),
                since_pod_start: ages.2.filter(|_| !idle),
                itl_lateness: lateness,
                attainment: lateness.map(attainment).unwrap_or_default(),
                lateness,
                router: router.map(|(load, _)| load),
                variants,
                ..Model::default()
            }
        },
    )
}

/// Requests in flight: none, as many as some replicas run, and more than all run.
fn router() -> impl Strategy<Value = RouterLoad> {
    let running = weighted(0.9, amount(&[0, 400, 20_000, 20_000]));
    running.prop_map(|running| RouterLoad { running, ..RouterLoad::default() })
}

/// Too few requests; none late; late ones below, between and above the limits of the floor for bursts.
fn lateness() -> impl Strategy<Value = Lateness> {
    let counts = prop::sample::select(&[(50.0, 9.0), (1e3, 0.0), (1e3, 2.0), (1e3, 5.0), (1e3, 500.0)][..]);
    counts.prop_map(|(requests, late)| Lateness { requests: figure(requests), late: figure(late) })
}

/// The same share in the last hour and the last day.
fn attainment(lateness: Lateness) -> Attainment {
    let share = lateness.share().and_then(|late| Fraction::try_from(1.0 - late).ok());
    let ttft = WindowShares { hour: share, day: share, ..WindowShares::default() };
    Attainment { ttft, ..Attainment::default() }
}

/// Makes variants prefill and decode by turns. Their pods have names of their own: only pods seen before have arrivals.
fn assign_roles(variants: &mut [Variant]) {
    for (i, variant) in variants.iter_mut().enumerate() {
        variant.role = Some(if i % 2 == 0 { Role::Prefill } else { Role::Decode });
        variant.replicas.iter_mut().for_each(|replica| replica.pod = format!("v{i}-{}", replica.pod));
    }
}

/// Removes all evidence against scaling to zero from a variant.
fn make_idle(variant: &mut Variant) {
    (variant.running, variant.woken_ago) = (Some(figure(0.0)), None);
    for replica in &mut variant.replicas {
        replica.queue = Some(figure(0.0));
        replica.age = GoDuration::from_secs(1);
    }
}

fn remembered() -> impl Strategy<Value = Vec<ComputeBounds>> {
    let output = prop::sample::select(&[OutputBucket::Short, OutputBucket::Medium, OutputBucket::Long][..]);
    let kind = (0_u32..2, prop::sample::select(&["H100", "L4", "unresolved"][..]), output);
    btree_map(kind, vec(amount(&[2000, 6000, 20_000]), 0..11), 0..3).prop_map(|kinds| {
        let bounds = |((model, accelerator, output), k2): ((u32, &str, OutputBucket), Vec<Amount>)| {
            let (model_id, accelerator) = (format!("m{model}"), accelerator.to_owned());
            ComputeBounds { namespace: String::new(), model_id, accelerator, output, k2 }
        };
        kinds.into_iter().map(bounds).collect()
    })
}

/// Settings of the cycle, and of all its models.
fn settings(analyzer: AnalyzerName) -> impl Strategy<Value = (Config, SaturationEntry)> {
    let stock = weighted(0.6, (0_u64..6, 0_u64..3, 0_u64..4));
    // Milliseconds: below a step of the learned engines, and above.
    let itl_slo = weighted(0.3, prop::sample::select(&[10.0, 60.0][..]));
    let target = weighted(0.4, prop::sample::select(&[90.0, 99.0, 99.9][..]));
    let flags = (any::<bool>(), weighted(0.5, any::<bool>()), stock, itl_slo, target);
    flags.prop_map(move |(to_zero, limited, stock, itl_slo, target)| {
        let entry = SaturationEntry {
            itl_slo: itl_slo.and_then(|ms| ms.try_into().ok()),
            slo_target: target.and_then(|percent| percent.try_into().ok()),
            warm_spare: Some(WarmSpare::On),
            drain: PositiveDuration::try_from(GoDuration::from_secs(5)).ok(),
            analyzer_name: Some(analyzer),
            enable_limiter: Some(limited == Some(false)),
            ..SaturationEntry::default()
        };
        let inventory = |(h100, form, l4): (u64, u64, u64)| {
            let stock = [("H100", h100), ("NVIDIA-H100-PCIe", form), ("nvidia-l4", l4)];
            stock.map(|(name, limit)| (name.to_owned(), Inventory { limit, used: 1 })).into()
        };
        let config = Config {
            scale_to_zero_default: to_zero,
            limited_mode: limited == Some(true),
            inventory: stock.map(inventory),
            ..Config::default()
        };
        (config, entry)
    })
}

/// A snapshot with one analyzer for all models.
pub(super) fn case_of(analyzer: AnalyzerName) -> impl Strategy<Value = Case> {
    let learned = vec(weighted(0.8, learned::parameters()), 3);
    (vec(model(), 1..4), settings(analyzer), remembered(), learned, budgets::budgets()).prop_map(
        move |(mut models, (config, saturation), remembered, learned, budgets)| {
            for (m, model) in models.iter_mut().enumerate() {
                // One modelID in two namespaces: two models that share the compute bounds without a namespace.
                model.namespace = ["ns", "other"][m % 2].to_owned();
                model.model_id = format!("m{}", m / 2);
                model.settings.saturation = saturation.clone();
                for (v, variant) in model.variants.iter_mut().enumerate() {
                    variant.name = format!("v{m}{v}");
                    for replica in &mut variant.replicas {
                        replica.pod = format!("v{m}{v}-{}", replica.pod);
                    }
                }
            }
            let watched = models.iter().zip(learned).filter(|_| analyzer == AnalyzerName::Throughput);
            let learned =
                watched.filter_map(|(model, learned)| Some(learned::learned_of(model, learned?))).collect();
            let mut snapshot = Snapshot { now: None, config, remembered, learned, models };
            budgets.add_to(&mut snapshot);
            Case(snapshot)
        },
    )
}

/// A snapshot with any analyzer.
pub(super) fn any_case() -> impl Strategy<Value = Case> {
    prop_oneof![
        4 => case_of(AnalyzerName::Percentage),
        4 => case_of(AnalyzerName::Token),
        2 => case_of(AnalyzerName::Throughput),
    ]
}
