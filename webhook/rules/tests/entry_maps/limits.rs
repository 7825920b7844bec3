//! Reviews of maps that are too long, and reviews that were cancelled.

use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn a_map_that_is_too_long_is_refused_unread() {
    let entries: Vec<(String, String)> =
        (0..60_000).map(|i| (format!("m{i:05}"), "unreadable".to_owned())).collect();
    let refused = |n: usize| {
        let object = map(&entries[..n]);
        let denied = validate_map(&map_facts(&object, SATURATION));
        denied.denials().map(|v| (v.field.clone(), v.message.clone())).collect::<Vec<_>>()
    };
    let message = "cannot read the entry: the map has 60000, and at most 10000 are read; delete those that repeat the \
                   default entry";
    assert_eq!(refused(60_000), [("data".to_owned(), message.to_owned())]);
    assert!(refused(10_000).iter().all(|(field, _)| field != "data"), "its entries are judged");
}

#[test]
fn a_cancelled_review_parses_no_entry() {
    let object = map(&[("a", "kvCacheThreshold: x")]);
    let cancelled = AtomicBool::new(true);
    let mut facts = map_facts(&object, SATURATION);
    facts.cancelled = Some(&cancelled);
    assert!(validate_map(&facts).violations.is_empty());
}
