//! The words for what changed, and what is counted.

use std::sync::Arc;

use prometheus::{Encoder, Registry, TextEncoder};
use wva_crds::entries::SaturationEntry;
use wva_rules::Place;

use super::*;
use crate::config::testing::map;

fn read(entries: &[(&str, &str)]) -> ReadMap<SaturationEntry> {
    ReadMap::read(&map("wva/m", entries), Place::Global, None)
}

#[track_caller]
fn check(before: &[(&str, &str)], after: &[(&str, &str)], want: &[&str]) {
    let (before, after) = (read(before), read(after));
    assert_eq!(changes(&before.entries, &after.entries), want);
}

#[test]
fn each_changed_field_is_told_with_both_values() {
    let both = "kvCacheThreshold: 0.8\nkvSpareTrigger: 0.1";
    check(&[("default", both)], &[("default", both)], &[]);
    check(
        &[("default", both)],
        &[("default", "kvCacheThreshold: 0.7\nanalyzerName: saturation")],
        &[
            "default.kvCacheThreshold: 0.8 -> 0.7",
            "default.kvSpareTrigger: 0.1 -> unset",
            "default.analyzerName: unset -> \"saturation\"",
        ],
    );
    check(&[], &[("x", "model_id: m")], &["x.model_id: unset -> \"m\""]);
    check(&[], &[("default", "")], &["default: added, and says nothing"]);
    check(&[("x", "model_id: m"), ("default", both)], &[("default", both)], &["x: removed"]);
    let many: Vec<String> = (0..30).map(|i| format!("e{i}: removed")).collect();
    let told = shortened(many);
    assert!(told.contains("e19") && !told.contains("e20") && told.ends_with("and 10 more"), "{told}");
}

#[test]
fn a_map_counts_when_it_comes_changes_and_goes() {
    let registry = Registry::new();
    let reloads = ConfigReloads::register(&registry).unwrap();
    let counted = || {
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        ["ok", "invalid"].map(|result| {
            let line = format!("wva_config_reloads_total{{config=\"saturation\",result=\"{result}\"}} ");
            text.lines().find_map(|l| l.strip_prefix(&line)?.parse::<u64>().ok()).unwrap()
        })
    };
    let in_force = |map: Option<&Arc<ReadMap<_>>>| InForce { global: map.cloned(), ..InForce::default() };
    let good = Arc::new(read(&[("default", "kvSpareTrigger: 0.2")]));
    let bad = Arc::new(read(&[("default", "kvSpareTrigger: 7")]));
    let mut last = in_force(None);
    for (map, want) in
        [(None, [0, 0]), (Some(&good), [1, 0]), (Some(&good), [1, 0]), (Some(&bad), [1, 1]), (None, [2, 1])]
    {
        let next = in_force(map);
        tell(Config::Saturation, &last, &next, &reloads);
        assert_eq!(counted(), want);
        last = next;
    }
}
