//! Tests of the logged changes and of the counter.

use std::sync::Arc;

use prometheus::{Encoder, Registry, TextEncoder};
use wva_crds::entries::SaturationEntry;
use wva_rules::MapScope;

use super::*;
use crate::config::testing::map;

fn parse(entries: &[(&str, &str)]) -> ParsedMap<SaturationEntry> {
    ParsedMap::parse(&map("wva/m", entries), MapScope::Global, None)
}

#[track_caller]
fn check(before: &[(&str, &str)], after: &[(&str, &str)], want: &[&str]) {
    let (before, after) = (parse(before), parse(after));
    assert_eq!(changes(&before.entries, &after.entries), want);
}

#[test]
fn logs_old_and_new_value_of_each_changed_field() {
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
    check(&[], &[("default", "")], &["default: added without fields"]);
    check(&[("x", "model_id: m"), ("default", both)], &[("default", both)], &["x: removed"]);
    let many: Vec<String> = (0..30).map(|i| format!("e{i}: removed")).collect();
    let text = join_changes(many);
    assert!(text.contains("e19") && !text.contains("e20") && text.ends_with("and 10 more"), "{text}");
}

#[test]
fn counts_loads_changes_and_removals_of_a_map() {
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
    let effective =
        |map: Option<&Arc<ParsedMap<_>>>| EffectiveMaps { global: map.cloned(), ..EffectiveMaps::default() };
    let good = Arc::new(parse(&[("default", "kvSpareTrigger: 0.2")]));
    let bad = Arc::new(parse(&[("default", "kvSpareTrigger: 7")]));
    let mut last = effective(None);
    for (map, want) in
        [(None, [0, 0]), (Some(&good), [1, 0]), (Some(&good), [1, 0]), (Some(&bad), [1, 1]), (None, [2, 1])]
    {
        let next = effective(map);
        log_changes(MapRole::Saturation, &last, &next, &reloads);
        assert_eq!(counted(), want);
        last = next;
    }
}
