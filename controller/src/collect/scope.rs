//! The namespaces of a query. A small install asks for all at once. A large one is split, so that no query and no answer
//! exceeds its bound, and a failed query affects only its own namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most pods in one query. An answer has at most three series a pod, of up to 700 bytes: 42 MB, well below the bound of an
/// answer.
const MOST_PODS: usize = 20_000;
/// Longest text of namespaces in one query. Proxies in front of Prometheus take a few tens of kilobytes.
const LONGEST_MATCHER: usize = 8 << 10;

/// The namespaces of one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All there are.
    All,
    /// These, in order.
    These(Arc<[Box<str>]>),
}

impl Scope {
    /// One namespace.
    pub(crate) fn one(namespace: &str) -> Self {
        Self::These([Box::from(namespace)].into())
    }

    /// Only these namespaces, unless they are too many for one query.
    pub(crate) fn of<'a>(namespaces: impl Iterator<Item = &'a str>) -> Self {
        let names: BTreeSet<&str> = namespaces.filter(|name| is_namespace(name)).collect();
        let length: usize = names.iter().map(|name| name.len() + 1).sum();
        if length > LONGEST_MATCHER {
            return Self::All;
        }
        Self::These(names.into_iter().map(Box::from).collect())
    }

    /// Only these namespaces, in as many queries as it takes.
    pub(crate) fn parts(namespaces: &[&str]) -> Vec<Self> {
        split(&namespaces.iter().map(|name| ((*name).to_owned(), 0)).collect(), MOST_PODS)
    }

    /// Its namespaces, in order; `None` for all there are.
    fn names(&self) -> Option<&[Box<str>]> {
        match self {
            Self::All => None,
            Self::These(names) => Some(names),
        }
    }

    /// Whether it has a namespace.
    #[must_use]
    pub(crate) fn holds(&self, namespace: &str) -> bool {
        let found = |names: &[Box<str>]| names.binary_search_by(|name| (**name).cmp(namespace)).is_ok();
        self.names().is_none_or(found)
    }

    /// The label matcher that asks for them; empty for all.
    #[must_use]
    pub(crate) fn matcher(&self) -> String {
        match self {
            Self::All => String::new(),
            // The names of namespaces hold nothing that is special in a regular expression or in a string.
            Self::These(names) if names.len() == 1 => format!("namespace=\"{}\"", names[0]),
            Self::These(names) => format!("namespace=~\"{}\"", names.join("|")),
        }
    }
}

/// Whole rounds before larger parts are tried again: an hour at the default interval, since a failed try costs a round.
const TRY_AGAIN: u32 = 120;

/// Outcome of one part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Every query was answered.
    Answered,
    /// An answer was too long to be read.
    TooLong,
    /// A query failed or was out of time.
    Failed,
}

/// How queries are split, from one round to the next.
#[derive(Debug)]
pub(crate) struct Split {
    /// Pods asked for at once.
    most_pods: usize,
    /// An answer for all namespaces is too long: others than ours have series too.
    only_ours: bool,
    /// The parts of the round under way, in the order they are asked for.
    asked: Vec<Scope>,
    /// The namespace that the next round begins with, so that no part is always the one without time.
    first: Option<Box<str>>,
    /// Rounds since the last one without an answer for a part.
    whole: u32,
}

impl Default for Split {
    fn default() -> Self {
        Self { most_pods: MOST_PODS, only_ours: false, asked: Vec::new(), first: None, whole: 0 }
    }
}

impl Split {
    /// The parts of the next round; `pods` is how many pods each namespace is expected to have.
    pub(crate) fn next(&mut self, pods: &BTreeMap<String, usize>) -> Vec<Scope> {
        let all = pods.values().fold(0_usize, |sum, n| sum.saturating_add(*n));
        self.asked = if !self.only_ours && all <= self.most_pods {
            vec![Scope::All]
        } else {
            let mut parts = split(pods, self.most_pods);
            let reaches = |part: &Scope| part.names().and_then(<[_]>::last) >= self.first.as_ref();
            let first = parts.iter().position(reaches);
            parts.rotate_left(first.unwrap_or_default());
            parts
        };
        self.asked.clone()
    }

    /// Ends the round. Where an answer was too long the next round asks for less at once.
    pub(crate) fn ended(&mut self, fate: impl Fn(&Scope) -> Fate) {
        let fates: Vec<Fate> = self.asked.iter().map(fate).collect();
        // Not with the same part again, even if it failed: it might take all the time in every round.
        let next = (1..fates.len()).find(|i| fates[*i] == Fate::Failed).unwrap_or(1);
        self.first = self.asked.get(next).and_then(|part| part.names()?.first().cloned());
        let too_long = self.asked.iter().zip(&fates).filter(|(_, fate)| **fate == Fate::TooLong);
        match too_long.map(|(part, _)| part.names().map(<[_]>::len)).max() {
            Some(None) => self.only_ours = true,
            // Once for all parts. One namespace cannot be halved.
            Some(Some(2..)) => self.most_pods = (self.most_pods / 2).max(1),
            _ => {}
        }
        self.whole = if fates.iter().all(|fate| *fate == Fate::Answered) { self.whole + 1 } else { 0 };
        if self.whole >= TRY_AGAIN {
            self.whole = 0;
            self.most_pods = self.most_pods.saturating_mul(2).min(MOST_PODS);
        }
    }
}

/// Namespaces in order, as many at once as pods and text allow, and always at least one.
fn split(pods: &BTreeMap<String, usize>, most_pods: usize) -> Vec<Scope> {
    let mut parts: Vec<Vec<Box<str>>> = Vec::new();
    let (mut count, mut length) = (0_usize, 0_usize);
    for (namespace, own) in pods.iter().filter(|(name, _)| is_namespace(name)) {
        let fits = count.saturating_add(*own) <= most_pods && length + namespace.len() < LONGEST_MATCHER;
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

/// Whether this is a DNS label (RFC 1123), as every name of a namespace is. Nothing else gets into a query.
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
    fn twenty_namespaces_with_four_thousand_pods_are_asked_for_at_once() {
        assert_eq!(Split::default().next(&namespaces(20, 200)), [Scope::All]);
        assert_eq!(Scope::All.matcher(), "");
    }

    #[test]
    fn a_large_install_is_split_and_every_namespace_is_in_one_part() {
        for (pods, parts) in
            [(namespaces(20, 1001), 2), (namespaces(1500, 14), 2), (namespaces(3, 30_000), 3)]
        {
            let scopes = Split::default().next(&pods);
            assert_eq!(scopes.len(), parts);
            let all: Vec<&str> = scopes.iter().flat_map(names).collect();
            assert_eq!(all, pods.keys().map(String::as_str).collect::<Vec<_>>());
            for scope in &scopes {
                assert!(scope.matcher().len() <= LONGEST_MATCHER + 32, "{}", scope.matcher().len());
                assert!(scope.holds(names(scope)[0]) && !scope.holds("elsewhere"));
            }
        }
    }

    /// Which parts are asked for, by their first namespaces, in rounds in which these failed.
    fn rounds(pods: &BTreeMap<String, usize>, failed: &[&[&str]]) -> Vec<Vec<String>> {
        let mut split = Split::default();
        let round = |failed: &&[&str]| {
            let parts = split.next(pods);
            let lacks = |scope: &Scope| names(scope).iter().any(|name| failed.contains(name));
            split.ended(|scope| if lacks(scope) { Fate::Failed } else { Fate::Answered });
            parts.iter().map(|part| names(part)[0].trim_start_matches("team-000").to_owned()).collect()
        };
        failed.iter().map(round).collect()
    }

    #[test]
    fn a_round_begins_where_the_last_one_came_to_its_end() {
        let pods = namespaces(4, 30_000);
        let all = ["team-0000", "team-0001", "team-0002", "team-0003"];
        assert_eq!(
            rounds(&pods, &[&all[2..], &all[..2], &[], &[]]),
            [["0", "1", "2", "3"], ["2", "3", "0", "1"], ["0", "1", "2", "3"], ["1", "2", "3", "0"]]
        );
        // One that takes all the time there is does not always come first.
        assert_eq!(
            rounds(&pods, &[&all, &all[..1], &all[..1]])[1..],
            [["1", "2", "3", "0"], ["0", "1", "2", "3"]]
        );
    }

    /// A round in which every answer was too long, or none was.
    fn round(split: &mut Split, pods: &BTreeMap<String, usize>, fate: Fate) -> usize {
        let parts = split.next(pods).len();
        split.ended(|_| fate);
        parts
    }

    #[test]
    fn what_was_too_long_is_asked_for_in_smaller_parts() {
        let mut split = Split::default();
        let pods = namespaces(20, 200);
        // Others' series: ours alone are few.
        assert_eq!(round(&mut split, &pods, Fate::TooLong), 1);
        assert_eq!(split.next(&pods)[0].matcher().matches('|').count(), 19);
        let parts: Vec<usize> = (0..6).map(|_| round(&mut split, &pods, Fate::TooLong)).collect();
        assert_eq!(parts, [1, 1, 1, 2, 4, 7], "halved once a round, however many parts were too long");
        for _ in 0..20 {
            round(&mut split, &pods, Fate::TooLong);
        }
        assert_eq!(round(&mut split, &pods, Fate::Answered), 20, "never less than one namespace");
    }

    #[test]
    fn larger_parts_are_tried_again_after_many_whole_rounds() {
        let mut split = Split::default();
        let pods = namespaces(4, 10_000);
        assert_eq!(round(&mut split, &pods, Fate::TooLong), 2);
        assert_eq!(round(&mut split, &pods, Fate::Failed), 4);
        for _ in 0..TRY_AGAIN {
            assert_eq!(round(&mut split, &pods, Fate::Answered), 4);
        }
        for _ in 0..=TRY_AGAIN {
            assert_eq!(round(&mut split, &pods, Fate::Answered), 2, "and never larger than at first");
        }
    }

    #[test]
    fn only_names_of_namespaces_get_into_a_query() {
        let names = ["a", "a-1", "0", "", "-a", "a-", "A", "a.b", "a\"", "a|b"];
        let taken: Vec<&str> = names.into_iter().filter(|n| is_namespace(n)).collect();
        assert_eq!(taken, ["a", "a-1", "0"]);
        let pods = names.map(|n| (n.to_owned(), 10_000)).into();
        assert_eq!(Split::default().next(&pods).len(), 2);
        assert_eq!(Scope::one("prod").matcher(), "namespace=\"prod\"");
        assert_eq!(Scope::of(["b", "a\"", "a", "b"].into_iter()).matcher(), "namespace=~\"a|b\"");
        let many: Vec<String> = (0..1000).map(|i| format!("team-{i:04}")).collect();
        assert_eq!(Scope::of(many.iter().map(String::as_str)), Scope::All);
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let parts = Scope::parts(&many);
        assert_eq!((parts.len(), parts.iter().flat_map(self::names).collect::<Vec<_>>()), (2, many));
        assert_eq!(Scope::parts(&["a", "a\""]), [Scope::one("a")]);
    }
}
