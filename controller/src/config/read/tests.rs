//! What is skipped of a map and with which words, and how long a last good value holds.

use wva_crds::entries::SaturationEntry;

use super::*;
use crate::config::testing::map;

type Saturations = ReadMap<SaturationEntry>;

fn read(place: Place, entries: &[(&str, &str)], before: Option<&Saturations>) -> Saturations {
    ReadMap::read(&map("prod/m", entries), place, before)
}

/// The spare queue that each entry of a map asks for.
fn queues(read: &Saturations) -> Vec<(&str, f64)> {
    let queue = |e: &SaturationEntry| e.queue_spare_trigger.map_or(f64::NAN, f64::from);
    read.entries.iter().map(|keyed| (&*keyed.key, queue(&keyed.entry))).collect()
}

#[test]
fn what_cannot_be_used_is_skipped_with_the_reason_and_the_rest_holds() {
    use Place::{Global, Local};
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
            Some("kvCacheThreshold: found 2 (a number): write a"),
        ),
        (Global, "a", "model_id: m\nkvThreshold: 1", Some("kvThreshold: there is no such field: known are ")),
        (Global, "a", "model_id: [", Some("found no YAML: ")),
        (Global, "a", "kvCacheThreshold: 0.9", Some("it names no model")),
        (Global, "a", "- 1", Some("found a list of 1: write fields and values")),
        (Local, "a", "model_id: m\nnamespace: elsewhere", Some("\"elsewhere\" is not the one")),
        (Global, "default", "kvSpareTrigger: 0.9", Some("kvSpareTrigger 0.9 is above kvCacheThreshold 0.8")),
        // These conflict with what they inherit alone, which others may know better.
        (Local, "default", "kvSpareTrigger: 0.9", None),
        (Global, "a", "model_id: m\nkvSpareTrigger: 0.9", None),
        (Local, "default", "kvSpareTrigger: 0.9\nkvCacheThreshold: 0.5", Some("is above")),
        (Global, "a", boundaries, None),
        (Global, "a", &format!("analyzerName: saturation\n{boundaries}"), Some("is not above")),
    ] {
        let read = read(place, &[(key, text), ("z", "model_id: z\nqueueSpareTrigger: 4")], None);
        assert!(queues(&read).contains(&("z", 4.0)), "{text}: the rest is lost");
        let wrong: Vec<&str> = read.wrong.iter().map(|wrong| wrong.problem.as_str()).collect();
        match want {
            None => assert_eq!((wrong, read.entries.len()), (vec![], 2), "{place:?} {text}"),
            Some(want) => {
                assert!(wrong.len() == 1 && wrong[0].contains(want), "{place:?} {text}: {wrong:?}");
                assert_eq!(read.entries.len(), 1, "{place:?} {text}");
            }
        }
    }
}

#[test]
fn the_last_good_value_of_an_entry_stays_until_the_entry_or_its_map_goes() {
    let (good, bad) = ("queueSpareTrigger: 4", "queueSpareTrigger: -4");
    let other = ("x", "model_id: x\nqueueSpareTrigger: 5");
    let first = read(Place::Global, &[("default", good), other], None);
    let second = read(Place::Global, &[("default", bad), other], Some(&first));
    assert_eq!(queues(&second), [("default", 4.0), ("x", 5.0)]);
    assert!(second.wrong[0].kept && second.default_lost().is_none());
    // However often it is read again, and whatever else changes.
    let third = read(Place::Global, &[("default", "{"), ("x", bad)], Some(&second));
    assert_eq!(queues(&third), [("default", 4.0), ("x", 5.0)], "the last good one for its model, too");
    assert_eq!(third.layers("prod", "x").count(), 2);
    let without = read(Place::Global, &[("x", bad)], Some(&third));
    assert_eq!(queues(&without), [("x", 5.0)]);
    let back = read(Place::Global, &[("default", bad)], Some(&without));
    assert_eq!((queues(&back), back.wrong[0].kept), (vec![], false), "it was taken out in between");
    assert!(back.default_lost().is_some());
    let mut anew = map("prod/m", &[("default", bad)]);
    anew.metadata.uid = Some("another".to_owned());
    assert_eq!(queues(&ReadMap::read(&anew, Place::Global, Some(&first))), [], "another map of this name");
}

#[test]
fn of_two_entries_for_one_model_the_first_by_key_counts_and_the_other_is_told() {
    let entries = |first: &'static str, second: &'static str| [("a", first), ("b", second)];
    let check = |place, entries: &[(&str, &str)], counts: &[&str], told: usize| {
        let read = read(place, entries, None);
        let layers: Vec<&str> = read.layers("prod", "m").map(|keyed| &*keyed.key).collect();
        assert_eq!((&*layers, read.wrong.len()), (counts, told), "{place:?} {entries:?}");
        assert!(read.wrong.iter().all(|wrong| wrong.problem.contains("as the entry a is")));
    };
    check(Place::Global, &entries("model_id: m", "model_id: m"), &["a"], 1);
    check(Place::Global, &entries("model_id: m", "model_id: m\nnamespace: prod"), &["a", "b"], 0);
    check(Place::Global, &entries("model_id: m\nnamespace: prod", "model_id: m"), &["b", "a"], 0);
    check(Place::Global, &entries("model_id: m", "model_id: m\nnamespace: other"), &["a"], 0);
    // In a namespace's own map its name changes nothing.
    check(Place::Local, &entries("model_id: m", "model_id: m\nnamespace: prod"), &["a"], 1);
}

#[test]
fn a_heap_of_faults_is_told_in_few_words() {
    let fields: Vec<String> = (0..1_000).map(|i| format!("f{i}: 1")).collect();
    let one = read(Place::Global, &[("default", &fields.join("\n"))], None);
    let problem = &one.wrong[0].problem;
    assert!(problem.len() < 3_000 && problem.ends_with("and 995 more"), "{problem}");

    let keys: Vec<String> = (0..1_000).map(|i| format!("a{i}")).collect();
    let mut entries: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "x: y")).collect();
    entries.push(("default", "kvCacheThreshold: 2"));
    let many = read(Place::Global, &entries, None);
    assert_eq!((many.wrong.len(), many.more_wrong), (MOST_WRONG + 1, 1_000 - MOST_WRONG));
    assert!(many.default_lost().is_some(), "that of default is named whatever stands before it");
}

#[test]
fn of_a_map_without_end_so_many_entries_are_read_and_default() {
    let keys: Vec<String> = (0..MOST_KEYS + 5).map(|i| format!("a{i:06}")).collect();
    let mut entries: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "{model_id: m}")).collect();
    entries.push(("default", "queueSpareTrigger: 4"));
    let first = read(Place::Global, &entries, None);
    assert_eq!(first.entries.len(), MOST_KEYS + 1);
    assert!(first.default_entry().is_some());
    // All but the first are for the same model; the last five were not even looked at.
    assert_eq!(first.wrong.len() + first.more_wrong, MOST_KEYS - 1 + 5);
    // What moves beyond the end has no last good value either.
    entries.insert(0, ("a", "{model_id: m}"));
    assert_eq!(read(Place::Global, &entries, Some(&first)).entries.len(), MOST_KEYS + 1);
}
