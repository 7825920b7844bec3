//! Upgrade from the chart of an earlier commit, `PREVIOUS`, as its users do it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::site::{MODEL, MODELS, NO_PROMETHEUS, Site, VARIANT};
use super::{Extent, Table};
use wva_testbed::install::{RELEASE, SYSTEM};
use wva_testbed::{Helm, eventually};

/// Longest wait for a cycle of the default interval.
const CYCLES: Duration = Duration::from_mins(5);
const CHART: &str = "charts/workload-variant-autoscaler";

pub(crate) async fn run(site: &Site, extent: Extent, table: &mut Table) -> anyhow::Result<()> {
    let commit = std::env::var("PREVIOUS").context("PREVIOUS is not set: give a commit, such as v0.1.0")?;
    let folder = site.testbed.data().join("previous");
    extract(&commit, &folder)?;
    let old = folder.join(CHART).to_string_lossy().into_owned();
    for &name in extent.helms() {
        let helm = Helm::new(&site.testbed, name).await?;
        let install = async {
            let args = ["install", RELEASE, &old, "-n", SYSTEM, helm.wait(), "--timeout=4m"];
            helm.run(&[&args[..], &["--set", MODEL, "--set", NO_PROMETHEUS]].concat()).await?.success()?;
            site.healthy().await?;
            Ok("works".to_owned())
        };
        table.step(&format!("{name}: install the chart of {commit}"), Box::pin(install)).await;
        let upgrade = async {
            let crds = ["--set", "crds.install=true", "--skip-crds", "--take-ownership"];
            let force: &[&str] = if name == "helm" { &["--force-conflicts"] } else { &[] };
            let args = [&["--set", NO_PROMETHEUS][..], &crds, force].concat();
            site.helm(&helm, &args).await?.success()?;
            site.healthy().await?;
            eventually("the new CRD to keep the new status", CYCLES, async || {
                let path = "jsonpath={.status.controllerState.version}";
                let version = site.kubectl(&["-n", MODELS, "get", "va", VARIANT, "-o", path]).await?;
                ensure!(version == "1", "status.controllerState.version is {version:?}");
                Ok(())
            })
            .await?;
            Ok("works, and the CRD is that of this release".to_owned())
        };
        table.step(&format!("{name}: upgrade to this chart"), Box::pin(upgrade)).await;
        table.step(&format!("{name}: uninstall"), Box::pin(site.remove(&helm))).await;
    }
    Ok(())
}

/// Extracts the chart of a commit into a folder.
fn extract(commit: &str, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let script = format!("git archive \"$0\" {CHART} | tar -x -C \"$1\"");
    let ran = Command::new("bash")
        .args(["-c", &format!("set -o pipefail; {script}"), commit])
        .arg(folder)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    let error = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "PREVIOUS: git has no chart of {commit:?}: {}", error.trim());
    Ok(())
}
