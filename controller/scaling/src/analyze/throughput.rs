//! The throughput analyzer: counts the work that arrives, learns how fast a replica does it, and asks for as many as
//! that takes, before queues and full caches show it. What it remembers comes in with the snapshot and goes out with
//! the outcome.

mod abilities;
mod arrivals;
mod capacity;
mod learning;
mod peaks;
mod targets;
mod trend;

#[cfg(test)]
mod tests;

use wva_crds::entries::WarmSpare;
use wva_crds::names::UNRESOLVED_ACCELERATOR;

use self::abilities::{Ability, abilities, ranks, speeds};
use self::arrivals::{STEP, Span};
use self::capacity::Shape;
use self::trend::Traffic;
use crate::reason::{Missing, Reason};
use crate::snapshot::{Curve, Known, Learned, Replica, SchedulerQueue, StepTimes, Variant};
use crate::units::{Amount, amount, count, finite, seconds, whole};
use crate::view::{ModelView, Sample, VariantView};

/// Cold start where none is known, and what passes beside it until a decision has made a difference, in seconds.
const COLD_START: f64 = 120.0;
const REACTION: f64 = 45.0;
/// Cold start from which on `warmSpare: auto` keeps one, in seconds.
const LONG_START: f64 = 180.0;
/// A replica is saturated where so many requests wait, or so much of its cache is used.
const SATURATED_WAITING: f64 = 3.0;
const SATURATED_KV: f64 = 0.85;
/// Share of the replicas that have to be, and for how many steps before the model grows whatever is believed.
const MOST_SATURATED: f64 = 0.6;
const PATIENCE: u32 = 4;
/// Before anything is learnt a replica is hot where so many requests wait, or so much of its cache is used.
const HOT_WAITING: f64 = 2.0;
const HOT_KV: f64 = 0.6;
/// The model then grows to so many times its ready replicas, and at most to so many.
const UNLEARNT_GROWTH: f64 = 1.5;
const MOST_UNLEARNT_GROWTH: f64 = 4.0;
/// Seconds for which what is learnt of a kind of hardware, or of other arguments of the engine, is kept that no variant has
/// any more: who rolls back within a day finds it again.
const KEPT: f64 = 86_400.0;
/// Requests that may wait at a replica before they are a backlog.
const QUEUE: f64 = 2.0;

/// What the model needs, and what each of its variants does.
pub(super) struct Plan {
    traffic: Traffic,
    /// Requests a second that a replica of each variant does, in order of the view.
    per_replica: Vec<f64>,
    /// Requests a second that all replicas do, those that load included.
    able: f64,
    /// Requests a second that they are to do.
    wanted: f64,
    /// What is known of each variant's engine.
    abilities: Vec<Ability>,
    /// Requests a second that a backlog takes.
    backlog: f64,
    /// Seconds that a request waits at the end of the horizon, with the replicas there are.
    wait: f64,
    /// Objective to the first token, in milliseconds.
    ttft_slo: Option<f64>,
    /// Requests a second that a replica kept warm does.
    spare: f64,
    /// Requests a second for which replicas are kept, though less arrives. `None`: none is taken.
    held: Option<f64>,
    /// Most replicas have been saturated for too long.
    pressed: bool,
    learnt: bool,
}

/// Looks at a model, and remembers what it saw. Where it cannot decide it says what is missing; `None` where no analyzer
/// could.
pub(super) fn analyze(model: &ModelView) -> (Result<Plan, Option<Reason>>, Learned) {
    let mut memory = model.learned.cloned().unwrap_or_else(|| Learned {
        model_id: model.model.model_id.clone(),
        namespace: model.model.namespace.clone(),
        ..Learned::default()
    });
    let (passed, spans) = arrivals::fold(model, &mut memory);
    let curves = learn(model, &mut memory, &spans, passed);
    measure(model, &mut memory);
    let saturated = share(model, |s| waiting(s).max(s.queue) >= SATURATED_WAITING || s.kv >= SATURATED_KV)
        > MOST_SATURATED;
    memory.saturated = match (saturated, memory.saturated) {
        (false, _) => 0,
        // How long it has been so already nobody knows.
        (true, 0) => 1,
        (true, before) => before.saturating_add(whole(passed / STEP)),
    };
    let plan = check(model, &memory).and_then(|()| plan(model, &mut memory, &curves, saturated).ok_or(None));
    (plan.map_err(|missing| missing.map(|missing| Reason::SignalsMissing { missing })), memory)
}

/// Whether it can decide; if not, the signal that is missing, or `None` where nothing reports.
fn check(model: &ModelView, memory: &Learned) -> Result<(), Option<Missing>> {
    if model.variants.iter().all(|v| v.counted.is_empty()) {
        return Err(None);
    }
    if model.variants.iter().any(|v| v.variant.role.is_some()) {
        return Err(Some(Missing::WholeRequests));
    }
    if memory.arrivals.is_empty() || !counts(model) {
        return Err(Some(Missing::Counters));
    }
    let lengths = memory.output.is_some_and(|output| output.get() > 0.0);
    if lengths { Ok(()) } else { Err(Some(Missing::Lengths)) }
}

/// Whether those who decide instead are to take nothing: a leader that has just begun knows of no need that is held, and
/// counters that are lost may come back while what they told is remembered.
pub(super) fn holds(model: &ModelView, learned: &Learned) -> bool {
    if counts(model) { learned.watched < model.settings.throughput.hold } else { !learned.pods.is_empty() }
}

/// Takes in what replicas did, and gives each variant the index of its curve.
fn learn(model: &ModelView, memory: &mut Learned, spans: &[Span], passed: f64) -> Vec<usize> {
    let alike = |c: &Curve, v: &VariantView| learning::is_of(c, v.accelerator(), &v.variant.engine_args);
    memory.curves.retain(|c| seconds(c.quiet) <= KEPT || model.variants.iter().any(|v| alike(c, v)));
    let mut of_variant = Vec::with_capacity(model.variants.len());
    for view in &model.variants {
        let found = memory.curves.iter().position(|c| alike(c, view)).unwrap_or_else(|| {
            let variant = view.variant;
            memory.curves.push(learning::begin(view.accelerator(), &variant.engine_args, variant.known));
            memory.curves.len() - 1
        });
        of_variant.push(found);
    }
    for (i, curve) in memory.curves.iter_mut().enumerate() {
        learning::learn(curve, spans.iter().filter(|s| of_variant[s.variant] == i), passed);
    }
    of_variant
}

/// What is learnt of a variant's hardware.
pub(crate) fn known(learned: &Learned, variant: &Variant) -> Option<Known> {
    let accelerator = variant.accelerator.as_deref().unwrap_or(UNRESOLVED_ACCELERATOR);
    let alike = |c: &&Curve| learning::is_of(c, accelerator, &variant.engine_args);
    let curve = learned.curves.iter().find(alike).filter(|curve| learning::is_learnt(curve))?;
    let [a, b, c] = learning::times(curve).each().map(amount);
    Some(Known { times: StepTimes { a, b, c }, samples: curve.samples })
}

/// Takes in how long requests are, where replicas tell.
fn measure(model: &ModelView, memory: &mut Learned) {
    let samples = || model.variants.iter().flat_map(|v| &v.counted).map(|s| s.replica);
    let mean = |of: fn(&Replica) -> Option<Amount>| {
        let told = || samples().filter_map(of).map(f64::from);
        let n = told().count();
        (n > 0).then(|| amount(finite(told().sum::<f64>()) / count(n)))
    };
    if let (Some(input), Some(output)) = (mean(|r| r.mean_input), mean(|r| r.mean_output)) {
        (memory.input, memory.output) = (Some(input), Some(output));
    }
}

/// Requests that wait at a replica now; where it shows no counters, the most that did within the last minute.
fn waiting(sample: &Sample) -> f64 {
    let newest = sample.replica.work.iter().min_by_key(|w| w.age);
    newest.map_or(sample.queue, |w| w.waiting.get())
}

fn share(model: &ModelView, of: impl Fn(&Sample) -> bool) -> f64 {
    let all = model.variants.iter().map(|v| v.counted.len()).sum();
    let those = model.variants.iter().flat_map(|v| &v.counted).filter(|s| of(s)).count();
    if all == 0 { 0.0 } else { count(those) / count(all) }
}

fn cold_start(variant: &VariantView) -> f64 {
    variant.variant.cold_start.map_or(COLD_START, seconds)
}

fn plan(model: &ModelView, memory: &mut Learned, curves: &[usize], saturated: bool) -> Option<Plan> {
    let start = model.variants.iter().map(cold_start).fold(0.0, f64::max);
    let traffic = trend::traffic(&arrivals::levels(memory), start + REACTION)?;
    let shape = Shape {
        input: memory.input.map_or(0.0, f64::from),
        output: memory.output.map(f64::from).filter(|o| *o > 0.0)?,
    };
    let abilities = abilities(model, memory, curves, shape);
    let reference = *model.by_cost().first()?;
    let there = |i: &usize| model.variants[*i].current > 0;
    let learnt = |i: &usize| learning::is_learnt(&memory.curves[curves[*i]]);
    let known: Vec<usize> = model.by_cost().into_iter().filter(learnt).collect();
    if !known.iter().any(there) {
        return Some(unlearnt(model, memory, traffic, abilities));
    }
    let per_replica = speeds(model, memory, curves, &abilities, &known, saturated, shape);
    let settings = &model.settings.throughput;
    let waiting = backlog(model, &abilities, &per_replica, seconds(settings.drain));
    let unit = per_replica[reference];
    let held = peaks::hold(memory, finite(traffic.forecast / unit), seconds(settings.hold));
    // What happened before it was watched nobody knows, nor what a replica does whose counters are missing; and where
    // replicas are full none is taken, whatever is believed of them.
    let all_held = memory.watched >= settings.hold && all_count(model) && !saturated;
    let spare = if traffic.is_steep() && keeps_warm(settings.warm_spare, start) { unit } else { 0.0 };
    let able = able(model, &per_replica);
    Some(Plan {
        able,
        wait: wait(model, traffic, able / settings.planned_utilization()),
        ttft_slo: settings.ttft_slo,
        wanted: finite(traffic.forecast + waiting.min(traffic.forecast) + spare),
        spare,
        // What bounds growth is no reason to take a replica while work for it waits.
        held: all_held.then(|| finite((held * unit).max(traffic.forecast + waiting))),
        pressed: memory.saturated >= PATIENCE && !loads(model),
        learnt: true,
        backlog: waiting.min(traffic.forecast),
        traffic,
        per_replica,
        abilities,
    })
}

/// Whether replicas are on their way.
fn loads(model: &ModelView) -> bool {
    model.variants.iter().any(|v| v.pending > 0)
}

/// Whether a replica more is kept while the trend is steep, where a start takes so many seconds.
fn keeps_warm(asked: WarmSpare, start: f64) -> bool {
    match asked {
        WarmSpare::On => true,
        WarmSpare::Auto => start > LONG_START,
        WarmSpare::Off => false,
    }
}

/// Requests a second that all replicas do which are there or load.
fn able(model: &ModelView, per_replica: &[f64]) -> f64 {
    let each = model.variants.iter().zip(per_replica);
    finite(each.map(|(v, speed)| f64::from(v.ready.saturating_add(v.pending)) * speed).sum())
}

/// Some replica shows its counters.
fn counts(model: &ModelView) -> bool {
    let stale = model.config.metrics_age.stale;
    let shows = |s: &Sample| s.replica.work.iter().any(|w| w.age <= stale);
    model.variants.iter().flat_map(|v| &v.counted).any(shows)
}

/// Every replica whose sample counts shows its counters.
fn all_count(model: &ModelView) -> bool {
    let fresh = model.config.metrics_age.fresh;
    let counts = |s: &Sample| s.replica.work.iter().any(|w| w.age <= fresh);
    model.variants.iter().flat_map(|v| &v.counted).all(counts)
}

/// Requests a second to work off what waits within `drain` seconds: no replica's queue asks for more than one more.
fn backlog(model: &ModelView, abilities: &[Ability], per_replica: &[f64], drain: f64) -> f64 {
    let mut sum = 0.0;
    for ((view, ability), speed) in model.variants.iter().zip(abilities).zip(per_replica) {
        let work = ability.work / ranks(view);
        let replicas = view.counted.iter().map(|s| ((waiting(s) - QUEUE).max(0.0) * work / drain).min(1.0));
        sum += replicas.sum::<f64>() * speed;
    }
    if let SchedulerQueue::Known(queue) = model.model.scheduler_queue {
        sum += queue.size.get() / drain;
    }
    finite(sum)
}

/// Seconds that a request waits at the end of the horizon where replicas do so much with nothing to spare: what waits now,
/// and what comes in beyond that until then.
fn wait(model: &ModelView, traffic: Traffic, full: f64) -> f64 {
    let at_pods = model.variants.iter().flat_map(|v| &v.counted).map(waiting).sum::<f64>();
    let at_picker = match model.model.scheduler_queue {
        SchedulerQueue::Known(queue) => queue.size.get(),
        SchedulerQueue::Absent | SchedulerQueue::Unknown => 0.0,
    };
    let later = at_pods + at_picker + (traffic.forecast - full) * traffic.horizon;
    finite(later.max(0.0) / full.max(f64::MIN_POSITIVE))
}

/// Nothing is learnt yet: where most replicas are hot the model grows by the ratio of what arrives and what is done, or
/// by half. Replicas are counted instead of requests.
fn unlearnt(model: &ModelView, memory: &Learned, traffic: Traffic, abilities: Vec<Ability>) -> Plan {
    let hot = share(model, |s| waiting(s).max(s.queue) >= HOT_WAITING || s.kv >= HOT_KV) > 0.5;
    let ready = model.variants.iter().map(|v| f64::from(v.ready)).sum::<f64>();
    // Of the same scrapes, so nothing that is assumed.
    let last = |steps: &[Amount]| steps.iter().rev().take(4).map(|n| n.get()).sum::<f64>();
    let done = Some(last(&memory.completed)).filter(|done| *done > 0.0);
    let factor = done.map_or(UNLEARNT_GROWTH, |done| last(&memory.arrivals) / done);
    let factor = factor.clamp(1.0, MOST_UNLEARNT_GROWTH);
    let per_replica = vec![1.0; model.variants.len()];
    Plan {
        able: able(model, &per_replica),
        wanted: if hot { ready * factor } else { 0.0 },
        traffic,
        per_replica,
        abilities,
        backlog: 0.0,
        wait: 0.0,
        ttft_slo: None,
        spare: 0.0,
        held: None,
        pressed: hot && memory.saturated >= PATIENCE && !loads(model),
        learnt: false,
    }
}
