//! Generated snapshots as files would hold them, for `make compare-decisions`.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::generate::any_case;

/// One snapshot a line, always the same ones.
#[test]
#[ignore = "prints what tests/compare-decisions.sh reads, and checks nothing"]
fn print_snapshots() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..1000 {
        let case = any_case().new_tree(&mut runner).unwrap().current();
        println!("{}", serde_json::to_string(&case.0).unwrap());
    }
}
