//! Tests of scopes and their matchers.

use super::*;

fn namespaces(n: usize, pods: usize) -> BTreeMap<String, usize> {
    (0..n).map(|i| (format!("team-{i:04}"), pods)).collect()
}

#[test]
fn several_queries_cover_each_namespace_once() {
    for (pods, parts) in [
        (namespaces(20, 200), 1),
        (namespaces(100, 10), 1),
        (namespaces(20, 1001), 2),
        (namespaces(1500, 14), 2),
        (namespaces(3, 30_000), 3),
    ] {
        let scopes = Scope::for_pods(&pods, PER_POD);
        assert_eq!(scopes.len(), parts);
        let all: Vec<&str> = scopes.iter().flat_map(Scope::names).collect();
        assert_eq!(all, pods.keys().map(String::as_str).collect::<Vec<_>>());
        for scope in &scopes {
            assert!(scope.matcher().len() <= LONGEST_MATCHER + 32, "{}", scope.matcher().len());
            assert!(scope.names().all(|name| scope.contains(name)) && !scope.contains("elsewhere"));
        }
    }
    assert_eq!(Scope::for_pods(&namespaces(2, 10_000), 30).len(), 2, "ten times the series");
}

#[test]
fn only_valid_namespace_names_get_into_a_query() {
    let names = ["a", "a-1", "0", "", "-a", "a-", "A", "a.b", "a\"", "a|b"];
    let taken: Vec<&str> = names.into_iter().filter(|n| is_namespace(n)).collect();
    assert_eq!(taken, ["a", "a-1", "0"]);
    assert_eq!(Scope::split(names), [Scope::new(["0", "a", "a-1"])]);
    assert_eq!(Scope::one("prod").matcher(), "namespace=\"prod\"");
    assert_eq!(Scope::new(["b", "a\"", "a", "b"]).matcher(), "namespace=~\"a|b\"");
    assert_eq!(Scope::split([]), [], "never a query for all namespaces");
}
