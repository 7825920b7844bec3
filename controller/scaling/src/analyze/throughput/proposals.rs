//! Targets of the throughput analyzer: the cheapest throughput grows first, the most expensive shrinks first.

use super::ThroughputVerdict;
use crate::Stage;
use crate::analyze::Verdict;
use crate::analyze::step_limits::{
    acted_step_down, book_granted, growth_obstacle, note_obstruction, obstructed_last, removable_replicas,
    requested_replicas, shrink_obstacle, spare_share,
};
use crate::draft::Draft;
use crate::limit::Ledger;
use crate::reason::{Flow, Reason};
use crate::units::{amount, below, to_finite, to_u32};
use crate::view::ModelView;

/// Requests per second; one replica covers it.
const MIN_MISSING: f64 = 1e-6;

/// Requests per second.
#[derive(Clone, Copy)]
struct Spare {
    /// Beyond the present demand.
    now: f64,
    /// Beyond the peak of the hold time.
    held: f64,
    /// The same of the replicas that serve now: those that start or are asked for take no load yet.
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
        if below(self.supply, self.demand) || self.is_overloaded {
            self.grow(model, excluded, ledger, &mut drafts);
        } else if let Some(held) = self.held {
            self.shrink(model, held, &mut drafts);
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

impl ThroughputVerdict {
    fn grow(&self, model: &ModelView, excluded: &[bool], ledger: &Ledger, drafts: &mut [Draft]) {
        let mut missing = self.demand - self.supply;
        if self.is_overloaded {
            // The saturated replicas are not enough, whatever the fitted throughput says.
            missing = missing.max(MIN_MISSING);
        }
        let mut ledger = ledger.clone();
        for i in obstructed_last(model, self.order(model)) {
            let variant = &model.variants[i];
            note_obstruction(variant, Stage::Analyze, &mut drafts[i]);
            if !below(0.0, missing) || excluded[i] {
                continue;
            }
            if let Some(reason) = growth_obstacle(variant) {
                drafts[i].note(Stage::Analyze, reason);
                continue;
            }
            let requested = requested_replicas(variant, missing, self.per_replica[i]);
            let after = variant.step_base().saturating_add(requested).max(drafts[i].target());
            drafts[i].push(Stage::Analyze, after, self.growth_reason(i));
            // Outside mode `auto` the variant adds no replica, so the next one grows too.
            if !variant.is_auto() {
                continue;
            }
            // The next variant gets the rest.
            let granted = book_granted(model, variant, requested, &mut ledger);
            missing -= f64::from(granted) * self.per_replica[i];
        }
    }

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
        } else {
            Reason::Backlog { flow }
        }
    }

    fn shrink(&self, model: &ModelView, held: f64, drafts: &mut [Draft]) {
        let least = held.max(self.demand);
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
        let removable = removable_replicas(model, i, drafts);
        let fits = |spare: f64| to_u32((spare / self.per_replica[i] + 1e-9).floor()).min(removable);
        let replaceable = fits(spare.serving).saturating_add(variant.arriving());
        let removed = Removal { without_hold: fits(spare.now), with_hold: fits(spare.held).min(replaceable) };
        if removed.with_hold == 0 {
            if removed.without_hold > 0 {
                let held = to_finite(self.held.unwrap_or_default() / self.per_replica[i]);
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
            itl_ms: to_finite(1000.0 * engine.token_gap),
            work: engine.work,
            throughput: if self.is_learned { throughput } else { 0.0 },
            ttft_ms: if self.is_learned { to_finite(1000.0 * first_token) } else { 0.0 },
            ttft_slo_ms: self.ttft_slo,
            need: to_finite(needed / throughput),
            backlog: to_finite(self.backlog / throughput),
            bursts: to_finite(self.bursts / throughput),
        }
    }
}
