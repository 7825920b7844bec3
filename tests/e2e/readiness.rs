//! What tools that wait for a variant see: `kubectl wait`, Helm 4 by the rules of kstatus, and the health script for Argo
//! CD. Why a control plane of its own: its Prometheus stops.

#![expect(clippy::print_stdout, reason = "the transcript is for the person who runs the test")]

use std::time::Duration;

use crate::support::{
    Cluster, DEADLINE, SHORT_AGES, fleet_config, has_condition, install_options, repository_path,
    saturation_map,
};
use anyhow::{Context, ensure};
use mlua::{Lua, LuaOptions, StdLib};
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::Install;
use wva_testbed::{CommandOutput, Fleet, Helm, Options, Testbed};

/// A release with one variant.
struct Release<'a> {
    testbed: &'a Testbed,
    helm: Helm,
    chart: std::path::PathBuf,
    namespace: String,
}

impl<'a> Release<'a> {
    async fn new(testbed: &'a Testbed, namespace: &str) -> anyhow::Result<Self> {
        let chart = testbed.data().join("variant");
        std::fs::create_dir_all(chart.join("templates"))?;
        std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: variant\nversion: 1.0.0\n")?;
        let template =
            VariantFixture::new(namespace, "llama").variant().replace("10.0", "{{ .Values.cost }}");
        ensure!(template.contains(".Values.cost"), "the fixture has another cost: {template}");
        std::fs::write(chart.join("templates/variant.yaml"), template)?;
        let helm = Helm::new(testbed, "helm").await?;
        Ok(Self { testbed, helm, chart, namespace: namespace.to_owned() })
    }

    /// `helm upgrade --install` with another cost. Helm 4 waits by the rules of kstatus.
    async fn upgrade(&self, cost: &str, timeout: &str) -> anyhow::Result<CommandOutput> {
        let (chart, cost) = (self.chart.to_string_lossy(), format!("cost={cost}"));
        let args = ["upgrade", "--install", "release", &chart, "--namespace", &self.namespace];
        let wait = ["--set-string", &cost, "--wait=watcher", "--timeout", timeout];
        let ran = self.helm.run(&[&args[..], &wait].concat()).await?;
        println!("$ helm upgrade --set-string {cost} --wait --timeout {timeout}\n{}", shown(&ran));
        Ok(ran)
    }

    async fn kubectl_wait(&self, status: &str, timeout: &str) -> anyhow::Result<CommandOutput> {
        let (wanted, timeout) = (format!("--for=condition=Ready={status}"), format!("--timeout={timeout}"));
        let ran =
            self.testbed.kubectl(&["wait", "va/llama", "-n", &self.namespace, &wanted, &timeout]).await?;
        println!("$ kubectl wait va/llama {wanted} {timeout}\n{}", shown(&ran));
        Ok(ran)
    }
}

/// Last line of a command.
fn shown(ran: &CommandOutput) -> String {
    let text = if ran.ok { &ran.stdout } else { &ran.stderr };
    format!("{}: {}", if ran.ok { "ok" } else { "failed" }, text.trim().lines().last().unwrap_or_default())
}

/// Status and message that the script of `docs/guides/ci-gitops.md` gives an object. Argo CD runs Lua 5.1, too.
fn argo_health(object: &Value) -> anyhow::Result<(String, String)> {
    let page = std::fs::read_to_string(repository_path("docs/guides/ci-gitops.md"))?;
    let (_, script) = page
        .split_once("resource.customizations.health.llmd.ai_VariantAutoscaling: |\n")
        .context("the page has no script")?;
    let (script, _) = script.split_once("```").context("the block does not end")?;
    let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING, LuaOptions::default())?;
    lua.globals().set("obj", table(&lua, object)?)?;
    let health: mlua::Table = lua.load(script).eval()?;
    Ok((health.get("status")?, health.get("message")?))
}

/// Argo CD passes objects in this form.
fn table(lua: &Lua, value: &Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        Value::Null => mlua::Value::Nil,
        Value::Bool(value) => mlua::Value::Boolean(*value),
        Value::Number(number) => mlua::Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => mlua::Value::String(lua.create_string(text)?),
        Value::Array(items) => {
            let items = items.iter().map(|item| table(lua, item)).collect::<mlua::Result<Vec<_>>>()?;
            mlua::Value::Table(lua.create_sequence_from(items)?)
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| Ok((name.as_str(), table(lua, field)?)));
            mlua::Value::Table(lua.create_table_from(fields.collect::<mlua::Result<Vec<_>>>()?)?)
        }
    })
}

/// Prints the health, and fails if it differs.
async fn expect_health(cluster: &Cluster, ns: &str, wanted: &str) -> anyhow::Result<()> {
    let va = cluster.variant(ns, "llama").await?;
    let (status, message) = argo_health(&va)?;
    println!("Argo CD: {status}: {message}");
    ensure!(status == wanted, "{status} instead of {wanted}: {message}");
    Ok(())
}

/// Whether the status is about the present spec, whose cost this is.
async fn expect_observed(cluster: &Cluster, ns: &str, cost: &str) -> anyhow::Result<()> {
    let va = cluster.variant(ns, "llama").await?;
    ensure!(va["spec"]["variantCost"] == cost, "{}", va["spec"]);
    ensure!(va["status"]["observedGeneration"] == va["metadata"]["generation"], "{va}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_wait_for_what_the_status_says() -> anyhow::Result<()> {
    let options = install_options().with(&SHORT_AGES);
    let plane = Options { name: "readiness".to_owned(), ..Options::default() };
    let mut cluster = Cluster::start(plane, &options).await?;
    let ns = cluster.testbed.namespace("waiting").await?;
    cluster.testbed.apply(&saturation_map(&ns, "analyzerName: percentage")).await?;
    let load = Fleet::start(&cluster.testbed, fleet_config(&ns))?;
    load.set_fixed_all(0.3, 0.0);
    cluster.testbed.apply(&VariantFixture::new(&ns, "llama").deployment()).await?;
    load.wait_ready(1, DEADLINE).await?;

    release_waits(&cluster, &ns).await?;
    old_status_is_not_ready(&mut cluster, &ns, &options).await?;
    broken_signal_is_not_ready(&cluster, &ns).await
}

/// An install and an edited spec.
async fn release_waits(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let release = Release::new(&cluster.testbed, ns).await?;
    for cost in ["10", "11"] {
        release.upgrade(cost, "60s").await?.success()?;
        expect_observed(cluster, ns, cost).await?;
        release.kubectl_wait("True", "5s").await?.success()?;
        expect_health(cluster, ns, "Healthy").await?;
    }
    Ok(())
}

/// While wva is down, the status of the old spec still says `Ready`.
async fn old_status_is_not_ready(
    cluster: &mut Cluster,
    ns: &str,
    options: &wva_testbed::install::InstallOptions,
) -> anyhow::Result<()> {
    cluster.install.process().signal(wva_testbed::Signal::Term)?;
    cluster.install.process().wait_exit(Duration::from_secs(30)).await?;
    cluster
        .testbed
        .kubectl(&["delete", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "--all"])
        .await?
        .success()?;
    {
        let release = Release::new(&cluster.testbed, ns).await?;
        let ran = release.upgrade("12", "8s").await?;
        ensure!(!ran.ok, "Helm took the status of the old spec");
        expect_health(cluster, ns, "Progressing").await?;
        new_variant_is_not_ready(cluster, ns).await?;
    }
    cluster.install = Install::start(&cluster.testbed, options).await?;
    let release = Release::new(&cluster.testbed, ns).await?;
    release.upgrade("12", "60s").await?.success()?;
    expect_observed(cluster, ns, "12").await
}

/// Without wva, and so without a status of its own.
async fn new_variant_is_not_ready(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    cluster.testbed.apply(&VariantFixture::new(ns, "young").variant()).await?;
    let va = cluster.variant(ns, "young").await?;
    ensure!(va["status"]["observedGeneration"] == -1, "the schema's default is not there: {va}");
    let (status, message) = argo_health(&va)?;
    ensure!(status == "Progressing", "{status}: {message}");
    cluster.testbed.kubectl(&["delete", "va", "young", "-n", ns]).await?.success().map(drop)
}

async fn broken_signal_is_not_ready(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let release = Release::new(&cluster.testbed, ns).await?;
    cluster.testbed.prometheus_stop().await?;
    release.kubectl_wait("False", "60s").await?.success()?;
    let failed = |va: &Value| {
        has_condition(va, "Ready", ("False", "SafetyNet"))
            && has_condition(va, "OptimizationReady", ("False", "SafetyNet"))
    };
    cluster.wait_for(ns, "llama", "say that the analysis fails", failed).await?;
    let ran = release.kubectl_wait("True", "3s").await?;
    ensure!(!ran.ok, "kubectl wait ended while the analysis fails");
    let ran = release.upgrade("13", "8s").await?;
    ensure!(!ran.ok, "helm --wait ended while the analysis fails");
    expect_health(cluster, ns, "Degraded").await?;

    cluster.testbed.prometheus_start().await?;
    release.kubectl_wait("True", "60s").await?.success()?;
    release.upgrade("13", "60s").await?.success()?;
    expect_observed(cluster, ns, "13").await?;
    expect_health(cluster, ns, "Healthy").await
}
