//! Starts the programs of one testbed: first their files, then the command lines of [`plans`].

use std::path::Path;

use super::{Data, Options, audit, plans, prometheus};
use crate::components::{Component, Plan, RunningProgram};
use crate::tools::Tools;

/// Settings and folders of all programs of a testbed.
pub(super) struct Launcher<'a> {
    pub(super) options: &'a Options,
    pub(super) data: &'a Data,
    pub(super) tools: &'a Tools,
    pub(super) logs: &'a Path,
}

impl Launcher<'_> {
    pub(super) async fn etcd(&self) -> anyhow::Result<RunningProgram> {
        self.launch(Component::Etcd, 2, |ports| plans::etcd(self.options, self.data, ports)).await
    }

    pub(super) async fn apiserver(&self, token: &str, etcd: u16) -> anyhow::Result<RunningProgram> {
        let Self { options, data, .. } = *self;
        let audit = audit::write_policy(data, options.audit)?;
        let webhook_client = options.webhook_client.then(|| plans::write_webhook_client(data)).transpose()?;
        let network = options.kubelet.map(|_| plans::write_egress(data)).transpose()?;
        let plan = |ports: &[u16]| {
            let mut plan = plans::apiserver(options, data, token, etcd, ports);
            plan.args.extend(audit.iter().flat_map(|policy| audit::flags(policy, data)));
            plan.args.extend(network.clone());
            plan.args.extend(webhook_client.clone());
            plan
        };
        self.launch(Component::Apiserver, 1, plan).await
    }

    pub(super) async fn controller_manager(&self, kubeconfig: &Path) -> anyhow::Result<RunningProgram> {
        let plan = |_: &[u16]| plans::controller_manager(self.options, self.data, kubeconfig);
        self.launch(Component::ControllerManager, 0, plan).await
    }

    pub(super) async fn scheduler(&self, kubeconfig: &Path) -> anyhow::Result<RunningProgram> {
        self.launch(Component::Scheduler, 0, |_| plans::scheduler(self.options, kubeconfig)).await
    }

    pub(super) async fn kwok(&self, kubeconfig: &Path, stages: &Path) -> anyhow::Result<RunningProgram> {
        let plan = |ports: &[u16]| plans::kwok(self.options, kubeconfig, stages, ports);
        self.launch(Component::Kwok, 1, plan).await
    }

    /// `None` where [`Options::with_prometheus`] is off.
    pub(super) async fn prometheus(&self) -> anyhow::Result<Option<RunningProgram>> {
        if !self.options.with_prometheus {
            return Ok(None);
        }
        let config = prometheus::write_config(self.data, self.options.scrape_interval)?;
        let plan = |ports: &[u16]| prometheus::plan(self.data, &config, ports);
        self.launch(Component::Prometheus, 1, plan).await.map(Some)
    }

    /// Starts a program on this number of free ports and waits until it serves.
    async fn launch(
        &self,
        component: Component,
        ports: usize,
        plan: impl Fn(&[u16]) -> Plan,
    ) -> anyhow::Result<RunningProgram> {
        RunningProgram::launch(component, self.tools.path(component.name())?, self.logs, ports, plan).await
    }
}
