//! Every scenario in the repository, attacks and recorded traffic included, is valid and runs: its first twelve minutes
//! under each of its policies.

#![expect(clippy::unwrap_used, reason = "a test's own input")]

use std::fs::File;
use std::path::{Path, PathBuf};

use wva_simulator::scenario::{Spec, parse_tree};
use wva_simulator::study::run_study;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let within = |folder: &Path| std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path());
    let all = ["", "attacks", "traces"].map(|part| within(&folder.join(part))).into_iter().flatten();
    all.filter(|f| f.extension().is_some_and(|e| e == "yaml")).collect()
}

#[test]
fn every_scenario_runs() {
    let files = files();
    assert!(files.len() >= 31, "{files:?}");
    for file in files {
        let mut tree = parse_tree(&std::fs::read_to_string(&file).unwrap()).unwrap();
        tree["duration"] = "12m".into();
        let scenario = Spec::read(&tree).and_then(|spec| spec.build(spec.read_trace(&file, File::open)?));
        let scenario = scenario.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for study in run_study(&scenario, 1, |_| {}) {
            assert!(study.first.arrived() > 0, "{}: {}", file.display(), study.policy);
            assert!(study.first.cost > 0.0, "{}: {}", file.display(), study.policy);
        }
    }
}
