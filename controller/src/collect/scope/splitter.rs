//! Finds the namespaces whose queries fail, and queries them apart from the others.
//!
//! A scope that fails is split into parts. Parts that answer join the others again if another part failed: it was the
//! cause. If all of them answer, their sum was too large, and they stay apart. If nothing is answered any more,
//! Prometheus is the cause, and the parts are one again.

use std::collections::{BTreeMap, BTreeSet};

use super::{MAX_PODS, Scope, split_by_pods};

/// Parts of a scope that fails. One of 1,000 namespaces is found in five rounds.
const PARTS: usize = 8;
/// Rounds until a part that answers joins the others again: an hour by default. A failed try costs a round.
const RETRY_AFTER: u32 = 120;
/// Rounds until scopes that time out are split again after an outage.
const OUTAGE_PAUSE: u32 = 20;
/// Most rounds for which a failing namespace is left out. Each of its queries delays the round until its timeout.
const LONGEST_PAUSE: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueryOutcome {
    Answered,
    /// The query failed, and fewer namespaces would not help.
    Failed,
    /// The query timed out, because of its size or an outage.
    TimedOut,
    /// The answer is too long, or Prometheus cannot evaluate the query.
    Refused,
}

/// Namespaces that are queried apart.
#[derive(Debug, Default)]
struct Part {
    /// Parts of one scope have the same.
    origin: u32,
    /// Rounds in a row in which all its queries were answered.
    answered: u32,
    /// Rounds in a row in which its only namespace failed.
    failed: u32,
    /// Rounds for which it is left out.
    pause: u32,
}

/// Adapts scopes to the outcomes of earlier rounds.
#[derive(Debug, Default)]
pub(crate) struct ScopeSplitter {
    parts: BTreeMap<u32, Part>,
    /// Part of each namespace that is queried apart.
    part_of: BTreeMap<Box<str>, u32>,
    /// Number of the newest part, and of the newest origin.
    newest: u32,
    /// Scopes of the current round, in query order, each with its part.
    scopes: Vec<(Option<u32>, Scope)>,
    round: usize,
    /// Rounds until a timeout may split scopes again.
    outage_pause: u32,
}

impl ScopeSplitter {
    /// `pods`: expected pods of each namespace. Those that failed come last, and not in every round.
    pub(crate) fn next_round(&mut self, pods: &BTreeMap<String, usize>) -> Vec<Scope> {
        self.part_of.retain(|namespace, _| pods.contains_key(&**namespace));
        let used: BTreeSet<u32> = self.part_of.values().copied().collect();
        self.parts.retain(|number, _| used.contains(number));
        let mut of_part: BTreeMap<Option<u32>, BTreeMap<String, usize>> = BTreeMap::new();
        for (namespace, n) in pods {
            let part = self.part_of.get(namespace.as_str()).copied();
            of_part.entry(part).or_default().insert(namespace.clone(), *n);
        }
        let (mut sound, mut failing) = (Vec::new(), Vec::new());
        for (number, pods) in of_part {
            let part = number.and_then(|number| self.parts.get_mut(&number));
            let has_failed = part.as_ref().is_some_and(|part| part.failed > 0);
            if let Some(part) = part.filter(|part| part.pause > 0) {
                part.pause -= 1;
                continue;
            }
            let scopes = split_by_pods(&pods, MAX_PODS).into_iter().map(|scope| (number, scope));
            if has_failed { failing.extend(scopes) } else { sound.extend(scopes) }
        }
        // If a round runs out of time, it is not always the same scope that lacks its answers.
        self.round = self.round.wrapping_add(1);
        for scopes in [&mut sound, &mut failing] {
            let first = self.round.checked_rem(scopes.len()).unwrap_or_default();
            scopes.rotate_left(first);
        }
        self.scopes = sound.into_iter().chain(failing).collect();
        self.scopes.iter().map(|(_, scope)| scope.clone()).collect()
    }

    /// Ends the round. `has_answers`: any of its queries was answered.
    pub(crate) fn finish_round(&mut self, has_answers: bool, outcome: impl Fn(&Scope) -> QueryOutcome) {
        let scopes = std::mem::take(&mut self.scopes);
        let outcomes: Vec<QueryOutcome> = scopes.iter().map(|(_, scope)| outcome(scope)).collect();
        self.outage_pause = self.outage_pause.saturating_sub(1);
        let is_refused = outcomes.contains(&QueryOutcome::Refused);
        if !has_answers && !is_refused && scopes.len() > 1 {
            self.parts.clear();
            self.part_of.clear();
            self.outage_pause = OUTAGE_PAUSE;
            return;
        }
        let is_alone = scopes.len() == 1 && scopes.iter().all(|(_, scope)| scope.names().nth(1).is_none());
        if is_alone {
            // It delays no others.
            return;
        }
        let splits_at_timeout = has_answers || self.outage_pause == 0;
        let mut of_part: BTreeMap<u32, QueryOutcome> = BTreeMap::new();
        let mut causes = BTreeSet::new();
        for ((number, scope), outcome) in scopes.into_iter().zip(outcomes) {
            let is_cause = match outcome {
                QueryOutcome::Refused => true,
                QueryOutcome::TimedOut => splits_at_timeout,
                QueryOutcome::Answered | QueryOutcome::Failed => false,
            };
            let of_part = number.map(|number| of_part.entry(number).or_insert(outcome));
            if let Some(worst) = of_part {
                *worst = outcome.max(*worst);
            }
            if !is_cause {
                continue;
            }
            let part = number.and_then(|number| self.parts.get_mut(&number));
            causes.extend(part.as_ref().map(|part| part.origin));
            match part {
                Some(part) if scope.names().nth(1).is_none() => {
                    part.failed = part.failed.saturating_add(1);
                    part.pause = 1_u32.checked_shl(part.failed).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
                }
                _ => self.set_apart(&scope),
            }
        }
        self.join(&of_part, &causes);
    }

    /// Splits a scope into parts.
    fn set_apart(&mut self, scope: &Scope) {
        self.newest += 1;
        let origin = self.newest;
        let names: Vec<&str> = scope.names().collect();
        for names in names.chunks(names.len().div_ceil(PARTS).max(1)) {
            self.newest += 1;
            self.parts.insert(self.newest, Part { origin, ..Part::default() });
            self.part_of.extend(names.iter().map(|name| (Box::from(*name), self.newest)));
        }
    }

    /// Ends parts that answer: at once if another part of their scope is the cause, else after a time.
    fn join(&mut self, outcomes: &BTreeMap<u32, QueryOutcome>, causes: &BTreeSet<u32>) {
        for (number, outcome) in outcomes {
            let Some(part) = self.parts.get_mut(number) else { continue };
            if *outcome != QueryOutcome::Answered {
                part.answered = 0;
                continue;
            }
            (part.answered, part.failed) = (part.answered + 1, 0);
            if part.answered >= RETRY_AFTER || causes.contains(&part.origin) {
                self.part_of.retain(|_, of| of != number);
            }
        }
    }
}

#[cfg(test)]
mod tests;
