//! Generated snapshot files for `make compare-decisions`.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::generate::any_case;

/// Prints one snapshot per line, the same in every run.
#[test]
#[ignore = "prints the input of tests/compare-decisions.sh"]
fn print_snapshots() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..1000 {
        let case = any_case().new_tree(&mut runner).unwrap().current();
        println!("{}", serde_json::to_string(&case.0).unwrap());
    }
}
