//! The real Helm against a testbed, isolated from the user's own Helm settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::testbed::access::{CommandOutput, run};
use crate::{Testbed, Tools};

/// Longer than any `--timeout` passed to Helm.
const LONGEST: Duration = Duration::from_mins(5);

/// One version of Helm, with all rights in a testbed.
#[derive(Clone, Debug)]
pub struct Helm {
    name: String,
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
    kubernetes: String,
}

impl Helm {
    /// `helm` is Helm 4, `helm3` is Helm 3. A missing one is built.
    pub async fn new(testbed: &Testbed, name: &'static str) -> anyhow::Result<Self> {
        let program = tokio::task::spawn_blocking(move || Tools::on_request(name)).await??;
        let kubeconfig = testbed.admin_kubeconfig().to_owned();
        let kubernetes = testbed.admin()?.apiserver_version().await?.git_version;
        Ok(Self { name: name.to_owned(), program, home: testbed.data().join(name), kubeconfig, kubernetes })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Flag that waits for the controller only. Helm 4 also waits until a VariantAutoscaling is `Ready`, which one
    /// without metrics never is.
    pub fn wait(&self) -> &'static str {
        if self.name == "helm" { "--wait=legacy" } else { "--wait" }
    }

    /// Version of the cluster, for `--kube-version`.
    pub fn kubernetes(&self) -> &str {
        &self.kubernetes
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The chart of this repository.
    pub fn chart() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/workload-variant-autoscaler")
    }

    /// Runs Helm for at most five minutes; a failure is part of [`CommandOutput`].
    pub async fn run(&self, args: &[&str]) -> anyhow::Result<CommandOutput> {
        let mut command = tokio::process::Command::new(&self.program);
        for home in ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
            command.env(home, &self.home);
        }
        for theirs in ["HELM_NAMESPACE", "HELM_KUBECONTEXT", "HELM_DRIVER", "HELM_DEBUG"] {
            command.env_remove(theirs);
        }
        command.env("KUBECONFIG", &self.kubeconfig).args(args);
        run(&format!("{} {}", self.name, args.join(" ")), command, "", LONGEST).await
    }
}
