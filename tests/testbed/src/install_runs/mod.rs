//! Experiments on installs: the chart with real Helm, manifests with kubectl, on a control plane whose kubelet runs the
//! rendered Deployment. Each prints a row for every step, with how long it took and whether it kept what it must.

mod at_once;
mod crds;
mod forms;
mod gitops;
mod manifests;
mod orders;
mod readme;
mod schemas;
mod site;
mod table;
mod upgrades;

use std::path::Path;

pub use site::Site;
pub use table::Table;

use crate::operations::Outcome;
use crate::scaling_runs::Line;

/// How much of each experiment is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, with Helm 4 and Helm 3: minutes.
    Full,
    /// Each step once, with Helm 4.
    Short,
}

impl Extent {
    /// This many times, or in a short run that many.
    fn times(self, full: usize, short: usize) -> usize {
        if self == Self::Full { full } else { short }
    }

    fn helms(self) -> &'static [&'static str] {
        if self == Self::Full { &["helm", "helm3"] } else { &["helm"] }
    }
}

/// One of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Installs with a VariantAutoscaling in the same release.
    AtOnce,
    /// Upgrades, refusals, rollback and uninstall.
    Upgrades,
    /// The render as GitOps tools handle it.
    GitOps,
    /// Parts of the render in random orders.
    Orders,
    /// An install on the original's CRD and objects.
    Crds,
    /// The Kustomize base and `deploy/install.sh`.
    Manifests,
    /// A release for one namespace, one with an instance, one without a controller.
    Forms,
    /// The commands of the original chart's README.
    Readme,
}

impl Experiment {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AtOnce,
        Self::Upgrades,
        Self::GitOps,
        Self::Orders,
        Self::Crds,
        Self::Manifests,
        Self::Forms,
        Self::Readme,
    ];

    /// Those whose steps no other has in a like form: what a short run does.
    pub const SHORT: [Self; 5] = [Self::Upgrades, Self::GitOps, Self::Orders, Self::Crds, Self::Manifests];

    /// Its name, on the command line too.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AtOnce => "at-once",
            Self::Upgrades => "upgrades",
            Self::GitOps => "gitops",
            Self::Orders => "orders",
            Self::Crds => "crds",
            Self::Manifests => "manifests",
            Self::Forms => "forms",
            Self::Readme => "readme",
        }
    }

    /// Runs its steps on this site.
    ///
    /// # Errors
    /// When they could not be carried out; what was carried out and went wrong is in the table.
    pub async fn run(self, site: &Site, extent: Extent, table: &mut Table) -> anyhow::Result<()> {
        match self {
            Self::AtOnce => Box::pin(at_once::run(site, extent, table)).await,
            Self::Upgrades => Box::pin(upgrades::run(site, extent, table)).await,
            Self::GitOps => Box::pin(gitops::run(site, extent, table)).await,
            Self::Orders => Box::pin(orders::run(site, extent, table)).await,
            Self::Crds => Box::pin(crds::run(site, table)).await,
            Self::Manifests => Box::pin(manifests::run(site, table)).await,
            Self::Forms => Box::pin(forms::run(site, table)).await,
            Self::Readme => Box::pin(readme::run(site, table)).await,
        }
    }
}

/// Runs experiments on one control plane, one after the other.
///
/// # Errors
/// When the control plane cannot be started or an experiment cannot be carried out.
pub async fn run(wva: &Path, of: &[Experiment], extent: Extent, tell: Line) -> anyhow::Result<Outcome> {
    // One that runs alone may run beside another.
    let name = if let [one] = of { format!("installs-{}", one.name()) } else { "installs".to_owned() };
    let site = Site::start(&name, wva).await?;
    let mut table = Table::new(tell);
    for experiment in of {
        if let Err(error) = experiment.run(&site, extent, &mut table).await {
            table.fault(&format!("{} could not go on: {error:#}\n{}", experiment.name(), site.evidence()));
        }
        site.clean().await?;
    }
    Ok(table.outcome())
}
