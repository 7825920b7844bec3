//! Which variants give what a model needs: the ones whose throughput costs least are filled first, the dearest are
//! emptied first. Every cycle counts from the replicas there are, those that load included.

use super::Plan;
use crate::Stage;
use crate::analyze::Verdict;
use crate::analyze::steps::{obstacle, withheld};
use crate::limit::{Ledger, is_limited};
use crate::reason::{Flow, Reason};
use crate::units::{amount, below, finite, whole};
use crate::view::{Draft, ModelView};

/// A lack, in requests a second, that any replica makes up for.
const SOME: f64 = 1e-6;

impl Verdict for Plan {
    fn spare(&self) -> f64 {
        let supply = self.able;
        if supply > 0.0 {
            (supply - self.wanted) / supply
        } else if self.wanted > 0.0 {
            f64::NEG_INFINITY
        } else {
            0.0
        }
    }

    fn propose(&self, model: &ModelView, barred: &[bool], ledger: &Ledger) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = model.variants.iter().map(|v| Draft::new(v.current)).collect();
        if below(self.able, self.wanted) || self.pressed {
            self.grow(model, barred, ledger, &mut drafts);
        } else if let Some(held) = self.held {
            self.shrink(model, held, &mut drafts);
        }
        for (i, draft) in drafts.iter_mut().enumerate().filter(|(_, d)| d.steps.is_empty()) {
            draft.note(Stage::Analyze, self.unmoved(i));
        }
        drafts
    }

    fn order(&self, model: &ModelView) -> Vec<usize> {
        // Rounded, lest the last bit decide between two that are as dear.
        let cost = |i: usize| model.variants[i].cost();
        let price = |i: usize| amount(cost(i) / self.per_replica[i]).get();
        let mut order: Vec<usize> = (0..model.variants.len()).collect();
        // What is not learnt is as dear as what is: the smaller step comes first. The sort is stable, in order of name.
        order.sort_by(|a, b| price(*a).total_cmp(&price(*b)).then(cost(*a).total_cmp(&cost(*b))));
        order
    }
}

impl Plan {
    fn grow(&self, model: &ModelView, barred: &[bool], ledger: &Ledger, drafts: &mut [Draft]) {
        let mut missing = self.wanted - self.able;
        if self.pressed {
            // Whatever is believed, what is there does not do.
            missing = missing.max(SOME);
        }
        let mut ledger = ledger.clone();
        for i in self.order(model) {
            let variant = &model.variants[i];
            if !below(0.0, missing) || barred[i] {
                continue;
            }
            if let Some(reason) = obstacle(variant) {
                drafts[i].note(Stage::Analyze, reason);
                continue;
            }
            // The allowance keeps a quotient of 2.0000000001 at 2.
            let asked = whole((missing / self.per_replica[i] - 1e-9).ceil()).max(variant.step_up());
            let after = variant.current.saturating_add(asked);
            drafts[i].push(Stage::Analyze, after, self.why_more(i));
            // One that a person holds back gives nothing, so the next one is asked as well.
            if !variant.auto() {
                continue;
            }
            // The stages behind cut it to the maximum and to what is left; the next variant gets what is cut.
            let mut given = asked.min(variant.room());
            if is_limited(model) {
                given = variant.granted(given, ledger.fits(variant));
                ledger.book(variant, given);
            }
            missing -= f64::from(given) * self.per_replica[i];
        }
    }

    /// Why the model grows: the first of arrivals, trend, warm spare and backlog that is more than there is.
    fn why_more(&self, i: usize) -> Reason {
        let flow = Box::new(self.flow(i));
        if !self.learnt {
            return Reason::NotLearnt { flow };
        }
        let traffic = &self.traffic;
        if below(self.able, traffic.arrivals) {
            Reason::ArrivalsAboveCapacity { flow }
        } else if below(self.able, traffic.forecast) {
            Reason::TrendAhead { flow }
        } else if below(self.able, traffic.forecast + self.spare) {
            Reason::WarmSpare { flow }
        } else {
            Reason::Backlog { flow }
        }
    }

    fn shrink(&self, model: &ModelView, held: f64, drafts: &mut [Draft]) {
        let mut spare = self.able - held.max(self.wanted);
        let mut unheld = self.able - self.wanted;
        let mut order = self.order(model);
        order.reverse();
        for i in order {
            let (would, taken) = self.take(model, i, (unheld, spare), drafts);
            if model.variants[i].auto() {
                unheld -= f64::from(would) * self.per_replica[i];
                spare -= f64::from(taken) * self.per_replica[i];
            }
        }
    }

    /// Takes of a variant what is spare, or says why not. Tells how many would be taken if nothing were held, and how
    /// many are.
    fn take(
        &self,
        model: &ModelView,
        i: usize,
        (unheld, spare): (f64, f64),
        drafts: &mut [Draft],
    ) -> (u32, u32) {
        let variant = &model.variants[i];
        // What still loads serves nobody, so it does not count as the replica that is left.
        let serves = |(j, draft): (usize, &Draft)| {
            let other = &model.variants[j];
            j != i && other.replicas_after(draft.target()).min(other.ready) > 0
        };
        let last = !drafts.iter().enumerate().any(serves);
        let floor = variant.bounds.min.max(u32::from(last));
        let most = variant.current.saturating_sub(floor).min(variant.ready);
        let fits = |spare: f64| whole((spare / self.per_replica[i] + 1e-9).floor()).min(most);
        let (would, taken) = (fits(unheld), fits(spare));
        if taken == 0 {
            if would > 0 {
                let held = finite(self.held.unwrap_or_default() / self.per_replica[i]);
                let flow = Box::new(self.flow(i));
                drafts[i].note(Stage::Analyze, Reason::HeldPeak { held, flow });
            }
            return (would, 0);
        }
        if let Some(reason) = withheld(model, variant, taken) {
            drafts[i].note(Stage::Analyze, reason);
            return (would, 0);
        }
        let reason = Reason::CapacityAboveNeed { flow: Box::new(self.flow(i)) };
        drafts[i].push(Stage::Analyze, variant.current - taken, reason);
        (would, taken)
    }

    fn unmoved(&self, i: usize) -> Reason {
        let flow = Box::new(self.flow(i));
        if self.learnt {
            Reason::NoChange { load: None, tokens: None, flow: Some(flow) }
        } else {
            Reason::NotLearnt { flow }
        }
    }

    fn flow(&self, i: usize) -> Flow {
        let (traffic, ability, speed) = (&self.traffic, &self.abilities[i], self.per_replica[i]);
        Flow {
            arrivals: traffic.arrivals,
            forecast: traffic.forecast,
            slope: traffic.slope,
            slope_t: traffic.t,
            horizon_seconds: traffic.horizon,
            a: ability.times.a,
            b: ability.times.b,
            c: ability.times.c,
            samples: ability.samples,
            running: ability.running,
            itl_ms: finite(1000.0 * ability.gap),
            work: ability.work,
            throughput: if self.learnt { speed } else { 0.0 },
            ttft_ms: if self.learnt { finite(1000.0 * (ability.first_token + self.wait)) } else { 0.0 },
            ttft_slo_ms: self.ttft_slo,
            need: finite(if self.learnt { traffic.forecast } else { self.wanted } / speed),
            backlog: finite(self.backlog / speed),
        }
    }
}
