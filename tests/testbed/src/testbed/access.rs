//! Access to the control plane for tests: clients, kubeconfigs for admin and service accounts, kubectl, new
//! namespaces, and Services that lead the API server to a program on loopback.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::testbed::{Data, Testbed};
use crate::wait::{eventually, within};

const CALL: Duration = Duration::from_secs(20);
/// Time limit for controllers, API discovery, and each kubectl command.
const FOLLOWS: Duration = Duration::from_mins(3);

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    /// Standard output, or an error if the command failed.
    pub fn success(self) -> anyhow::Result<String> {
        if !self.ok {
            bail!("the command failed: {}\n{}", self.stderr.trim(), self.stdout.trim());
        }
        Ok(self.stdout)
    }
}

impl Testbed {
    /// A new admin client, bound to the current runtime.
    pub fn admin(&self) -> anyhow::Result<kube::Client> {
        kube::Client::try_from(self.config.clone()).context("cannot make a client for the test control plane")
    }

    /// Kubeconfig file of the admin.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// File with the CA of kube-apiserver's certificate.
    pub fn ca(&self) -> &Path {
        &self.ca
    }

    /// Runs kubectl as admin for at most three minutes; a failure is part of [`CommandOutput`].
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<CommandOutput> {
        self.kubectl_with(args, "").await
    }

    /// Runs kubectl as admin with this standard input.
    pub async fn kubectl_with(&self, args: &[&str], input: &str) -> anyhow::Result<CommandOutput> {
        let mut command = tokio::process::Command::new(self.tools.path("kubectl")?);
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--cache-dir={}", self.data.path.join("kubectl").display()))
            .args(args);
        run(&format!("kubectl {}", args.join(" ")), command, input, FOLLOWS).await
    }

    /// Applies YAML (one document or several) with kubectl.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        self.kubectl_with(&["apply", "-f", "-"], yaml).await?.success().map(|_| ())
    }

    /// Waits until kubectl finds a kind, such as `variantautoscalings.llmd.ai`: discovery follows an established CRD.
    pub async fn wait_discovered(&self, kind: &str) -> anyhow::Result<()> {
        let (_, group) = kind.split_once('.').with_context(|| format!("{kind} has no API group"))?;
        eventually(&format!("kubectl to find {kind}"), FOLLOWS, async || {
            // It also fails for an API group of another server that is down.
            let ran = self.kubectl(&["api-resources", "--api-group", group, "-o", "name"]).await?;
            if !ran.stdout.lines().any(|line| line == kind) {
                bail!("it finds {:?}: {}", ran.stdout, ran.stderr);
            }
            Ok(())
        })
        .await
    }

    /// Creates a new namespace for a test, `<prefix>-<number>`, and waits until it accepts pods.
    pub async fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let client = self.admin()?;
        let name = format!("{prefix}-{}", self.next());
        let object: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        let namespaces = Api::<Namespace>::all(client.clone());
        within("creating a namespace", CALL, namespaces.create(&PostParams::default(), &object)).await?;
        let accounts = Api::<ServiceAccount>::namespaced(client, &name);
        eventually(&format!("the service account {name}/default"), FOLLOWS, async || {
            accounts.get("default").await.context("it cannot be read")
        })
        .await?;
        Ok(name)
    }

    /// A token of this service account from the `TokenRequest` API, valid for a day.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let args = ["create", "token", name, "--namespace", namespace, "--duration=24h"];
        Ok(self.kubectl(&args).await?.success()?.trim().to_owned())
    }

    /// User name of a token, from a `TokenReview`; empty for an unknown token.
    pub async fn user_of(&self, token: &str) -> anyhow::Result<String> {
        let review = serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "metadata": {"name": "token"}, "spec": {"token": token}});
        let create = ["create", "-f", "-", "-o", "jsonpath={.status.user.username}"];
        self.kubectl_with(&create, &review.to_string()).await?.success()
    }

    /// Kubeconfig file of this service account.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> anyhow::Result<PathBuf> {
        let token = self.service_account_token(namespace, name).await?;
        self.kubeconfig_of(&format!("{namespace}-{name}"), self.apiserver_port()?, &token)
    }

    /// Kubeconfig file for this token and this port, which belongs to kube-apiserver or to a proxy.
    pub(crate) fn kubeconfig_of(&self, stem: &str, port: u16, token: &str) -> anyhow::Result<PathBuf> {
        write_kubeconfig(&self.data, &format!("{stem}-{}", self.next()), port, &self.ca, token)
    }

    /// The port of kube-apiserver on loopback.
    pub fn apiserver_port(&self) -> anyhow::Result<u16> {
        Ok(self.running(crate::Component::Apiserver)?.port(0))
    }

    /// Bearer token of the admin, for requests without a retrying client.
    pub fn admin_token(&self) -> &str {
        &self.token
    }

    /// Creates a Service that leads the API server to `localhost`, where a program listens on `port`. A webhook or
    /// `APIService` must name the same port, since an `ExternalName` Service maps no ports.
    pub async fn loopback_service(&self, namespace: &str, name: &str, port: u16) -> anyhow::Result<()> {
        let object: Service = serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "type": "ExternalName", "externalName": "localhost", "ports": [{ "name": "https", "port": port }] },
        }))?;
        let services = Api::<Service>::namespaced(self.admin()?, namespace);
        within("creating a loopback service", CALL, services.create(&PostParams::default(), &object)).await?;
        Ok(())
    }
}

/// Runs a command with this standard input, up to a time limit.
pub async fn run(
    what: &str,
    mut command: tokio::process::Command,
    input: &str,
    limit: Duration,
) -> anyhow::Result<CommandOutput> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {what}"))?;
    let stdin = child.stdin.take();
    let run = async {
        if let Some(mut stdin) = stdin {
            // A command that ignores its input may have closed it.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let out = within(what, limit, run).await?;
    Ok(CommandOutput {
        ok: out.status.success(),
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    })
}

/// Writes `<stem>.kubeconfig`.
pub(crate) fn write_kubeconfig(
    data: &Data,
    stem: &str,
    port: u16,
    ca: &Path,
    token: &str,
) -> anyhow::Result<PathBuf> {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "testbed",
            "cluster": { "server": format!("https://127.0.0.1:{port}"), "certificate-authority": ca },
        }],
        "users": [{ "name": "user", "user": { "token": token } }],
        "contexts": [{ "name": "testbed", "context": { "cluster": "testbed", "user": "user" } }],
        "current-context": "testbed",
    });
    // JSON is valid YAML, with safe quoting of every path.
    data.write(&format!("{stem}.kubeconfig"), &format!("{text:#}\n"))
}

/// Reads a kubeconfig into a client configuration.
pub(crate) async fn load(kubeconfig: &Path) -> anyhow::Result<kube::Config> {
    let what = || format!("cannot use {}", kubeconfig.display());
    let file = Kubeconfig::read_from(kubeconfig).with_context(what)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.with_context(what)?;
    config.proxy_url = None;
    Ok(config)
}
