//! Fuzz targets on stable Rust: on their seeds, on mutated seeds, and on inputs of former faults. `make fuzz` runs the
//! same functions for longer, guided by coverage.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, and the targets themselves")]

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "a crate of its own for the fuzzer")]
mod targets;

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

/// Time limit of an input of a seed's size. A normal one takes far less than a millisecond.
const SLOW: Duration = Duration::from_secs(1);

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    files.iter().map(|f| std::fs::read(f).unwrap()).collect()
}

fn run(name: &str, target: targets::Run, bytes: &[u8]) {
    let start = Instant::now();
    target(bytes);
    let took = start.elapsed();
    assert!(took < SLOW, "{name} took {took:?} for {:?}", String::from_utf8_lossy(bytes));
}

#[test]
fn targets_pass_on_seeds_and_mutations() {
    for (name, target) in targets::TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in &seeds {
            run(name, target, seed);
        }
        let piece = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..8),
            "[ -~\n]{0,12}".prop_map(String::into_bytes),
            prop::sample::select(vec![
                "\0", "\u{1}", "{", "[", "&a ", "*a", "<<: ", "1e999", "-", "\"", "null", ": "
            ])
            .prop_map(|s| s.as_bytes().to_vec()),
        ];
        let change = (any::<Index>(), any::<Index>(), piece);
        let strategy = (prop::sample::select(seeds), prop::collection::vec(change, 0..6));
        let result = TestRunner::default().run(&strategy, |(mut bytes, changes)| {
            for (at, length, piece) in changes {
                let at = at.index(bytes.len() + 1);
                let end = at + length.index((bytes.len() - at).min(8) + 1);
                bytes.splice(at..end, piece);
            }
            run(name, target, &bytes);
            Ok(())
        });
        assert!(result.is_ok(), "{name}: {}", result.unwrap_err());
    }
}

#[test]
fn targets_pass_on_inputs_of_former_faults() {
    let signs = "-".repeat(1 << 20);
    for (name, bytes) in [
        ("units", signs.clone()),
        ("settings", format!("GLOBAL_OPT_INTERVAL={signs}")),
        ("config_map", format!("\u{3}GLOBAL_OPT_INTERVAL\0{signs}")),
    ] {
        let (_, target) = targets::TARGETS.into_iter().find(|(n, _)| *n == name).unwrap();
        target(bytes.as_bytes());
    }
}
