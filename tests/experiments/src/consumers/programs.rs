//! Starts programs of other projects, and applies their CRDs and roles.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use wva_testbed::{Process, Testbed, Tools};

/// Starts a program that is built on request; its name is also its log's name.
pub(super) async fn start<A: AsRef<str>>(
    testbed: &Testbed,
    name: &'static str,
    args: &[A],
    env: &[(&str, &str)],
) -> anyhow::Result<Process> {
    let program = tokio::task::spawn_blocking(move || Tools::on_request(name)).await??;
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    Process::spawn(name, &program, &args, env, &testbed.logs().join(format!("{name}.log")))
}

/// Folder of a Go module that a tool requires.
pub(super) async fn module(tool: &'static str, module: &'static str) -> anyhow::Result<PathBuf> {
    tokio::task::spawn_blocking(move || Tools::module(tool, module)).await?
}

/// Server-side apply of unchanged files: some CRDs are too large for the annotation of a client-side apply.
pub(super) async fn apply(testbed: &Testbed, files: &[PathBuf]) -> anyhow::Result<()> {
    let mut args = vec!["apply".to_owned(), "--server-side".to_owned()];
    args.extend(files.iter().map(|file| format!("--filename={}", file.display())));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    testbed.kubectl(&args).await?.success().map(drop)
}

/// Waits until the API server serves every CRD.
pub(super) async fn established(testbed: &Testbed) -> anyhow::Result<()> {
    let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"];
    testbed.kubectl(&wait).await?.success().map(drop)
}

/// YAML files of a folder, in order.
pub(super) fn yaml_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "{} has no YAML files", folder.display());
    files.sort();
    Ok(files)
}

/// Seconds with one decimal.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
