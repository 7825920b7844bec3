//! ConfigMaps on a real control plane: a change takes effect at once, the nearer map takes precedence, a deleted map
//! falls back to the next layer, and an invalid entry keeps the last valid values.
//! Why control planes of their own: the program decides every ten minutes, so an earlier effect comes from the change;
//! and one program has no permissions beyond a namespace.

mod binary_data;
mod main_map;

use std::path::Path;

use crate::support::{
    Cluster, DEADLINE, condition, has_condition, install_options, merge_patch, repository_path, target,
};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_crds::names::{LOCAL_SATURATION_MAP_NAME, SATURATION_MAP_NAMES};
use wva_testbed::fixtures::{VariantFixture, config_map};
use wva_testbed::install::{Install, SYSTEM, WEBHOOKS};
use wva_testbed::{Fleet, Options, Process, Testbed, Tools, eventually};

const UPDATED: &str = "Updated saturation config";
const UNUSABLE: &str = "Invalid ConfigMap entry; keeping its last valid value";

impl Cluster {
    async fn apply_saturation_map(&self, namespace: &str, entries: Value) -> anyhow::Result<()> {
        self.testbed.apply(&config_map(namespace, LOCAL_SATURATION_MAP_NAME, &entries)).await
    }

    async fn delete(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        self.testbed.kubectl(&["delete", "configmap", name, "-n", namespace]).await?.success()?;
        Ok(())
    }

    /// Configuration of the last cycle.
    async fn config(&self) -> anyhow::Result<Value> {
        Ok(self.snapshot().await?["config"].take())
    }

    /// Setting of the fixtures' model in a namespace in the last cycle.
    async fn setting(&self, namespace: &str, field: &str) -> anyhow::Result<Value> {
        let snapshot = self.snapshot().await?;
        let mut models = snapshot["models"].as_array().into_iter().flatten();
        let model = models.find(|model| model["namespace"] == namespace);
        Ok(model.with_context(|| format!("no model in {namespace}"))?["settings"]["saturation"][field]
            .clone())
    }

    async fn wait_for_setting(&self, namespace: &str, field: &str, want: f64) -> anyhow::Result<()> {
        eventually(&format!("{field} in {namespace} to be {want}"), DEADLINE, async || {
            let found = self.setting(namespace, field).await?;
            ensure!(found.as_f64() == Some(want), "it is {found}");
            Ok(())
        })
        .await
    }

    /// Lines of the whole log with this message, oldest first.
    fn lines(&self, message: &str) -> Vec<Value> {
        let log = std::fs::read_to_string(self.install.process().log_path()).unwrap_or_default();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["msg"] == message).collect()
    }

    /// Map and changes of the last line about a change of thresholds.
    fn last_change(&self) -> anyhow::Result<[Value; 2]> {
        let line = self.lines(UPDATED).pop().with_context(|| format!("no line {UPDATED:?}"))?;
        Ok(["map", "changes"].map(|key| line[key].clone()))
    }

    /// Counts of valid and of invalid reloads of a kind of map.
    async fn reloads(&self, config: &str) -> anyhow::Result<[Option<f64>; 2]> {
        let of = async |result| {
            let labels = [("config", config), ("result", result)];
            self.install.series("wva_config_reloads_total", &labels).await
        };
        Ok([of("ok").await?, of("invalid").await?])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn config_maps_apply_at_once_and_fall_back_when_deleted() -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "config-maps".to_owned(), ..Options::default() }).await?;
    let mut options = install_options();
    options.env.retain(|(key, _)| key != "GLOBAL_OPT_INTERVAL");
    options.env.push(("LEADER_ELECT".to_owned(), "true".to_owned()));
    main_map::create_initial_main_map(&testbed).await?;
    let install = Install::start(&testbed, &options).await?;
    let cluster = Cluster { testbed, install };
    let served = cluster.testbed.namespace("served").await?;
    let other = cluster.testbed.namespace("other").await?;
    // A model without a workload has no settings in the snapshot. A new leader may not repeat the event of one that is missing.
    let (served_too, missing) = (VariantFixture::new(&other, "any"), VariantFixture::new(&other, "missing"));
    let objects = [served_too.deployment(), served_too.variant(), missing.variant()];
    cluster.testbed.apply(&objects.join("---\n")).await?;

    global_map_changes_a_decision_at_once(&cluster, &served).await?;
    namespace_map_takes_precedence(&cluster, &served, &other).await?;
    deleted_map_falls_back_to_the_next_layer(&cluster, &served, &other).await?;
    opt_in_label_includes_a_namespace_without_variants(&cluster).await?;
    main_map::settings_in_force_can_be_printed(&cluster)?;
    binary_data::binary_file_is_refused(&cluster).await?;
    invalid_entry_keeps_the_last_valid_value(&cluster, &served, &other).await?;
    cluster.delete(&other, LOCAL_SATURATION_MAP_NAME).await?;
    binary_data::binary_file_is_reported(&cluster, &other).await?;
    main_map::main_map_changes_settings_at_run_time(&cluster).await?;
    cluster.install.stop().await
}

async fn global_map_changes_a_decision_at_once(cluster: &Cluster, served: &str) -> anyhow::Result<()> {
    let variant = VariantFixture::new(served, "served");
    let load = Fleet::start(&cluster.testbed, crate::support::fleet_config(served))?;
    load.set_fixed_all(0.60, 0.0);
    cluster.testbed.apply(&variant.all()).await?;
    load.wait_ready(1, DEADLINE).await?;
    let mut cost = 10;
    eventually("metrics of the load", DEADLINE, async || {
        let va = cluster.variant(served, "served").await?;
        let (_, reason) = condition(&va, "MetricsAvailable")?;
        let has_metrics = reason == "MetricsFound" && target(&va) == Some(1);
        if !has_metrics {
            // The cycle of this generation is over, and a newer sample triggers none.
            cost += 1;
            let change = json!({"spec": {"variantCost": format!("{cost}.0")}});
            merge_patch(&cluster.testbed, served, "va/served", &change).await?.success()?;
        }
        ensure!(has_metrics, "{}", va["status"]);
        Ok(())
    })
    .await?;
    let none = cluster.lines(
        "No global saturation ConfigMap: the throughput analyzer decides with built-in settings, except in namespaces with a map",
    );
    ensure!(none.len() == 1, "a missing map must be logged once: {none:?}");
    ensure!(cluster.reloads("saturation").await? == [Some(0.0), Some(0.0)], "no map was read yet");

    let global = async |kv: f64| {
        let entries = json!({"default": format!("kvCacheThreshold: {kv}")});
        cluster.testbed.apply(&config_map(SYSTEM, SATURATION_MAP_NAMES[0], &entries)).await
    };
    global(0.65).await?;
    cluster
        .wait_for(served, "served", "scale up by the threshold of the map", |va| target(va) == Some(2))
        .await?;
    let title = format!("{SYSTEM}/{}", SATURATION_MAP_NAMES[0]);
    ensure!(cluster.last_change()? == [json!(title), json!("default.kvCacheThreshold: unset -> 0.65")]);
    global(0.66).await?;
    cluster.wait_for_setting(served, "kvCacheThreshold", 0.66).await?;
    ensure!(cluster.last_change()? == [json!(title), json!("default.kvCacheThreshold: 0.65 -> 0.66")]);
    ensure!(
        cluster.reloads("saturation").await? == [Some(2.0), Some(0.0)],
        "{:?}",
        cluster.reloads("saturation").await?
    );
    Ok(())
}

async fn namespace_map_takes_precedence(cluster: &Cluster, served: &str, other: &str) -> anyhow::Result<()> {
    let model = VariantFixture::new(served, "any").model;
    cluster.apply_saturation_map(served, json!({"default": "kvCacheThreshold: 0.9"})).await?;
    cluster.wait_for_setting(served, "kvCacheThreshold", 0.9).await?;
    let own = format!("model_id: {model}\nkvCacheThreshold: 0.91\nanalyzerName: saturation");
    cluster
        .apply_saturation_map(
            served,
            json!({"default": "kvCacheThreshold: 0.9\nqueueSpareTrigger: 4", "own": own}),
        )
        .await?;
    cluster.wait_for_setting(served, "kvCacheThreshold", 0.91).await?;
    ensure!(cluster.setting(served, "queueSpareTrigger").await? == 4.0, "a field left out is inherited");
    ensure!(cluster.setting(served, "analyzerName").await? == "saturation", "the analyzer is another");
    ensure!(
        cluster.setting(other, "kvCacheThreshold").await? == 0.66,
        "the map applies to another namespace"
    );
    Ok(())
}

async fn deleted_map_falls_back_to_the_next_layer(
    cluster: &Cluster,
    served: &str,
    other: &str,
) -> anyhow::Result<()> {
    let [first, _, last] = SATURATION_MAP_NAMES;
    cluster.testbed.apply(&config_map(SYSTEM, last, &json!({"default": "kvCacheThreshold: 0.7"}))).await?;
    let several = "Several global ConfigMaps of one kind exist: only the first is read; delete the others";
    eventually("the ignored map to be named", DEADLINE, async || {
        let lines = cluster.lines(several);
        ensure!(lines.len() == 1 && lines[0]["ignored"] == last, "{lines:?}");
        Ok(())
    })
    .await?;
    ensure!(cluster.setting(other, "kvCacheThreshold").await? == 0.66, "only the first is read");
    cluster.delete(SYSTEM, first).await?;
    cluster.wait_for_setting(other, "kvCacheThreshold", 0.7).await?;
    ensure!(cluster.setting(served, "kvCacheThreshold").await? == 0.91, "settings of another map were lost");
    cluster.delete(served, LOCAL_SATURATION_MAP_NAME).await?;
    cluster.wait_for_setting(served, "kvCacheThreshold", 0.7).await?;
    ensure!(cluster.setting(served, "analyzerName").await? == "", "the analyzer is the default again");
    cluster.delete(SYSTEM, last).await?;
    cluster.wait_for_setting(served, "kvCacheThreshold", 0.8).await
}

async fn opt_in_label_includes_a_namespace_without_variants(cluster: &Cluster) -> anyhow::Result<()> {
    let names = ["unused", "excluded", "opted-in"];
    let mut namespaces = Vec::new();
    for name in names {
        namespaces.push(cluster.testbed.namespace(name).await?);
    }
    let [unused, excluded, opted_in] = &namespaces[..] else { anyhow::bail!("three namespaces") };
    cluster
        .testbed
        .kubectl(&["annotate", "namespace", excluded, "wva.llmd.ai/exclude=true"])
        .await?
        .success()?;
    for namespace in [excluded, opted_in] {
        let label = ["label", "namespace", namespace, "wva.llmd.ai/config-enabled=true"];
        cluster.testbed.kubectl(&label).await?.success()?;
    }
    cluster.testbed.apply(&VariantFixture::new(excluded, "any").variant()).await?;
    for namespace in [unused, excluded, opted_in] {
        cluster.apply_saturation_map(namespace, json!({"default": "kvCacheThreshold: 0.6"})).await?;
    }
    let was_read = |namespace: &str| {
        let title = format!("{namespace}/{LOCAL_SATURATION_MAP_NAME}");
        cluster.lines(UPDATED).iter().any(|line| line["map"] == *title)
    };
    eventually("the map of the opted-in namespace to be read", DEADLINE, async || {
        ensure!(was_read(opted_in), "it is not");
        Ok(())
    })
    .await?;
    ensure!(!was_read(unused) && !was_read(excluded), "a map was read that must be ignored");
    ensure!(
        cluster.setting(excluded, "kvCacheThreshold").await.is_err(),
        "an excluded namespace has settings"
    );
    // Only the label makes the difference.
    let label = ["label", "namespace", unused, "wva.llmd.ai/config-enabled=true"];
    cluster.testbed.kubectl(&label).await?.success()?;
    eventually("the other one to be read, too", DEADLINE, async || {
        ensure!(was_read(unused), "it is not");
        Ok(())
    })
    .await
}

async fn invalid_entry_keeps_the_last_valid_value(
    cluster: &Cluster,
    served: &str,
    other: &str,
) -> anyhow::Result<()> {
    // No webhook judges the objects from here on.
    let webhooks = "validatingwebhookconfiguration,mutatingwebhookconfiguration";
    cluster.testbed.kubectl(&["delete", webhooks, WEBHOOKS]).await?.success()?;
    cluster.testbed.kubectl(&["delete", "validatingadmissionpolicybinding", "--all"]).await?.success()?;
    let model = VariantFixture::new(served, "any").model;
    let entries = |default: &str, queue: u32| json!({"default": default, "own": format!("model_id: {model}\nqueueLengthThreshold: {queue}")});
    let stored = async |default: &str, queue: u32| {
        eventually("the API server to call no webhook", DEADLINE, async || {
            cluster.apply_saturation_map(other, entries(default, queue)).await
        })
        .await?;
        cluster.wait_for_setting(other, "queueLengthThreshold", queue.into()).await
    };
    stored("kvCacheThreshold: 0.6", 6).await?;
    stored("kvCacheThreshold: high", 7).await?;
    ensure!(cluster.setting(other, "kvCacheThreshold").await? == 0.6, "the last valid value was lost");
    let line = cluster.lines(UNUSABLE).pop().context("no such line")?;
    ensure!(line["entry"] == "default" && line["problem"].to_string().contains("kvCacheThreshold"), "{line}");
    let [_, invalid] = cluster.reloads("saturation").await?;
    ensure!(invalid == Some(1.0), "{invalid:?} changes were invalid");
    stored("kvCacheThreshold: 0.61", 8).await?;
    ensure!(cluster.setting(other, "kvCacheThreshold").await? == 0.61, "the fixed value is not in force");

    // Without a valid value the defaults apply, and the variant reports it.
    cluster.apply_saturation_map(served, json!({"default": "kvCacheThreshold: high"})).await?;
    let names_it = |va: &Value| {
        has_condition(va, "OptimizationReady", ("True", "InvalidConfiguration"))
            && va["status"].to_string().contains("kvCacheThreshold")
    };
    cluster.wait_for(served, "served", "name the invalid field", names_it).await?;
    cluster.wait_for_setting(served, "kvCacheThreshold", 0.8).await
}

/// Permissions that the chart grants to an install for its own namespace.
fn permissions_in_one_namespace(system: &str) -> anyhow::Result<String> {
    let tools = Tools::named(&["helm"])?;
    let rendered = std::process::Command::new(tools.path("helm")?)
        .args(["template", "workload-variant-autoscaler"])
        .arg(repository_path("charts/workload-variant-autoscaler"))
        .args(["--namespace", system, "--set", "wva.namespaceScoped=true"])
        .args(["--set", "wva.prometheus.baseURL=http://127.0.0.1:9"])
        .args(["--show-only", "templates/rbac-manager.yaml"])
        .output()?;
    ensure!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    Ok(String::from_utf8(rendered.stdout)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_roles_suffice_for_one_namespace() -> anyhow::Result<()> {
    let name = "config-maps-of-one-namespace";
    let options =
        Options { name: name.to_owned(), nodes: Vec::new(), with_prometheus: false, ..Options::default() };
    let testbed = Testbed::start(options).await?;
    Install::crd(&testbed).await?;
    let system = testbed.namespace("scoped").await?;
    testbed.apply(&permissions_in_one_namespace(&system)?).await?;
    let account = "workload-variant-autoscaler-controller-manager";
    let kubeconfig = testbed.service_account_kubeconfig(&system, account).await?;
    let saturation = "workload-variant-autoscaler-wva-saturation-scaling-config";
    let env = [
        ("KUBECONFIG", kubeconfig.to_str().context("a path")?),
        ("POD_NAMESPACE", &system),
        ("WATCH_NAMESPACE", &system),
        ("CONFIG_MAP_NAME", "workload-variant-autoscaler-variantautoscaling-config"),
        ("SATURATION_CONFIG_MAP_NAME", saturation),
        ("WEBHOOK_SERVICE", "workload-variant-autoscaler-webhook-service"),
        ("PROMETHEUS_BASE_URL", "http://127.0.0.1:9"),
        ("HEALTH_PROBE_BIND_ADDRESS", "0"),
        ("WVA_DEBUG_BIND_ADDRESS", "0"),
        ("LOG_FORMAT", "json"),
    ];
    let program = Path::new(env!("CARGO_BIN_EXE_wva"));
    let log = testbed.logs().join("wva.log");
    let process = Process::spawn("wva", program, &["run", "--standalone", "--webhook=false"], &env, &log)?;
    // In reverse order of precedence, so that each of them takes effect.
    for map_name in SATURATION_MAP_NAMES.into_iter().rev().chain([saturation]) {
        testbed.apply(&config_map(&system, map_name, &json!({"default": "kvCacheThreshold: 0.7"}))).await?;
        let told = format!("\"map\":\"{system}/{map_name}\"");
        process.wait_logged(DEADLINE, &[UPDATED, &told]).await?;
    }
    let log = process.log();
    ensure!(!log.contains("forbidden") && !log.contains("interrupted"), "{log}");
    Ok(())
}
