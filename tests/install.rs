//! Installs by real Helm, kubectl and `deploy/install.sh`, with a kubelet that runs what the objects say: each step of
//! `wva-testbed installs` once.

use std::path::Path;

use wva_testbed::install_runs::{Experiment, Extent, run};

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_install_works() -> anyhow::Result<()> {
    let tell = |line: &str| println!("{line}");
    let wva = Path::new(env!("CARGO_BIN_EXE_wva"));
    let outcome = Box::pin(run(wva, &Experiment::SHORT, Extent::Short, tell)).await?;
    println!("{}", outcome.kept()?);
    Ok(())
}
