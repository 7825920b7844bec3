//! Models with prefill and decode pods. Both roles plan for the same arrivals, and no role shrinks while the other one
//! lacks replicas.

use super::bursts::{self, Occupancy};
use super::capacity::RequestShape;
use super::engine_speed::{
    EngineSpeed, LearnedEngines, engine_speeds, engines_per_replica, replica_throughputs,
};
use super::queueing::{RequestPart, slack};
use super::queues::{pod_backlog_rate, queue_drain_rate};
use super::reserve::ReservePlan;
use super::{
    Demand, REACTION, SATURATED_STEPS, ThroughputVerdict, has_pending, held, is_saturated, learning, peaks,
    shows_enough, total_throughput, unlearned_verdict, wants_warm_spare,
};
use crate::analyze::by_role::{RoleVerdict, RoleVerdicts};
use crate::snapshot::{Role, ThroughputMemory};
use crate::units::{below, seconds, to_finite};
use crate::view::{ModelView, VariantView};

pub(super) struct RoleSubset<'a> {
    role: Role,
    variants: Vec<usize>,
    view: ModelView<'a>,
    pub(super) is_saturated: bool,
}

pub(super) struct RoleSubsets<'a> {
    pub(super) prefill: RoleSubset<'a>,
    pub(super) decode: RoleSubset<'a>,
}

impl<'a> RoleSubsets<'a> {
    /// `None`: a role has no variant, or a variant has no role.
    pub(super) fn new(model: &ModelView<'a>) -> Option<Self> {
        let subset = |role| RoleSubset::new(model, role);
        let (prefill, decode) = (subset(Role::Prefill)?, subset(Role::Decode)?);
        let is_complete = prefill.variants.len() + decode.variants.len() == model.variants.len();
        is_complete.then_some(Self { prefill, decode })
    }

    /// Each role has a counted replica.
    pub(super) fn all_report(&self) -> bool {
        [&self.prefill, &self.decode]
            .iter()
            .all(|role| role.view.variants.iter().any(|v| !v.counted.is_empty()))
    }
}

impl<'a> RoleSubset<'a> {
    fn new(model: &ModelView<'a>, role: Role) -> Option<Self> {
        let all = 0..model.variants.len();
        let variants: Vec<usize> = all.filter(|i| model.variants[*i].variant.role == Some(role)).collect();
        let view = model.subset(&variants);
        let is_saturated = is_saturated(&view);
        (!variants.is_empty()).then_some(Self { role, variants, view, is_saturated })
    }
}

struct RoleView<'a> {
    subset: RoleSubset<'a>,
    curves: Vec<usize>,
    engines: Vec<EngineSpeed>,
    /// The cheapest first.
    learned: Vec<usize>,
    saturated_steps: u32,
}

pub(super) fn build_verdicts(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    curves: &[usize],
    roles: RoleSubsets<'_>,
    demand: &Demand,
) -> RoleVerdicts {
    let view = |subset, saturated_steps| RoleView::new(subset, memory, curves, demand.shape, saturated_steps);
    let prefill = view(roles.prefill, memory.saturated);
    let decode = view(roles.decode, memory.decode_saturated);
    let (of_prefill, of_decode) = if prefill.is_learned() && decode.is_learned() {
        learned_verdicts(model, memory, &prefill, &decode, demand)
    } else {
        (prefill.unlearned_verdict(memory, demand), decode.unlearned_verdict(memory, demand))
    };
    RoleVerdicts::new([
        RoleVerdict { variants: prefill.subset.variants, verdict: Box::new(of_prefill) },
        RoleVerdict { variants: decode.subset.variants, verdict: Box::new(of_decode) },
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
    let RequestShape { computed, output, .. } = demand.shape;
    let (prompt_engine, answer_engine) = (prefill.reference(), decode.reference());
    let prompt_step = prompt_engine.times.a + prompt_engine.times.b + prompt_engine.times.c * computed;
    let first_token = prompt_step + answer_engine.times.a + answer_engine.times.b * answer_engine.running;
    let least_first_token = prompt_step + answer_engine.times.a + answer_engine.times.b;
    let planned = settings.planned_utilization();
    let within = settings.ttft_slo.map(|ms| ms / 1000.0).filter(|ttft| *ttft >= least_first_token);
    let prompts = RequestPart::Prefill {
        work: prompt_engine.work.max(f64::MIN_POSITIVE),
        planned,
        slack: within.map(|ttft| slack(ttft, first_token)),
    };
    let answers =
        RequestPart::Decode { times: answer_engine.times, output, running: answer_engine.running, planned };
    let floors = Floors::new(model, memory, prefill, decode, demand);
    let Floors { peak, kept, .. } = floors;
    let of_part = |role: &RoleView<'_>, part, bursts: f64| {
        // Without the reserve: at a greater rate an engine serves more, and demand beyond that rate would get fewer.
        let verdict = role.verdict(model, memory, demand, part, peak.max(bursts));
        ThroughputVerdict { bursts, kept, ..verdict }
    };
    let mut of_prefill = of_part(prefill, &prompts, floors.prompts);
    let mut of_decode = of_part(decode, &answers, floors.answers);

    let drain = seconds(settings.drain);
    let at_prefill = prefill.backlog_rate(&of_prefill, drain) + queue_drain_rate(model, drain);
    // The backlog of prefill arrives at decode next.
    let at_decode = decode.backlog_rate(&of_decode, drain) + at_prefill;
    of_prefill.add_backlog(at_prefill);
    of_decode.add_backlog(at_decode);
    let waiting_time = to_finite(at_prefill * drain / of_prefill.supply.max(f64::MIN_POSITIVE));
    let saturated = prefill.subset.is_saturated || decode.subset.is_saturated;
    // No role shrinks while the other one lacks replicas, or does not show its load.
    let may_shrink = shows_enough(model, memory, kept)
        && model.metrics_gap().is_none()
        && !saturated
        && !of_prefill.lacks_replicas()
        && !of_decode.lacks_replicas();
    for (verdict, backlog) in [(&mut of_prefill, at_prefill), (&mut of_decode, at_decode)] {
        verdict.waiting_time = waiting_time;
        for engine in &mut verdict.engines {
            (engine.time_to_first_token, engine.least_first_token) = (first_token, least_first_token);
        }
        verdict.held = held(saturated, peak.max(verdict.floor()), demand.forecast.expected + backlog);
        verdict.may_shrink = may_shrink;
    }
    (of_prefill, of_decode)
}

/// Requests per second that both roles are planned for, whatever arrives now: they serve the same requests.
#[derive(Clone, Copy)]
struct Floors {
    /// Throughput for bursts of prompts.
    prompts: f64,
    /// Throughput for bursts of answers.
    answers: f64,
    kept: Option<ReservePlan>,
    /// Greatest demand within the hold time.
    peak: f64,
}

impl Floors {
    fn new(
        model: &ModelView,
        memory: &mut ThroughputMemory,
        prefill: &RoleView<'_>,
        decode: &RoleView<'_>,
        demand: &Demand,
    ) -> Self {
        let settings = &model.settings.throughput;
        let (prompt_work, answer_engine) = (prefill.reference().work, decode.reference());
        let decode_seconds = to_finite(demand.shape.output * answer_engine.token_gap);
        let answers = demand.burst_floor(Occupancy { decode_seconds, prompt_share: 0.0 });
        let prompt_share = prompt_work / (prompt_work + answer_engine.work).max(f64::MIN_POSITIVE);
        let planned = settings.planned_utilization() * decode.engines_per_reference();
        let unit = to_finite(planned / answer_engine.work.max(f64::MIN_POSITIVE));
        let hold = settings.hold_after(demand.cold_start + REACTION);
        Self {
            prompts: demand.burst_floor(Occupancy { decode_seconds: 0.0, prompt_share: 1.0 }),
            answers,
            kept: demand.keep(model, memory, unit, Occupancy { decode_seconds, prompt_share }),
            peak: peaks::record(memory, demand.forecast.expected.max(answers), hold),
        }
    }
}

impl<'a> RoleView<'a> {
    fn new(
        subset: RoleSubset<'a>,
        memory: &ThroughputMemory,
        curves: &[usize],
        shape: RequestShape,
        saturated_steps: u32,
    ) -> Self {
        let curves: Vec<usize> = subset.variants.iter().map(|i| curves[*i]).collect();
        let engines = engine_speeds(&subset.view, memory, &curves, shape);
        let is_learned = |i: &usize| learning::is_learned(&memory.curves[curves[*i]]);
        let learned = subset.view.by_cost().into_iter().filter(is_learned).collect();
        Self { subset, curves, engines, learned, saturated_steps }
    }

    fn backlog_rate(&self, verdict: &ThroughputVerdict, drain: f64) -> f64 {
        pod_backlog_rate(&self.subset.view, &verdict.engines, &verdict.per_replica, drain)
    }

    fn is_learned(&self) -> bool {
        self.learned.iter().any(|i| self.subset.view.variants[*i].current > 0)
    }

    fn reference_index(&self) -> usize {
        self.learned.first().copied().unwrap_or_default()
    }

    /// The cheapest variant with a learned curve.
    fn reference(&self) -> EngineSpeed {
        self.engines[self.reference_index()]
    }

    fn engines_per_reference(&self) -> f64 {
        engines_per_replica(&self.subset.view.variants[self.reference_index()])
    }

    fn unlearned_verdict(&self, memory: &ThroughputMemory, demand: &Demand) -> ThroughputVerdict {
        let is_overloaded = self.saturated_steps >= SATURATED_STEPS;
        unlearned_verdict(&self.subset.view, memory, demand.forecast, self.engines.clone(), is_overloaded)
    }

    fn verdict(
        &self,
        model: &ModelView,
        memory: &ThroughputMemory,
        demand: &Demand,
        part: &RequestPart,
        rate: f64,
    ) -> ThroughputVerdict {
        let reference = self.reference();
        let engines = part.engines(rate);
        // With this bound `rate` needs exactly the engines of the part, whatever the rounding.
        let bound = if engines > 1.0 { 0.999 * rate / (engines - 1.0) } else { f64::INFINITY };
        let per_engine = (part.rate(engines) / engines).min(bound);
        let known =
            LearnedEngines { memory, curves: &self.curves, engines: &self.engines, learned: &self.learned };
        // Generated tokens show the throughput of decode only.
        let saturated = self.subset.is_saturated && self.subset.role == Role::Decode;
        let utilization = to_finite(per_engine * reference.work);
        let per_replica =
            replica_throughputs(&self.subset.view, &known, saturated, demand.shape, utilization);
        let settings = &model.settings.throughput;
        let forecast = demand.forecast;
        let keeps_warm_spare =
            forecast.is_steep() && wants_warm_spare(settings.warm_spare, demand.cold_start);
        let unit = per_engine * self.engines_per_reference();
        let warm_spare = if keeps_warm_spare { to_finite(unit) } else { 0.0 };
        let variants = || self.subset.view.variants.iter();
        ThroughputVerdict {
            supply: total_throughput(&per_replica, variants().map(VariantView::planned)),
            serving: total_throughput(&per_replica, variants().map(VariantView::serving)),
            demand: to_finite(forecast.expected + warm_spare),
            waiting_time: 0.0,
            ttft_slo: settings.ttft_slo,
            itl_slo: settings.itl_slo,
            warm_spare,
            held: 0.0,
            may_shrink: false,
            is_overloaded: self.saturated_steps >= SATURATED_STEPS && !has_pending(&self.subset.view),
            is_learned: true,
            backlog: 0.0,
            bursts: 0.0,
            kept: None,
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
        self.demand = to_finite(self.demand + self.backlog).max(self.floor());
    }

    /// Whether the replicas that serve are too few. Replicas that start or are asked for take no load yet.
    fn lacks_replicas(&self) -> bool {
        below(self.serving, self.demand) || self.is_overloaded
    }
}

impl Demand {
    /// Requests per second to keep replicas for.
    pub(super) fn burst_floor(&self, occupancy: Occupancy) -> f64 {
        if self.has_burst_floor {
            bursts::burst_floor(&self.per_step, self.scrape_interval, occupancy)
        } else {
            0.0
        }
    }
}
