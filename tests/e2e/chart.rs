//! Install, upgrade, rollback and removal of a chart release, and its values files: each step once, everything with
//! `FULL=1` (`make test-install`).
//! Why a control plane of its own: it runs in parallel with [`crate::install`].

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
