//! The switch from llm-d's blueprints to wva, and back. KEDA scales a model by a blueprint, `wva migrate` makes the
//! objects, and KEDA follows wva once they are applied. A fake: the page with the series of the router and of
//! kube-state-metrics, which the test writes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::routing::get;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Engine, Fleet, FleetConfig, Testbed, eventually, run};

use super::Stage;
use crate::command::SOON;
use crate::history::History;
use crate::report::Report;

const BLUEPRINTS: [&str; 4] = ["queue", "saturation", "token-aware", "slo-aware"];
const MODEL: &str = "qwen";
/// Name of the workload, as in the blueprints.
const WORKLOAD: &str = "decode";
const REPLICAS: u32 = 3;
/// An emulated replica serves 5.4 requests a second of this engine.
const ENGINE: Engine = Engine { a: 0.015, b: 0.000_5, c: 0.000_05 };
/// Longer than KEDA's fallback needs, and than several cycles of wva.
const WATCHED: Duration = Duration::from_mins(1);

/// One model that KEDA scales by a blueprint.
struct Site<'a> {
    testbed: &'a Testbed,
    wva: &'a Path,
    name: &'static str,
    namespace: String,
    blueprint: Vec<Value>,
    workload: String,
    history: History,
    _fleet: Fleet,
    _watching: JoinSet<()>,
}

/// One row for each blueprint.
pub(super) async fn switch(stage: &Stage<'_>, report: &mut Report) -> anyhow::Result<()> {
    for name in BLUEPRINTS {
        let _page = page(stage.testbed, name).await?;
        let site = Site::start(stage, name).await.with_context(|| format!("blueprint {name}"))?;
        let before = Instant::now();
        site.migrate().await?;
        site.follows("s0-prometheus", "the target").await?;
        tokio::time::sleep(WATCHED).await;
        let there = site.path_since(before);
        let after = Instant::now();
        site.go_back().await?;
        tokio::time::sleep(WATCHED).await;
        let back = site.path_since(after);
        let figures =
            format!("{} changes in {} s; {} on the way back", there.len(), WATCHED.as_secs(), back.len());
        let what = format!("switch from the {name} blueprint to wva, and back");
        report.row(&what, figures, "0 changes of replicas", there.is_empty() && back.is_empty())?;
        site.end().await?;
    }
    Ok(())
}

impl<'a> Site<'a> {
    /// Waits until KEDA's HPA asks for the replicas that the workload has, by the signals of the blueprint.
    async fn start(stage: &Stage<'a>, name: &'static str) -> anyhow::Result<Self> {
        let testbed = stage.testbed;
        let namespace = namespace(name);
        testbed
            .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"))
            .await?;
        let fixture = VariantFixture { model: MODEL.to_owned(), ..VariantFixture::new(&namespace, WORKLOAD) };
        let fleet =
            Fleet::start(testbed, FleetConfig { engine: Some(ENGINE), rate: rate(name), ..fixture.fleet() })?;
        let fixture = fixture.replicas(REPLICAS).port(fleet.port());
        let served = format!("args: [--served-model-name={MODEL}]\n        ports:");
        let workload = fixture.deployment().replacen("ports:", &served, 1);
        testbed.apply(&workload).await?;
        fleet.wait_ready(REPLICAS as usize, SOON).await?;
        let history = History::default();
        let watching = history.follow(Api::<Deployment>::namespaced(testbed.admin()?, &namespace));
        let blueprint = blueprint(testbed, name, &namespace)?;
        let site = Self {
            testbed,
            wva: stage.wva,
            name,
            namespace,
            blueprint,
            workload,
            history,
            _fleet: fleet,
            _watching: watching,
        };
        if let Some(rules) = site.blueprint.iter().find(|object| object["kind"] == "PrometheusRule") {
            testbed.prometheus_rules(name, &rules["spec"]).await?;
        }
        site.apply(&site.scaled_object()?.to_string()).await?;
        site.follows(site.own_metric(), "the blueprint").await?;
        site.settles().await?;
        Ok(site)
    }

    /// All servers are scraped, and none has a queue from the start, when one of them had all requests.
    async fn settles(&self) -> anyhow::Result<()> {
        let of_site = format!("vllm:num_requests_waiting{{namespace=\"{}\"}}", self.namespace);
        let servers = format!("count(max_over_time({of_site}[10s]) < 3)");
        eventually(&format!("the servers of {} to settle", self.namespace), SOON, async || {
            let found = self.testbed.prometheus_query(&servers).await?;
            let settled = found.first().map_or(0.0, |sample| sample.value);
            ensure!(settled >= f64::from(REPLICAS), "{settled} of {REPLICAS} have no queue");
            Ok(())
        })
        .await
    }

    fn scaled_object(&self) -> anyhow::Result<&Value> {
        let found = self.blueprint.iter().find(|object| object["kind"] == "ScaledObject");
        found.context("the fixture has no ScaledObject")
    }

    /// Part of the name of its metric in KEDA's HPA. Triggers in a formula make one.
    fn own_metric(&self) -> &'static str {
        if self.blueprint[0].pointer("/spec/advanced/scalingModifiers").is_some() {
            "composite-metric"
        } else {
            "-prometheus"
        }
    }

    /// Shows a wrong value at once: by default an HPA waits five minutes before it scales down.
    async fn apply(&self, objects: &str) -> anyhow::Result<()> {
        let mut all: Vec<Value> = serde_saphyr::from_multiple(objects)?;
        for object in all.iter_mut().filter(|object| object["kind"] == "ScaledObject") {
            object["spec"]["pollingInterval"] = json!(2);
            for direction in ["scaleUp", "scaleDown"] {
                object["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"][direction]["stabilizationWindowSeconds"] =
                    json!(0);
            }
        }
        let text: Vec<String> = all.iter().map(Value::to_string).collect();
        self.testbed.apply(&text.join("\n---\n")).await
    }

    /// Reads the cluster, or with recording rules the files: this API server has no kind for them.
    async fn migrate(&self) -> anyhow::Result<()> {
        let has_rules = self.blueprint.len() > 1;
        let files = self.blueprint.iter().map(Value::to_string).chain([self.workload.clone()]);
        let input = files.collect::<Vec<_>>().join("\n---\n");
        let arguments = if has_rules { ["migrate", "-", "-n"] } else { ["migrate", "-o=yaml", "-n"] };
        let mut command = tokio::process::Command::new(self.wva);
        command.env("KUBECONFIG", self.testbed.admin_kubeconfig()).args(arguments).arg(&self.namespace);
        let ran = run("wva migrate", command, if has_rules { &input } else { "" }, SOON).await?;
        ensure!(ran.ok, "wva migrate failed: {}\n{}", ran.stderr, ran.stdout);
        self.apply(&ran.stdout).await
    }

    /// The blueprint as it was, without the variant.
    async fn go_back(&self) -> anyhow::Result<()> {
        self.apply(&self.scaled_object()?.to_string()).await?;
        self.follows(self.own_metric(), "the blueprint again").await?;
        let delete = ["delete", "va", WORKLOAD, "-n", &self.namespace];
        self.testbed.kubectl(&delete).await?.success().map(drop)
    }

    /// KEDA's HPA is active, reads a metric whose name has this part, and asks for all replicas.
    async fn follows(&self, metric: &str, what: &str) -> anyhow::Result<()> {
        eventually(&format!("the HPA to follow {what} in {}", self.namespace), SOON, async || {
            let get = ["get", "hpa", "-n", &self.namespace, "-o", "json"];
            let list: Value = serde_json::from_str(&self.testbed.kubectl(&get).await?.success()?)?;
            let hpa = &list["items"][0];
            let conditions = hpa["status"]["conditions"].as_array().into_iter().flatten();
            let active =
                conditions.filter(|it| it["type"] == "ScalingActive" && it["status"] == "True").count() == 1;
            let wanted = hpa["status"]["desiredReplicas"] == REPLICAS;
            let reads = hpa["status"]["currentMetrics"].to_string().contains(metric);
            ensure!(active && wanted && reads, "{}: {}", self.name, hpa["status"]);
            Ok(())
        })
        .await
    }

    fn path_since(&self, since: Instant) -> Vec<i32> {
        self.history.all().iter().filter(|(at, _)| *at > since).map(|(_, replicas)| *replicas).collect()
    }

    async fn end(self) -> anyhow::Result<()> {
        let delete = ["delete", "scaledobject", "--all", "-n", &self.namespace, "--wait=false"];
        self.testbed.kubectl(&delete).await?.success().map(drop)
    }
}

/// Requests a second that need three replicas at the planned utilization, which `wva migrate` takes from the saturation
/// blueprint and else leaves at its default.
fn rate(blueprint: &str) -> f64 {
    if blueprint == "saturation" { 10.5 * 0.7 / 0.85 } else { 10.5 }
}

fn namespace(name: &str) -> String {
    format!("blueprint-{name}")
}

fn blueprint(testbed: &Testbed, name: &str, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/migrate/blueprints")
        .join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = text.replace("NAMESPACE", namespace).replace("MODEL", MODEL);
    Ok(serde_saphyr::from_multiple(&text.replace("PROMETHEUS", &testbed.prometheus_url()?))?)
}

/// Serves the series of the blueprint until the set is dropped. Each one asks for three replicas.
async fn page(testbed: &Testbed, name: &str) -> anyhow::Result<JoinSet<()>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let began = Instant::now();
    let router = Router::new().route("/metrics", get(async move || series(began.elapsed())));
    let mut server = JoinSet::new();
    server.spawn(async move { drop(axum::serve(listener, router).await) });
    let namespace = namespace(name);
    let labels = [("service", "pool-epp"), ("namespace", namespace.as_str())];
    let labels: BTreeMap<String, String> =
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    testbed.scrape(&format!("router-{name}"), &address, "/metrics", &labels)?;
    Ok(server)
}

/// Latencies of 1.45 s and 49 ms at the 90th percentile, between the thresholds of the slo-aware blueprint. The scrape
/// adds the labels of the Service.
fn series(running_for: Duration) -> String {
    let requests = running_for.as_secs() * 10;
    let histogram = |name: &str, [below, above]: [&str; 2]| {
        format!(
            "{name}_bucket{{le=\"{below}\"}} 0\n{name}_bucket{{le=\"{above}\"}} {requests}\n{name}_bucket{{le=\"+Inf\"}} {requests}\n"
        )
    };
    let of_model = format!("model_name=\"{MODEL}\"");
    let of_workload = format!("deployment=\"{WORKLOAD}\"");
    [
        format!("llm_d_epp_flow_control_queue_size{{{of_model}}} 0\n"),
        format!("llm_d_epp_request_running{{{of_model}}} 40\n"),
        "llm_d_epp_flow_control_pool_saturation{inference_pool=\"pool\"} 0.6\n".to_owned(),
        "llm_d_epp_inflight_tokens{producer_name=\"inflight-load-producer\"} 59730\n".to_owned(),
        format!("kube_deployment_status_replicas{{{of_workload}}} {REPLICAS}\n"),
        format!("kube_deployment_status_replicas_ready{{{of_workload}}} {REPLICAS}\n"),
        histogram("llm_d_epp_request_ttft_seconds", ["1.0", "1.5"]),
        histogram("llm_d_epp_request_streaming_tpot_seconds", ["0.04", "0.05"]),
    ]
    .concat()
}
