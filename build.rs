//! Sets the revision and compiler for `wva --version` and `wva_build_info`. `WVA_REVISION` sets the revision in builds
//! without git, such as an image or a source archive. Otherwise it is `unknown`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WVA_REVISION");
    let from_environment = std::env::var("WVA_REVISION").ok().filter(|revision| !revision.is_empty());
    let revision = from_environment.or_else(git_revision).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=WVA_REVISION={revision}");
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = output(&compiler, &["--version"]);
    let version = version.as_deref().and_then(|text| text.split_whitespace().nth(1)).unwrap_or("unknown");
    println!("cargo::rustc-env=WVA_RUSTC={version}");
}

/// The checked-out commit; `None` for a source archive inside another repository.
fn git_revision() -> Option<String> {
    let prefix = output("git", &["rev-parse", "--show-prefix"])?;
    if !prefix.is_empty() {
        return None;
    }
    // This file changes with every commit and checkout. Cargo reruns the script on each build if a named file is missing.
    let log = output("git", &["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    output("git", &["rev-parse", "HEAD"])
}

/// Standard output of a successful command.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
