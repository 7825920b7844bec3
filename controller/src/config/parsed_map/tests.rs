//! Tests of invalid entries, their messages, and last valid values.

use wva_crds::entries::SaturationEntry;

use super::*;
use crate::config::testing::map;

type SaturationMap = ParsedMap<SaturationEntry>;

fn parse(place: MapScope, entries: &[(&str, &str)], before: Option<&SaturationMap>) -> SaturationMap {
    ParsedMap::parse(&map("prod/m", entries), place, before)
}

/// `queueSpareTrigger` of each entry.
fn queues(map: &SaturationMap) -> Vec<(&str, f64)> {
    let queue = |e: &SaturationEntry| e.queue_spare_trigger.map_or(f64::NAN, f64::from);
    map.entries.iter().map(|keyed| (&*keyed.key, queue(&keyed.entry))).collect()
}

#[test]
fn skips_invalid_entries_with_the_reason() {
    use MapScope::{Global, Local};
    let boundaries = "model_id: m\nscaleUpThreshold: 0.5\nscaleDownBoundary: 0.5";
    for (place, key, text, want) in [
        (Global, "a", "model_id: m\nkvCacheThreshold: 0.9", None),
        (Global, "a", "model_id: m\nnamespace: elsewhere", None),
        (Local, "a", "model_id: m\nnamespace: prod", None),
        (Global, "default", "", None),
        (
            Global,
            "a",
            "model_id: m\nkvCacheThreshold: 2",
            Some("kvCacheThreshold: 2 (a number) is not valid; use a"),
        ),
        (Global, "a", "model_id: m\nkvThreshold: 1", Some("kvThreshold: unknown field; known fields are ")),
        (Global, "a", "model_id: [", Some("cannot read the entry: invalid YAML; ")),
        (Global, "a", "kvCacheThreshold: 0.9", Some("model_id is missing")),
        (Global, "a", "- 1", Some("cannot read the entry: a list of 1; use fields and values")),
        (
            Local,
            "a",
            "model_id: m\nnamespace: elsewhere",
            Some("\"elsewhere\" is not the namespace of the map"),
        ),
        (Global, "default", "kvSpareTrigger: 0.9", Some("kvSpareTrigger 0.9 is above kvCacheThreshold 0.8")),
        // These conflict only with inherited values, which are checked later.
        (Local, "default", "kvSpareTrigger: 0.9", None),
        (Global, "a", "model_id: m\nkvSpareTrigger: 0.9", None),
        (Local, "default", "kvSpareTrigger: 0.9\nkvCacheThreshold: 0.5", Some("is above")),
        (Global, "a", boundaries, None),
        (Global, "a", &format!("analyzerName: saturation\n{boundaries}"), Some("is not above")),
    ] {
        let map = parse(place, &[(key, text), ("z", "model_id: z\nqueueSpareTrigger: 4")], None);
        assert!(queues(&map).contains(&("z", 4.0)), "{text}: the rest is lost");
        let problems: Vec<&str> = map.invalid.iter().map(|entry| entry.problem.as_str()).collect();
        match want {
            None => assert_eq!((problems, map.entries.len()), (vec![], 2), "{place:?} {text}"),
            Some(want) => {
                assert!(problems.len() == 1 && problems[0].contains(want), "{place:?} {text}: {problems:?}");
                assert_eq!(map.entries.len(), 1, "{place:?} {text}");
            }
        }
    }
}

#[test]
fn last_valid_value_lasts_until_the_entry_or_map_is_deleted() {
    let (good, bad) = ("queueSpareTrigger: 4", "queueSpareTrigger: -4");
    let other = ("x", "model_id: x\nqueueSpareTrigger: 5");
    let first = parse(MapScope::Global, &[("default", good), other], None);
    let second = parse(MapScope::Global, &[("default", bad), other], Some(&first));
    assert_eq!(queues(&second), [("default", 4.0), ("x", 5.0)]);
    assert!(second.invalid[0].has_last_valid && second.lost_default().is_none());
    // It survives further changes of the map.
    let third = parse(MapScope::Global, &[("default", "{"), ("x", bad)], Some(&second));
    assert_eq!(queues(&third), [("default", 4.0), ("x", 5.0)], "including the last valid one for its model");
    assert_eq!(third.layers("prod", "x").count(), 2);
    let without = parse(MapScope::Global, &[("x", bad)], Some(&third));
    assert_eq!(queues(&without), [("x", 5.0)]);
    let back = parse(MapScope::Global, &[("default", bad)], Some(&without));
    assert_eq!((queues(&back), back.invalid[0].has_last_valid), (vec![], false), "it was deleted in between");
    assert!(back.lost_default().is_some());
    let mut recreated = map("prod/m", &[("default", bad)]);
    recreated.metadata.uid = Some("another".to_owned());
    let parsed = ParsedMap::parse(&recreated, MapScope::Global, Some(&first));
    assert_eq!(queues(&parsed), [], "another map of this name");
}

#[test]
fn first_of_two_entries_for_a_model_counts() {
    let entries = |first: &'static str, second: &'static str| [("a", first), ("b", second)];
    let check = |place, entries: &[(&str, &str)], keys: &[&str], invalid: usize| {
        let map = parse(place, entries, None);
        let layers: Vec<&str> = map.layers("prod", "m").map(|keyed| &*keyed.key).collect();
        assert_eq!((&*layers, map.invalid.len()), (keys, invalid), "{place:?} {entries:?}");
        assert!(map.invalid.iter().all(|entry| entry.problem.contains("already has the entry a")));
    };
    check(MapScope::Global, &entries("model_id: m", "model_id: m"), &["a"], 1);
    check(MapScope::Global, &entries("model_id: m", "model_id: m\nnamespace: prod"), &["a", "b"], 0);
    check(MapScope::Global, &entries("model_id: m\nnamespace: prod", "model_id: m"), &["b", "a"], 0);
    check(MapScope::Global, &entries("model_id: m", "model_id: m\nnamespace: other"), &["a"], 0);
    // In a local map the own namespace makes no difference.
    check(MapScope::Local, &entries("model_id: m", "model_id: m\nnamespace: prod"), &["a"], 1);
}

#[test]
fn limits_the_reported_faults() {
    let fields: Vec<String> = (0..1_000).map(|i| format!("f{i}: 1")).collect();
    let one = parse(MapScope::Global, &[("default", &fields.join("\n"))], None);
    let problem = &one.invalid[0].problem;
    assert!(problem.len() < 3_000 && problem.ends_with("and 995 more"), "{problem}");

    let keys: Vec<String> = (0..1_000).map(|i| format!("a{i}")).collect();
    let mut entries: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "x: y")).collect();
    entries.push(("default", "kvCacheThreshold: 2"));
    let many = parse(MapScope::Global, &entries, None);
    assert_eq!((many.invalid.len(), many.more_invalid), (MAX_INVALID + 1, 1_000 - MAX_INVALID));
    assert!(many.lost_default().is_some(), "default is always stored");
}

#[test]
fn limits_the_entries_that_are_read() {
    let keys: Vec<String> = (0..MAX_ENTRIES + 5).map(|i| format!("a{i:06}")).collect();
    let mut entries: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "{model_id: m}")).collect();
    entries.push(("default", "queueSpareTrigger: 4"));
    let first = parse(MapScope::Global, &entries, None);
    assert_eq!(first.entries.len(), MAX_ENTRIES + 1);
    assert!(first.default_entry().is_some());
    // All but the first are duplicates; the last five were not read.
    assert_eq!(first.invalid.len() + first.more_invalid, MAX_ENTRIES - 1 + 5);
    // An entry that moves beyond the limit has no last valid value either.
    entries.insert(0, ("a", "{model_id: m}"));
    assert_eq!(parse(MapScope::Global, &entries, Some(&first)).entries.len(), MAX_ENTRIES + 1);
}

#[test]
fn binary_data_keeps_the_last_valid_value() {
    let before = parse(MapScope::Global, &[("a", "model_id: a\nqueueSpareTrigger: 4")], None);
    let mut moved = map("prod/m", &[("z", "model_id: z\nqueueSpareTrigger: 2")]);
    moved.binary_data = Some([("a".to_owned(), k8s_openapi::ByteString(vec![0xff]))].into());
    let after = ParsedMap::parse(&moved, MapScope::Global, Some(&before));
    assert_eq!(queues(&after), [("a", 4.0), ("z", 2.0)]);
    let [invalid] = &after.invalid[..] else { panic!("{:?}", after.invalid) };
    assert!(invalid.has_last_valid && invalid.problem.contains("binaryData"), "{invalid:?}");
}
