//! Models whose pods serve a part of each request: prefill or decode. Both roles plan for the same arrivals, each with the
//! engines that its part needs, and no role shrinks while the other one lacks replicas.

use super::bursts::{self, Stay};
use super::capacity::RequestShape;
use super::engine_speed::{
    EngineSpeed, LearnedEngines, engine_speeds, engines_per_replica, replica_throughputs,
};
use super::queueing::{Part, slack};
use super::queues::{pod_backlog_rate, queue_drain_rate};
use super::{
    Demand, SATURATED_STEPS, ThroughputVerdict, all_have_counters, has_pending, has_watched, is_saturated,
    learning, peaks, total_throughput, unlearned_verdict, wants_warm_spare,
};
use crate::analyze::by_role::{RoleVerdict, RoleVerdicts};
use crate::snapshot::{Role, ThroughputMemory};
use crate::units::{finite, seconds};
use crate::view::ModelView;

/// Indices of the variants of each role.
pub(super) struct RoleIndices {
    pub(super) prefill: Vec<usize>,
    pub(super) decode: Vec<usize>,
}

impl RoleIndices {
    /// `None`: a role has no variant, or a variant has no role.
    pub(super) fn new(model: &ModelView) -> Option<Self> {
        let with = |role| {
            let all = 0..model.variants.len();
            all.filter(|i| model.variants[*i].variant.role == Some(role)).collect::<Vec<_>>()
        };
        let roles = Self { prefill: with(Role::Prefill), decode: with(Role::Decode) };
        let is_complete = !roles.prefill.is_empty()
            && !roles.decode.is_empty()
            && roles.prefill.len() + roles.decode.len() == model.variants.len();
        is_complete.then_some(roles)
    }

    /// True if each role has a counted replica.
    pub(super) fn all_report(&self, model: &ModelView) -> bool {
        let reports = |role: &[usize]| role.iter().any(|i| !model.variants[*i].counted.is_empty());
        reports(&self.prefill) && reports(&self.decode)
    }
}

/// The variants of one role.
struct RoleView<'a> {
    role: Role,
    /// Their indices in the view of the model.
    variants: Vec<usize>,
    view: ModelView<'a>,
    /// Curve index of each variant.
    curves: Vec<usize>,
    engines: Vec<EngineSpeed>,
    /// Variants with a learned curve, the cheapest first.
    learned: Vec<usize>,
    is_saturated: bool,
    /// Steps for which most replicas have been saturated.
    saturated_steps: u32,
}

/// Verdicts on both roles.
pub(super) fn build_verdicts(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    curves: &[usize],
    roles: RoleIndices,
    demand: &Demand,
) -> RoleVerdicts {
    let view = |role, variants, saturated_steps| {
        RoleView::new(model, memory, curves, demand.shape, role, variants, saturated_steps)
    };
    let prefill = view(Role::Prefill, roles.prefill, memory.saturated);
    let decode = view(Role::Decode, roles.decode, memory.decode_saturated);
    let (of_prefill, of_decode) = if prefill.is_learned() && decode.is_learned() {
        learned_verdicts(model, memory, &prefill, &decode, demand)
    } else {
        (prefill.unlearned_verdict(memory, demand), decode.unlearned_verdict(memory, demand))
    };
    RoleVerdicts::new([
        RoleVerdict { variants: prefill.variants, verdict: Box::new(of_prefill) },
        RoleVerdict { variants: decode.variants, verdict: Box::new(of_decode) },
    ])
}

fn learned_verdicts(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    prefill: &RoleView<'_>,
    decode: &RoleView<'_>,
    demand: &Demand,
) -> (ThroughputVerdict, ThroughputVerdict) {
    let settings = &model.settings.throughput;
    let (input, output) = (demand.shape.input, demand.shape.output);
    let (prompt_engine, answer_engine) = (prefill.reference(), decode.reference());
    let prompt_step = prompt_engine.times.a + prompt_engine.times.b + prompt_engine.times.c * input;
    let first_token = prompt_step + answer_engine.times.a + answer_engine.times.b * answer_engine.running;
    let planned = settings.planned_utilization();
    let prompts = Part::Prefill {
        work: prompt_engine.work.max(f64::MIN_POSITIVE),
        planned,
        slack: settings.ttft_slo.map(|ms| slack(ms / 1000.0, first_token)),
    };
    let answers =
        Part::Decode { times: answer_engine.times, output, running: answer_engine.running, planned };
    let prompt_floor = demand.burst_floor(Stay { decode_seconds: 0.0, prompt_share: 1.0 });
    let decode_seconds = finite(output * answer_engine.token_gap);
    let answer_floor = demand.burst_floor(Stay { decode_seconds, prompt_share: 0.0 });
    // Both roles serve the same requests, so one list of needs in requests per second is enough.
    let peak = peaks::record(memory, demand.forecast.expected.max(answer_floor), seconds(settings.hold));
    let mut of_prefill = prefill.verdict(model, memory, demand, &prompts, peak, prompt_floor);
    let mut of_decode = decode.verdict(model, memory, demand, &answers, peak, answer_floor);

    let drain = seconds(settings.drain);
    let at_prefill = pod_backlog_rate(&prefill.view, &of_prefill.engines, &of_prefill.per_replica, drain)
        + queue_drain_rate(model, drain);
    let at_decode = pod_backlog_rate(&decode.view, &of_decode.engines, &of_decode.per_replica, drain);
    of_prefill.add_backlog(at_prefill);
    // The backlog of prefill arrives at decode next.
    of_decode.add_backlog(at_decode + at_prefill);
    let waiting_time = finite(at_prefill * drain / of_prefill.supply.max(f64::MIN_POSITIVE));
    let may_shrink = has_watched(model, memory)
        && all_have_counters(model)
        && !prefill.is_saturated
        && !decode.is_saturated
        && of_prefill.has_enough()
        && of_decode.has_enough();
    for verdict in [&mut of_prefill, &mut of_decode] {
        verdict.waiting_time = waiting_time;
        verdict.engines.iter_mut().for_each(|engine| engine.time_to_first_token = first_token);
        let least = peak.max(verdict.bursts).max(demand.forecast.expected + verdict.backlog);
        verdict.held = may_shrink.then(|| finite(least));
    }
    (of_prefill, of_decode)
}

impl<'a> RoleView<'a> {
    fn new(
        model: &ModelView<'a>,
        memory: &ThroughputMemory,
        curves: &[usize],
        shape: RequestShape,
        role: Role,
        variants: Vec<usize>,
        saturated_steps: u32,
    ) -> Self {
        let view = model.subset(&variants);
        let curves: Vec<usize> = variants.iter().map(|i| curves[*i]).collect();
        let engines = engine_speeds(&view, memory, &curves, shape);
        let is_learned = |i: &usize| learning::is_learned(&memory.curves[curves[*i]]);
        let learned = view.by_cost().into_iter().filter(is_learned).collect();
        let is_saturated = is_saturated(&view);
        Self { role, variants, view, curves, engines, learned, is_saturated, saturated_steps }
    }

    /// True if a variant with replicas has a learned curve.
    fn is_learned(&self) -> bool {
        self.learned.iter().any(|i| self.view.variants[*i].current > 0)
    }

    fn reference_index(&self) -> usize {
        self.learned.first().copied().unwrap_or_default()
    }

    /// Engine of the cheapest variant with a learned curve.
    fn reference(&self) -> EngineSpeed {
        self.engines[self.reference_index()]
    }

    fn unlearned_verdict(&self, memory: &ThroughputMemory, demand: &Demand) -> ThroughputVerdict {
        let is_overloaded = self.saturated_steps >= SATURATED_STEPS;
        unlearned_verdict(&self.view, memory, demand.forecast, self.engines.clone(), is_overloaded)
    }

    /// Verdict without backlog and without scale-down. `peak` and `bursts` are in requests per second.
    fn verdict(
        &self,
        model: &ModelView,
        memory: &ThroughputMemory,
        demand: &Demand,
        part: &Part,
        peak: f64,
        bursts: f64,
    ) -> ThroughputVerdict {
        let reference = self.reference();
        let most = peak.max(bursts);
        let engines = part.engines(most);
        // With this bound `most` needs exactly the engines of the part, whatever the rounding.
        let bound = if engines > 1.0 { 0.999 * most / (engines - 1.0) } else { f64::INFINITY };
        let per_engine = (part.rate(engines) / engines).min(bound);
        let known =
            LearnedEngines { memory, curves: &self.curves, engines: &self.engines, learned: &self.learned };
        // Generated tokens show the throughput of decode only.
        let saturated = self.is_saturated && self.role == Role::Decode;
        let utilization = finite(per_engine * reference.work);
        let per_replica = replica_throughputs(&self.view, &known, saturated, demand.shape, utilization);
        let settings = &model.settings.throughput;
        let forecast = demand.forecast;
        let keeps_warm_spare =
            forecast.is_steep() && wants_warm_spare(settings.warm_spare, demand.cold_start);
        let unit = per_engine * engines_per_replica(&self.view.variants[self.reference_index()]);
        let warm_spare = if keeps_warm_spare { finite(unit) } else { 0.0 };
        ThroughputVerdict {
            supply: total_throughput(&self.view, &per_replica),
            demand: finite(forecast.expected + warm_spare),
            waiting_time: 0.0,
            ttft_slo: settings.ttft_slo,
            warm_spare,
            held: None,
            is_overloaded: self.saturated_steps >= SATURATED_STEPS && !has_pending(&self.view),
            is_learned: true,
            backlog: 0.0,
            bursts,
            forecast,
            per_replica,
            engines: self.engines.clone(),
        }
    }
}

impl ThroughputVerdict {
    /// Adds the throughput that drains a backlog: at most the forecast.
    fn add_backlog(&mut self, rate: f64) {
        self.backlog = rate.min(self.forecast.expected);
        self.demand = finite(self.demand + self.backlog).max(self.bursts);
    }

    fn has_enough(&self) -> bool {
        self.supply >= self.demand && !self.is_overloaded
    }
}

impl Demand {
    /// Requests per second that replicas are kept for because bursts recur, for requests with this stay.
    pub(super) fn burst_floor(&self, stay: Stay) -> f64 {
        if self.bursts_count { bursts::floor(&self.per_step, stay) } else { 0.0 }
    }
}
