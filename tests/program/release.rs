//! Release: version, revision and compiler of the program, and the notes from the changelog.

use std::process::{Command, Output};

/// `deploy/release-notes.sh VERSION` over a changelog of two versions, the older one empty.
fn release_notes(version: &str) -> Output {
    let root = env!("CARGO_MANIFEST_DIR");
    let changelog = format!("{root}/tests/fixtures/changelog.md");
    Command::new(format!("{root}/deploy/release-notes.sh")).args([version, &changelog]).output().unwrap()
}

#[test]
fn notes_hold_one_section_of_the_changelog() {
    let output = release_notes("1.2.0");
    assert!(output.status.success());
    assert_eq!(output.stdout, b"### Added\n\n- A.\n\n### Fixed\n\n- B.\n");
}

#[test]
fn notes_refuse_missing_and_empty_sections() {
    for version in ["1.2", "9.9.9", "1.1.0"] {
        let output = release_notes(version);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), b"".as_slice()), "{version}");
    }
}

#[test]
fn changelog_has_notes_for_this_version() {
    let root = env!("CARGO_MANIFEST_DIR");
    let script = format!("{root}/deploy/release-notes.sh");
    let output = Command::new(script).arg(env!("CARGO_PKG_VERSION")).current_dir(root).output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty());
}

/// A build from git reports its commit; one from a source archive reports `unknown`.
#[test]
fn version_names_revision_and_compiler() {
    let text = crate::run(&["--version"], "").stdout;
    let (revision, compiler) = text
        .trim_end()
        .strip_prefix(concat!("wva ", env!("CARGO_PKG_VERSION"), " (revision "))
        .and_then(|rest| rest.strip_suffix(')'))
        .and_then(|rest| rest.split_once(", rustc "))
        .unwrap_or_else(|| panic!("{text}"));
    assert_eq!(revision, env!("WVA_REVISION"));
    assert_eq!(compiler, env!("WVA_RUSTC"));
    assert!(compiler.starts_with("1."), "{compiler}");
    let root = env!("CARGO_MANIFEST_DIR");
    if std::path::Path::new(root).join(".git").exists() && std::env::var_os("WVA_REVISION").is_none() {
        let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root).output().unwrap();
        assert_eq!(revision, String::from_utf8(head.stdout).unwrap().trim());
    }
}

/// The chart refuses older versions, and tests run on the oldest.
#[test]
fn oldest_kubernetes_is_the_tested_one() {
    let oldest = wva_rules::OLDEST_KUBERNETES;
    let pin = include_str!("../testbed/tools/kubernetes-oldest/go.mod");
    assert!(pin.contains(&format!("\nrequire k8s.io/kubernetes v{oldest}.")), "{oldest} is not pinned");
    for (file, text) in [
        ("Chart.yaml", include_str!("../../charts/workload-variant-autoscaler/Chart.yaml")),
        ("README.md", include_str!("../../charts/workload-variant-autoscaler/README.md")),
        ("install.md", include_str!("../../docs/getting-started/install.md")),
        ("compatibility.md", include_str!("../../docs/reference/compatibility.md")),
    ] {
        let known = [
            format!("kubeVersion: \">={oldest}.0-0\""),
            format!("{oldest} or later"),
            format!("{oldest} and later"),
        ];
        assert!(known.iter().any(|sentence| text.contains(sentence)), "{file} does not name {oldest}");
    }
}
