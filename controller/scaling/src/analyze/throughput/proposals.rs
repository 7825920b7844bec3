//! Targets of the throughput analyzer: the cheapest throughput grows first, the most expensive shrinks first.

use super::{ThroughputVerdict, reserve};
use crate::Stage;
use crate::analyze::Verdict;
use crate::analyze::growth::Growth;
use crate::analyze::step_limits::{acted_step_down, removable_replicas, shrink_obstacle, spare_share};
use crate::base::Progress;
use crate::draft::Draft;
use crate::limit::Ledger;
use crate::reason::{Flow, Objective, Reason, TargetFigures};
use crate::units::{amount, below, seconds, to_finite, to_u32};
use crate::view::{ModelView, VariantView};

/// Least missing requests per second of an overloaded model; one replica covers them.
const MIN_MISSING: f64 = 1e-6;

/// Spare throughput, requests per second.
#[derive(Clone, Copy)]
struct Spare {
    /// Spare beyond the present demand.
    now: f64,
    /// Spare beyond the peak of the hold time.
    held: f64,
    /// Spare of the replicas that serve now: those that start or are asked for take no load yet.
    serving: f64,
}

#[derive(Clone, Copy)]
struct Removal {
    /// Replicas without the hold of earlier peaks.
    without_hold: u32,
    /// The step that is taken.
    with_hold: u32,
}

impl Verdict for ThroughputVerdict {
    fn spare(&self) -> f64 {
        spare_share(self.supply, self.demand)
    }

    fn propose(&self, model: &ModelView, excluded: &[bool], ledger: &Ledger) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = model.variants.iter().map(Draft::of).collect();
        for (i, draft) in drafts.iter_mut().enumerate() {
            self.note_obstacles(model, i, draft);
        }
        let growth =
            Growth { model, stage: Stage::Analyze, order: self.order(model), per_replica: &self.per_replica };
        let returned = growth.revoke_scale_downs(self.least() - self.supply, &mut drafts);
        let mut missing = self.demand - self.supply - returned;
        if self.is_overloaded {
            // The saturated replicas are not enough, whatever the fitted throughput says.
            missing = missing.max(MIN_MISSING);
        }
        if below(0.0, missing) {
            growth.grow(missing, excluded, ledger, |i| self.growth_reason(i), &mut drafts);
        } else if self.may_shrink {
            self.shrink(model, &mut drafts);
        }
        for (i, draft) in drafts.iter_mut().enumerate().filter(|(_, d)| d.is_unexplained()) {
            draft.note(Stage::Analyze, self.unchanged_reason(i));
        }
        drafts
    }

    fn order(&self, model: &ModelView) -> Vec<usize> {
        // Rounded, so that the last bit does not decide between equal prices.
        let cost = |i: usize| model.variants[i].cost();
        let price = |i: usize| amount(cost(i) / self.per_replica[i]).get();
        let mut order: Vec<usize> = (0..model.variants.len()).collect();
        // Unlearned variants have the price of a learned one: then the cheaper replica comes first. The sort is stable.
        order.sort_by(|a, b| price(*a).total_cmp(&price(*b)).then(cost(*a).total_cmp(&cost(*b))));
        order
    }
}

/// A target that is not followed yet stays for the time in which a backlog drains: a queue that comes and goes must not
/// ask for a replica and withdraw it in turn.
fn unfollowed_growth(variant: &VariantView, drain: f64) -> Option<Reason> {
    let is_unfollowed = variant.base.progress == Progress::Underway && variant.arriving() > 0;
    let age_seconds = variant.variant.desired_age.map_or(0.0, seconds);
    (is_unfollowed && age_seconds < drain).then_some(Reason::KeptDecision { age_seconds })
}

impl ThroughputVerdict {
    /// The first of arrivals, trend, warm spare and backlog that exceeds the supply.
    fn growth_reason(&self, i: usize) -> Reason {
        let flow = Box::new(self.flow(i));
        if !self.is_learned {
            return Reason::NotLearnt { flow };
        }
        let forecast = &self.forecast;
        if below(self.supply, forecast.arrivals) {
            Reason::ArrivalsAboveCapacity { flow }
        } else if below(self.supply, forecast.expected) {
            Reason::TrendAhead { flow }
        } else if below(self.supply, forecast.expected + self.warm_spare) {
            Reason::WarmSpare { flow }
        } else if below(self.supply, self.bursts) {
            Reason::RecurringBursts { flow }
        } else if below(self.supply, reserve::rate(self.kept)) {
            Reason::ReserveForTarget { flow }
        } else {
            Reason::Backlog { flow }
        }
    }

    /// What keeps replicas of the variant from what the others do, or from the objectives.
    fn note_obstacles(&self, model: &ModelView, i: usize, draft: &mut Draft) {
        let learned = model.learned.iter().flat_map(|learned| &learned.pods);
        let of_variant = |pod: &str| model.variants[i].variant.replicas.iter().any(|r| r.pod == pod);
        let slow = learned.filter(|pod| pod.is_slow && of_variant(&pod.pod)).map(|pod| pod.pod.to_string());
        let pods: Vec<String> = slow.collect();
        if !pods.is_empty() {
            draft.note(Stage::Analyze, Reason::SlowReplicas { pods });
        }
        let engine = &self.engines[i];
        let ms = |seconds: f64| to_finite(1000.0 * seconds);
        let gap = self.itl_slo.filter(|_| engine.itl_out_of_reach && self.is_learned);
        let itl = gap.map(|slo| (Objective::InterTokenLatency, slo, ms(engine.times.a)));
        let late = |slo: &f64| self.is_learned && ms(engine.least_first_token) > *slo;
        let ttft = self.ttft_slo.filter(late);
        let ttft = ttft.map(|slo| (Objective::TimeToFirstToken, slo, ms(engine.least_first_token)));
        for (objective, objective_ms, least_ms) in itl.into_iter().chain(ttft) {
            draft.note(Stage::Analyze, Reason::ObjectiveOutOfReach { objective, objective_ms, least_ms });
        }
        if let Some(target) = self.target_figures(i).filter(|target| target.is_missed()) {
            draft.note(Stage::Analyze, Reason::SloTargetMissed { target });
        }
    }

    /// Requests per second to keep replicas for, whatever arrives now.
    pub(super) fn floor(&self) -> f64 {
        self.bursts.max(reserve::rate(self.kept))
    }

    /// The model does not shrink below it.
    fn least(&self) -> f64 {
        self.held.max(self.demand)
    }

    fn shrink(&self, model: &ModelView, drafts: &mut [Draft]) {
        let least = self.least();
        let mut spare = Spare {
            now: self.supply - self.demand,
            held: self.supply - least,
            serving: self.serving - least,
        };
        let mut order = self.order(model);
        order.reverse();
        for i in order {
            let removed = self.shrink_variant(model, i, spare, drafts);
            if model.variants[i].is_auto() {
                spare.now -= f64::from(removed.without_hold) * self.per_replica[i];
                spare.held -= f64::from(removed.with_hold) * self.per_replica[i];
                let serving = removed.with_hold.saturating_sub(model.variants[i].arriving());
                spare.serving -= f64::from(serving) * self.per_replica[i];
            }
        }
    }

    /// Notes the obstacle if there is one.
    fn shrink_variant(&self, model: &ModelView, i: usize, spare: Spare, drafts: &mut [Draft]) -> Removal {
        let variant = &model.variants[i];
        if let Some(reason) = unfollowed_growth(variant, seconds(model.settings.throughput.drain)) {
            drafts[i].note(Stage::Analyze, reason);
            return Removal { without_hold: 0, with_hold: 0 };
        }
        let removable = removable_replicas(model, i, drafts);
        let fits = |spare: f64| to_u32((spare / self.per_replica[i] + 1e-9).floor()).min(removable);
        let replaceable = fits(spare.serving).saturating_add(variant.arriving());
        let removed = Removal { without_hold: fits(spare.now), with_hold: fits(spare.held).min(replaceable) };
        if removed.with_hold == 0 {
            if removed.without_hold > 0 {
                let held = to_finite(self.held / self.per_replica[i]);
                let flow = Box::new(self.flow(i));
                drafts[i].note(Stage::Analyze, Reason::HeldPeak { held, flow });
            }
            return removed;
        }
        if let Some(reason) = shrink_obstacle(model, variant, removed.with_hold) {
            drafts[i].note(Stage::Analyze, reason);
            return Removal { with_hold: 0, ..removed };
        }
        let removed = Removal { with_hold: acted_step_down(variant, removed.with_hold), ..removed };
        let reason = Reason::CapacityAboveNeed { flow: Box::new(self.flow(i)) };
        drafts[i].push(Stage::Analyze, variant.step_base() - removed.with_hold, reason);
        removed
    }

    fn unchanged_reason(&self, i: usize) -> Reason {
        let flow = Box::new(self.flow(i));
        if self.is_learned {
            Reason::NoChange { load: None, tokens: None, flow: Some(flow) }
        } else {
            Reason::NotLearnt { flow }
        }
    }

    fn flow(&self, i: usize) -> Flow {
        let (forecast, engine, throughput) = (&self.forecast, &self.engines[i], self.per_replica[i]);
        let first_token = engine.time_to_first_token + self.waiting_time;
        let needed = if self.is_learned { forecast.expected } else { self.demand };
        Flow {
            arrivals: forecast.arrivals,
            forecast: forecast.expected,
            slope: forecast.slope,
            slope_t: forecast.t_value,
            horizon_seconds: forecast.horizon,
            a: engine.times.a,
            b: engine.times.b,
            c: engine.times.c,
            samples: engine.samples,
            running: engine.running,
            shown_limit: engine.shown_limit,
            assumed_itl_ms: engine.assumed_gap.map(|gap| to_finite(1000.0 * gap)),
            itl_ms: to_finite(1000.0 * engine.token_gap),
            work: engine.work,
            throughput: if self.is_learned { throughput } else { 0.0 },
            ttft_ms: if self.is_learned { to_finite(1000.0 * first_token) } else { 0.0 },
            ttft_slo_ms: self.ttft_slo,
            need: to_finite(needed / throughput),
            backlog: to_finite(self.backlog / throughput),
            bursts: to_finite(self.bursts / throughput),
            target: self.target_figures(i),
        }
    }

    fn target_figures(&self, i: usize) -> Option<TargetFigures> {
        let kept = self.kept?;
        Some(TargetFigures { replicas: to_finite(kept.rate / self.per_replica[i]), ..kept.figures })
    }
}
