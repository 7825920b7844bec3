//! Installs with the VariantAutoscaling in the same release, as a new user does: no webhook may deny the objects of the
//! release, however early they come.

use anyhow::ensure;

use super::site::NO_PROMETHEUS;
use super::{Extent, Site, Table};
use wva_testbed::Helm;

pub(super) async fn run(site: &Site, extent: Extent, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    let turns = extent.times(50, 1);
    for turn in 1..=turns {
        let install = async {
            let ran = site.helm(&helm, &["--set", NO_PROMETHEUS, "--set", "va.enabled=true"]).await?;
            ran.success()?;
            site.healthy().await?;
            let restarts = site.restarts().await?;
            ensure!(restarts == 0, "{restarts} restarts; {}", site.evidence());
            Ok("two replicas, none restarted".to_owned())
        };
        table.step(&format!("install {turn} of {turns}, with a variant"), Box::pin(install)).await;
        table.step(&format!("uninstall {turn} of {turns}"), Box::pin(site.remove(&helm))).await;
    }
    Ok(())
}
