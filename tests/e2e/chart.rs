//! The life of a release of the chart, and its values files: each step once, all of it with `FULL=1` (`make test-install`).
//! A control plane of its own, as in [`crate::install`], beside which it runs.

use crate::install::{previous, profiles, run, upgrades};

#[test]
fn upgrades_and_rollbacks_work() -> anyhow::Result<()> {
    run("chart", async |site, extent, table| upgrades::run(site, extent, table).await)
}

#[test]
fn profiles_of_the_chart_install() -> anyhow::Result<()> {
    run("chart", async |site, extent, table| profiles::run(site, extent, table).await)
}

#[test]
#[ignore = "long: make test-upgrade PREVIOUS=COMMIT"]
fn releases_of_the_previous_chart_upgrade() -> anyhow::Result<()> {
    run("chart", async |site, extent, table| previous::run(site, extent, table).await)
}
