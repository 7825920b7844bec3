//! Namespaces of a query. Large installs split them: answers stay within bounds, and a failure affects only its own
//! namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most pods in one query. An answer has at most three series per pod of up to 700 bytes: 42 MB, well below the limit.
const MAX_PODS: usize = 20_000;
const PER_POD: usize = 3;
/// Bytes of a namespace matcher. Proxies accept a few tens of kilobytes.
const LONGEST_MATCHER: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// Sorted.
    These(Arc<[Box<str>]>),
}

impl Scope {
    pub(crate) fn one(namespace: &str) -> Self {
        Self::These([Box::from(namespace)].into())
    }

    pub(crate) fn for_namespaces<'a>(namespaces: impl Iterator<Item = &'a str>) -> Self {
        let names: BTreeSet<&str> = namespaces.filter(|name| is_namespace(name)).collect();
        let length: usize = names.iter().map(|name| name.len() + 1).sum();
        if length > LONGEST_MATCHER {
            return Self::All;
        }
        Self::These(names.into_iter().map(Box::from).collect())
    }

    /// These namespaces in one scope if they have few enough pods, else in as many as needed.
    /// `series`: series for each pod in the answer, at most.
    pub(crate) fn for_pods(pods: &BTreeMap<String, usize>, series: usize) -> Vec<Self> {
        let most = MAX_PODS * PER_POD / series.max(PER_POD);
        let all = pods.values().fold(0_usize, |sum, n| sum.saturating_add(*n));
        if all <= most {
            vec![Self::for_namespaces(pods.keys().map(String::as_str))]
        } else {
            split_by_pods(pods, most)
        }
    }

    /// These namespaces, in as many scopes as needed.
    pub(crate) fn split(namespaces: &[&str]) -> Vec<Self> {
        split_by_pods(&namespaces.iter().map(|name| ((*name).to_owned(), 0)).collect(), MAX_PODS)
    }

    fn names(&self) -> Option<&[Box<str>]> {
        match self {
            Self::All => None,
            Self::These(names) => Some(names),
        }
    }

    #[must_use]
    pub(crate) fn contains(&self, namespace: &str) -> bool {
        let found = |names: &[Box<str>]| names.binary_search_by(|name| (**name).cmp(namespace)).is_ok();
        self.names().is_none_or(found)
    }

    /// Empty for all namespaces.
    #[must_use]
    pub(crate) fn matcher(&self) -> String {
        match self {
            Self::All => String::new(),
            // Names of namespaces have no special characters.
            Self::These(names) if names.len() == 1 => format!("namespace=\"{}\"", names[0]),
            Self::These(names) => format!("namespace=~\"{}\"", names.join("|")),
        }
    }
}

/// Rounds until larger parts are tried again: an hour by default. A failed try costs a round.
const RETRY_AFTER: u32 = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryOutcome {
    Answered,
    TooLong,
    Failed,
}

/// Adapts the size of scopes to earlier outcomes.
#[derive(Debug)]
pub(crate) struct ScopeSplitter {
    max_pods: usize,
    /// Foreign namespaces make the answer for all too long.
    only_ours: bool,
    /// Scopes of the current round, in query order.
    scopes: Vec<Scope>,
    /// Namespace with which the next round begins, so that no scope always runs out of time.
    first: Option<Box<str>>,
    /// Rounds since the last incomplete one.
    complete_rounds: u32,
}

impl Default for ScopeSplitter {
    fn default() -> Self {
        Self { max_pods: MAX_PODS, only_ours: false, scopes: Vec::new(), first: None, complete_rounds: 0 }
    }
}

impl ScopeSplitter {
    /// `pods`: expected pods of each namespace.
    pub(crate) fn next_round(&mut self, pods: &BTreeMap<String, usize>) -> Vec<Scope> {
        let all = pods.values().fold(0_usize, |sum, n| sum.saturating_add(*n));
        self.scopes = if !self.only_ours && all <= self.max_pods {
            vec![Scope::All]
        } else {
            let mut parts = split_by_pods(pods, self.max_pods);
            let reaches = |part: &Scope| part.names().and_then(<[_]>::last) >= self.first.as_ref();
            let first = parts.iter().position(reaches);
            parts.rotate_left(first.unwrap_or_default());
            parts
        };
        self.scopes.clone()
    }

    /// Ends the round. After an answer that was too long, the next round has smaller scopes.
    pub(crate) fn finish_round(&mut self, outcome: impl Fn(&Scope) -> QueryOutcome) {
        let outcomes: Vec<QueryOutcome> = self.scopes.iter().map(outcome).collect();
        // The first scope moves back even if it failed: it may take all the time in every round.
        let next = (1..outcomes.len()).find(|i| outcomes[*i] == QueryOutcome::Failed).unwrap_or(1);
        self.first = self.scopes.get(next).and_then(|part| part.names()?.first().cloned());
        let too_long =
            self.scopes.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == QueryOutcome::TooLong);
        match too_long.map(|(part, _)| part.names().map(<[_]>::len)).max() {
            Some(None) => self.only_ours = true,
            // Halved once for all scopes. A single namespace cannot be split.
            Some(Some(2..)) => self.max_pods = (self.max_pods / 2).max(1),
            _ => {}
        }
        let is_complete = outcomes.iter().all(|outcome| *outcome == QueryOutcome::Answered);
        self.complete_rounds = if is_complete { self.complete_rounds + 1 } else { 0 };
        if self.complete_rounds >= RETRY_AFTER {
            self.complete_rounds = 0;
            self.max_pods = self.max_pods.saturating_mul(2).min(MAX_PODS);
        }
    }
}

/// Consecutive namespaces within the limits, at least one each.
fn split_by_pods(pods: &BTreeMap<String, usize>, max_pods: usize) -> Vec<Scope> {
    let mut parts: Vec<Vec<Box<str>>> = Vec::new();
    let (mut count, mut length) = (0_usize, 0_usize);
    for (namespace, own) in pods.iter().filter(|(name, _)| is_namespace(name)) {
        let fits = count.saturating_add(*own) <= max_pods && length + namespace.len() < LONGEST_MATCHER;
        if let Some(part) = parts.last_mut().filter(|_| fits) {
            part.push(namespace.as_str().into());
            count = count.saturating_add(*own);
            length += namespace.len() + 1;
        } else {
            parts.push(vec![namespace.as_str().into()]);
            (count, length) = (*own, namespace.len() + 1);
        }
    }
    parts.into_iter().map(|names| Scope::These(names.into())).collect()
}

/// Whether it is a DNS label (RFC 1123). Other names never get into a query.
fn is_namespace(name: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = name.bytes().next().zip(name.bytes().last());
    name.len() <= 63
        && ends.is_some_and(|(first, last)| alphanumeric(first) && alphanumeric(last))
        && name.bytes().all(|b| alphanumeric(b) || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(n: usize, pods: usize) -> BTreeMap<String, usize> {
        (0..n).map(|i| (format!("team-{i:04}"), pods)).collect()
    }

    fn names(scope: &Scope) -> Vec<&str> {
        match scope {
            Scope::All => vec!["*"],
            Scope::These(names) => names.iter().map(|n| &**n).collect(),
        }
    }

    #[test]
    fn queries_4000_pods_in_20_namespaces_at_once() {
        assert_eq!(ScopeSplitter::default().next_round(&namespaces(20, 200)), [Scope::All]);
        assert_eq!(Scope::All.matcher(), "");
    }

    #[test]
    fn splits_large_install_and_covers_each_namespace_once() {
        for (pods, parts) in
            [(namespaces(20, 1001), 2), (namespaces(1500, 14), 2), (namespaces(3, 30_000), 3)]
        {
            let scopes = ScopeSplitter::default().next_round(&pods);
            assert_eq!(scopes.len(), parts);
            let all: Vec<&str> = scopes.iter().flat_map(names).collect();
            assert_eq!(all, pods.keys().map(String::as_str).collect::<Vec<_>>());
            for scope in &scopes {
                assert!(scope.matcher().len() <= LONGEST_MATCHER + 32, "{}", scope.matcher().len());
                assert!(scope.contains(names(scope)[0]) && !scope.contains("elsewhere"));
            }
        }
    }

    /// First namespaces of the scopes of rounds in which these namespaces failed.
    fn rounds(pods: &BTreeMap<String, usize>, failed: &[&[&str]]) -> Vec<Vec<String>> {
        let mut split = ScopeSplitter::default();
        let round = |failed: &&[&str]| {
            let parts = split.next_round(pods);
            let has_failed = |scope: &Scope| names(scope).iter().any(|name| failed.contains(name));
            split.finish_round(
                |scope| if has_failed(scope) { QueryOutcome::Failed } else { QueryOutcome::Answered },
            );
            parts.iter().map(|part| names(part)[0].trim_start_matches("team-000").to_owned()).collect()
        };
        failed.iter().map(round).collect()
    }

    #[test]
    fn round_starts_where_the_last_one_ran_out_of_time() {
        let pods = namespaces(4, 30_000);
        let all = ["team-0000", "team-0001", "team-0002", "team-0003"];
        assert_eq!(
            rounds(&pods, &[&all[2..], &all[..2], &[], &[]]),
            [["0", "1", "2", "3"], ["2", "3", "0", "1"], ["0", "1", "2", "3"], ["1", "2", "3", "0"]]
        );
        // A scope that takes all the time is not always first.
        assert_eq!(
            rounds(&pods, &[&all, &all[..1], &all[..1]])[1..],
            [["1", "2", "3", "0"], ["0", "1", "2", "3"]]
        );
    }

    /// Runs a round with this outcome of every scope; returns the number of scopes.
    fn round(split: &mut ScopeSplitter, pods: &BTreeMap<String, usize>, outcome: QueryOutcome) -> usize {
        let parts = split.next_round(pods).len();
        split.finish_round(|_| outcome);
        parts
    }

    #[test]
    fn halves_scopes_after_too_long_answers() {
        let mut split = ScopeSplitter::default();
        let pods = namespaces(20, 200);
        // Foreign namespaces have most of the series.
        assert_eq!(round(&mut split, &pods, QueryOutcome::TooLong), 1);
        assert_eq!(split.next_round(&pods)[0].matcher().matches('|').count(), 19);
        let parts: Vec<usize> = (0..6).map(|_| round(&mut split, &pods, QueryOutcome::TooLong)).collect();
        assert_eq!(parts, [1, 1, 1, 2, 4, 7], "halved once per round, however many scopes were too long");
        for _ in 0..20 {
            round(&mut split, &pods, QueryOutcome::TooLong);
        }
        assert_eq!(round(&mut split, &pods, QueryOutcome::Answered), 20, "never less than one namespace");
    }

    #[test]
    fn tries_larger_scopes_again_after_many_complete_rounds() {
        let mut split = ScopeSplitter::default();
        let pods = namespaces(4, 10_000);
        assert_eq!(round(&mut split, &pods, QueryOutcome::TooLong), 2);
        assert_eq!(round(&mut split, &pods, QueryOutcome::Failed), 4);
        for _ in 0..RETRY_AFTER {
            assert_eq!(round(&mut split, &pods, QueryOutcome::Answered), 4);
        }
        for _ in 0..=RETRY_AFTER {
            assert_eq!(round(&mut split, &pods, QueryOutcome::Answered), 2, "never larger than initially");
        }
    }

    #[test]
    fn only_valid_namespace_names_get_into_a_query() {
        let names = ["a", "a-1", "0", "", "-a", "a-", "A", "a.b", "a\"", "a|b"];
        let taken: Vec<&str> = names.into_iter().filter(|n| is_namespace(n)).collect();
        assert_eq!(taken, ["a", "a-1", "0"]);
        let pods = names.map(|n| (n.to_owned(), 10_000)).into();
        assert_eq!(ScopeSplitter::default().next_round(&pods).len(), 2);
        assert_eq!(Scope::one("prod").matcher(), "namespace=\"prod\"");
        assert_eq!(Scope::for_namespaces(["b", "a\"", "a", "b"].into_iter()).matcher(), "namespace=~\"a|b\"");
        let many: Vec<String> = (0..1000).map(|i| format!("team-{i:04}")).collect();
        assert_eq!(Scope::for_namespaces(many.iter().map(String::as_str)), Scope::All);
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let parts = Scope::split(&many);
        assert_eq!((parts.len(), parts.iter().flat_map(self::names).collect::<Vec<_>>()), (2, many));
        assert_eq!(Scope::split(&["a", "a\""]), [Scope::one("a")]);
        assert_eq!(Scope::for_pods(&namespaces(2, 10_000), 1).len(), 1);
        assert_eq!(Scope::for_pods(&namespaces(3, 10_000), 3).len(), 2);
        assert_eq!(Scope::for_pods(&namespaces(1000, 4), 3), [Scope::All]);
        assert_eq!(Scope::for_pods(&namespaces(2, 10_000), 30).len(), 2, "ten times the series");
    }
}
