//! Installs with real Helm, kubectl and `deploy/install.sh`, and a kubelet that runs the pods: each step once,
//! everything with `FULL=1` (`make test-install`).
//! Why a control plane of its own: releases are installed and removed cluster-wide.
#![expect(clippy::print_stdout, reason = "the rows are for the person who runs the tests")]

mod at_once;
mod commands;
mod crds;
mod elsewhere;
mod enforcer;
mod forms;
mod gitops;
mod manifests;
mod one_namespace;
mod orders;
pub(crate) mod previous;
pub(crate) mod profiles;
mod readme;
mod site;
mod table;
pub(crate) mod upgrades;

use site::Site;
use std::sync::LazyLock;
use table::Table;

use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};

use crate::support::{is_full_run, program_path};

/// Lives longer than each test: kubelet and network of the site are tasks.
#[expect(clippy::expect_used, reason = "no test of the site can run without it")]
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads for the site"));
static SITE: OnceCell<Site> = OnceCell::const_new();
/// Held by each test: all install the same release.
static RELEASE: Mutex<()> = Mutex::const_new(());

/// Extent of each experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything, with Helm 4 and Helm 3; takes minutes.
    Full,
    /// Each step once, with Helm 4.
    Short,
}

impl Extent {
    /// Number of turns in a full and in a short run.
    fn times(self, full: usize, short: usize) -> usize {
        if self == Self::Full { full } else { short }
    }

    fn helms(self) -> &'static [&'static str] {
        if self == Self::Full { &["helm", "helm3"] } else { &["helm"] }
    }
}

async fn site(group: &str) -> anyhow::Result<&'static Site> {
    SITE.get_or_try_init(async || Site::start(group, &program_path()).await).await
}

/// Runs the steps of an experiment on the group's site, and cleans the site.
pub(crate) fn run(
    group: &str,
    steps: impl AsyncFnOnce(&'static Site, Extent, &mut Table) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    RUNTIME.block_on(async {
        let site = site(group).await?;
        let _alone = RELEASE.lock().await;
        let extent = if is_full_run() { Extent::Full } else { Extent::Short };
        let mut table = Table::new();
        if let Err(error) = Box::pin(steps(site, extent, &mut table)).await {
            table.fault(&format!("the steps could not go on: {error:#}\n{}", site.evidence()));
        }
        site.clean().await?;
        println!("{}", table.outcome().into_result()?);
        Ok(())
    })
}

#[test]
fn gitops_tools_can_apply_the_render() -> anyhow::Result<()> {
    run("install", async |site, extent, table| gitops::run(site, extent, table).await)
}

#[test]
fn orders_of_apply_end_in_one_state() -> anyhow::Result<()> {
    run("install", async |site, extent, table| orders::run(site, extent, table).await)
}

#[test]
fn crds_of_old_releases_are_upgraded() -> anyhow::Result<()> {
    run("install", async |site, _, table| crds::run(site, table).await)
}

#[test]
fn manifests_and_install_script_work() -> anyhow::Result<()> {
    run("install", async |site, _, table| manifests::run(site, table).await)
}

#[test]
#[ignore = "long: make test-install"]
fn release_with_a_variant_installs() -> anyhow::Result<()> {
    run("install", async |site, extent, table| at_once::run(site, extent, table).await)
}

#[test]
#[ignore = "long: make test-install"]
fn forms_of_the_release_work() -> anyhow::Result<()> {
    run("install", async |site, _, table| forms::run(site, table).await)
}

#[test]
#[ignore = "long: make test-install"]
fn readme_commands_work() -> anyhow::Result<()> {
    run("install", async |site, _, table| readme::run(site, table).await)
}

#[test]
#[ignore = "long: make test-install"]
fn printed_commands_lead_to_no_conflict() -> anyhow::Result<()> {
    run("install", async |site, _, table| commands::run(site, table).await)
}

#[test]
#[ignore = "long: make test-install"]
fn enforcer_of_webhooks_causes_no_conflict() -> anyhow::Result<()> {
    run("install", async |site, _, table| enforcer::run(site, table).await)
}

#[test]
fn administrator_of_a_namespace_installs() -> anyhow::Result<()> {
    run("install", async |site, _, table| one_namespace::run(site, table).await)
}
