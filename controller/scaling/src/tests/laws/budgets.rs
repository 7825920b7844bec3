//! Quotas are never exceeded, better priorities come first, and a replica that is given back is never the last one.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{has_reason, is_taken, variant_of};
use crate::reason::Reason;
use crate::snapshot::{Mode, Snapshot};
use crate::tests::generate::any_case;
use crate::{Decision, Stage, decide};
use wva_objects::hardware::accelerator_key;

/// Decided in an earlier cycle, or by a user.
const COMMITTED: [&str; 4] = ["SafetyNet", "WakeHold", "Paused", "Fixed"];

/// What a replica takes, by budget.
fn claims(snapshot: &Snapshot, decision: &Decision) -> BTreeMap<String, u64> {
    let variant = variant_of(snapshot, decision);
    let accelerator = variant.accelerator.as_deref().map(accelerator_key);
    let gpus = accelerator.map(|name| (name, u64::from(variant.gpus_per_replica.0)));
    let quota = |quota: &str, resource: &str| format!("{}/{quota}/{resource}", decision.key.namespace);
    let needs =
        variant.quota_needs.iter().map(|need| (quota(&need.quota, &need.resource), need.per_replica.0));
    gpus.into_iter().chain(needs).filter(|(_, amount)| *amount > 0).collect()
}

/// Budget that refused a part of the growth.
fn refused_budget(decision: &Decision) -> Option<String> {
    decision.steps.iter().filter(|step| step.stage == Stage::Limit).find_map(|step| match &step.reason {
        Reason::LimitedBy { accelerator, .. } => Some(accelerator_key(accelerator)),
        Reason::LimitedByQuota { shortage } => {
            Some(format!("{}/{}/{}", decision.key.namespace, shortage.quota, shortage.resource))
        }
        _ => None,
    })
}

/// Replicas that exist or that an earlier cycle asked for.
fn granted_from(decision: &Decision) -> u32 {
    decision.base.max(decision.current)
}

fn is_granted(decision: &Decision) -> bool {
    decision.report.mode == Mode::Auto
        && decision.target() > granted_from(decision)
        && !has_reason(decision, &COMMITTED)
}

proptest! {
    #[test]
    fn grants_no_more_than_quotas_leave(case in any_case()) {
        let mut case = case.0;
        case.config.limited_mode = true;
        let outcome = decide(&case);
        let (mut held, mut granted) = (BTreeMap::<_, u64>::new(), BTreeMap::<_, u64>::new());
        // Fixed and paused targets get what loads leave.
        for decision in outcome.decisions.iter().filter(|d| d.report.mode == Mode::Auto) {
            let from = if is_granted(decision) { granted_from(decision) } else { decision.target() };
            let new = u64::from(decision.target().saturating_sub(from));
            let is_taken = u64::from(is_taken(&case, decision));
            let old = is_taken * u64::from(decision.target().min(from).saturating_sub(decision.current));
            for (budget, amount) in claims(&case, decision) {
                *granted.entry(budget.clone()).or_default() += new * amount;
                *held.entry(budget).or_default() += old * amount;
            }
        }
        for row in &case.config.quotas {
            let budget = format!("{}/{}/{}", row.namespace, row.quota, row.resource);
            let sum = |of: &BTreeMap<String, u64>| of.get(&budget).copied().unwrap_or(0);
            let left = row.limit.0.saturating_sub(row.used.0).saturating_sub(sum(&held));
            prop_assert!(sum(&granted) <= left, "{}\n{}", budget, crate::trace::render(&outcome));
        }
    }

    #[test]
    fn a_better_priority_is_not_refused_while_a_worse_one_grows(case in any_case()) {
        let mut case = case.0;
        case.config.limited_mode = true;
        let outcome = decide(&case);
        let named = |d: &Decision| case.config.priorities.get(&d.model_id);
        let bound = |d: &Decision| case.config.namespace_priorities.get(&d.key.namespace)?.get(&d.model_id);
        for better in outcome.decisions.iter().filter(|d| d.report.mode == Mode::Auto) {
            let Some(budget) = refused_budget(better) else { continue };
            let is_worse = |d: &&Decision| match (bound(better), bound(d)) {
                (Some(better), worse) => worse.is_none_or(|worse| worse > better),
                (None, Some(_)) => false,
                // Without a bound class, priorities count within a namespace.
                (None, None) => {
                    let worse = named(d).is_none_or(|worse| Some(worse) > named(better));
                    d.key.namespace == better.key.namespace && named(better).is_some() && worse
                }
            };
            for worse in outcome.decisions.iter().filter(is_worse).filter(|d| is_granted(d)) {
                prop_assert!(
                    !claims(&case, worse).contains_key(&budget),
                    "{} takes {} from {}\n{}", worse.key.name, budget, better.key.name, crate::trace::render(&outcome)
                );
            }
        }
    }

    #[test]
    fn gives_back_one_step_and_never_the_last_replica(case in any_case()) {
        let mut case = case.0;
        case.config.limited_mode = true;
        let outcome = decide(&case);
        for decision in &outcome.decisions {
            let gives = |step: &crate::Step| matches!(step.reason, Reason::YieldsTo { .. }) && step.after < decision.base;
            let given: Vec<_> = decision.steps.iter().filter(|step| gives(step)).collect();
            prop_assert!(given.len() <= 1);
            if given.is_empty() {
                continue;
            }
            let of_model = |d: &&Decision| (&d.key.namespace, &d.model_id) == (&decision.key.namespace, &decision.model_id);
            let givers = outcome.decisions.iter().filter(of_model).filter(|d| d.steps.iter().any(|s| matches!(s.reason, Reason::YieldsTo { .. }) && s.after < d.base));
            prop_assert_eq!(givers.count(), 1, "{}", crate::trace::render(&outcome));
            prop_assert_eq!(decision.report.mode, Mode::Auto);
            prop_assert!(decision.target() >= decision.report.bounds.min.max(1), "{}", crate::trace::render(&outcome));
        }
    }
}
