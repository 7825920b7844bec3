//! Tests of the splitter: rounds against a Prometheus in which some namespaces fail.

use super::*;

fn namespaces(n: usize) -> BTreeMap<String, usize> {
    (0..n).map(|i| (format!("team-{i:04}"), 10)).collect()
}

/// One round. `fails` gives the outcome of a query for a scope.
fn round(
    split: &mut ScopeSplitter,
    pods: &BTreeMap<String, usize>,
    fails: impl Fn(&Scope) -> QueryOutcome,
) -> Vec<Scope> {
    let scopes = split.next_round(pods);
    let has_answers = scopes.iter().any(|scope| fails(scope) == QueryOutcome::Answered);
    split.finish_round(has_answers, fails);
    scopes
}

/// Queries with one of these namespaces end like this.
fn failing(names: &[&str], how: QueryOutcome) -> impl Fn(&Scope) -> QueryOutcome {
    move |scope| if names.iter().any(|name| scope.contains(name)) { how } else { QueryOutcome::Answered }
}

fn answered(scopes: &[Scope], fails: impl Fn(&Scope) -> QueryOutcome) -> usize {
    let answered = scopes.iter().filter(|scope| fails(scope) == QueryOutcome::Answered);
    answered.map(|scope| scope.names().count()).sum()
}

#[test]
fn one_failing_namespace_is_found_in_five_rounds() {
    for how in [QueryOutcome::TimedOut, QueryOutcome::Refused] {
        let (mut split, pods) = (ScopeSplitter::default(), namespaces(1000));
        let fails = failing(&["team-0700"], how);
        let rounds: Vec<Vec<Scope>> = (0..40).map(|_| round(&mut split, &pods, &fails)).collect();
        let with_answer: Vec<usize> = rounds.iter().map(|scopes| answered(scopes, &fails)).collect();
        // Their names make two scopes, of which one fails as a whole.
        assert_eq!(with_answer[..4], [181, 897, 987, 998], "{how:?}");
        assert!(with_answer[4..].iter().all(|n| *n == 999), "{with_answer:?}");
        let tried: Vec<usize> =
            (5..40).filter(|i| rounds[*i].iter().any(|scope| scope.contains("team-0700"))).collect();
        assert!(tried.len() <= 5, "tried again after longer and longer pauses: {tried:?}");
        // It is queried last, so that its timeouts delay no other query.
        assert!(tried.iter().all(|i| rounds[*i].last().is_some_and(|last| last.contains("team-0700"))));
        // Two scopes by the length of their names, and one of its own.
        assert!(rounds[5..].iter().all(|scopes| scopes.len() <= 3), "{:?}", rounds[39].len());
    }
}

#[test]
fn many_failing_namespaces_are_all_found() {
    let (mut split, pods) = (ScopeSplitter::default(), namespaces(200));
    let bad = ["team-0000", "team-0001", "team-0050", "team-0120", "team-0199"];
    let fails = failing(&bad, QueryOutcome::TimedOut);
    let rounds: Vec<Vec<Scope>> = (0..12).map(|_| round(&mut split, &pods, &fails)).collect();
    assert_eq!(answered(&rounds[11], &fails), 195);
}

#[test]
fn an_outage_splits_nothing_for_long() {
    let (mut split, pods) = (ScopeSplitter::default(), namespaces(100));
    let scopes: Vec<usize> =
        (0..60).map(|_| round(&mut split, &pods, |_| QueryOutcome::TimedOut).len()).collect();
    assert_eq!(scopes[..3], [1, 8, 1], "one try");
    assert!(scopes.iter().filter(|n| **n > 1).count() <= 3, "{scopes:?}");
    assert_eq!(round(&mut split, &pods, |_| QueryOutcome::Answered).len(), 1);
    // A refused connection has nothing to do with the namespaces.
    let (mut split, pods) = (ScopeSplitter::default(), namespaces(100));
    for _ in 0..10 {
        assert_eq!(round(&mut split, &pods, |_| QueryOutcome::Failed).len(), 1);
    }
}

#[test]
fn answers_that_are_too_long_together_stay_apart_for_an_hour() {
    let (mut split, pods) = (ScopeSplitter::default(), namespaces(100));
    let too_long = |scope: &Scope| {
        if scope.names().count() > 60 { QueryOutcome::Refused } else { QueryOutcome::Answered }
    };
    let scopes: Vec<usize> = (0..300).map(|_| round(&mut split, &pods, too_long).len()).collect();
    assert_eq!(scopes[..2], [1, 8]);
    let failed = scopes.iter().filter(|n| **n == 1).count();
    assert!((2..=4).contains(&failed), "{failed} rounds of 300 were one scope");
}

#[test]
fn a_namespace_joins_the_others_once_it_answers() {
    let (mut split, pods) = (ScopeSplitter::default(), namespaces(8));
    let fails = failing(&["team-0003"], QueryOutcome::Refused);
    for _ in 0..3 {
        round(&mut split, &pods, &fails);
    }
    let rounds = 3 + LONGEST_PAUSE + RETRY_AFTER;
    let scopes: Vec<usize> =
        (0..rounds).map(|_| round(&mut split, &pods, |_| QueryOutcome::Answered).len()).collect();
    assert!(scopes.contains(&2) && scopes.last() == Some(&1), "{scopes:?}");
    // Nothing is kept of a namespace that is gone.
    round(&mut split, &pods, &fails);
    round(&mut split, &pods, &fails);
    assert!(!split.part_of.is_empty());
    round(&mut split, &BTreeMap::new(), &fails);
    assert!(split.part_of.is_empty() && split.parts.is_empty());
}

#[test]
fn the_first_scope_changes_from_round_to_round() {
    let (mut split, pods) = (ScopeSplitter::default(), namespaces(3));
    let pods = pods.into_keys().map(|name| (name, MAX_PODS)).collect();
    let first: BTreeSet<Scope> =
        (0..3).map(|_| round(&mut split, &pods, |_| QueryOutcome::Failed).remove(0)).collect();
    assert_eq!(first.len(), 3);
}
