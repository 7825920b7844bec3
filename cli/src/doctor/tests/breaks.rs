//! What a person meets for each break: first line and advice of `wva doctor`, and the alert with its section of the runbook.
//! `docs/development/evidence/breaks.md` is this table: `cargo test --package wva-cli breaks -- --ignored` writes it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::world::{World, llm_d_wva};
use super::{Finding, State, VariantState, check_variant, cluster_checks, set_condition};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/development/evidence/breaks.md");
const ALERTS: &str = include_str!("../../../../charts/workload-variant-autoscaler/files/alerts.yaml");
const RUNBOOK: &str = include_str!("../../../../docs/operations/runbook.md");

const HEAD: &str = "\
# Breaks, and what names them

<!-- Written by `cargo test --package wva-cli breaks -- --ignored` from cli/src/doctor/tests/breaks.rs. Do not edit. -->

Each row breaks one thing in a cluster that is otherwise fine. It shows the first line of `wva doctor -n prod a
--prometheus URL` that is not `ok`, its advice, and the alert with the time until it fires. `wva doctor` names the
cause as soon as the controller has seen it: within a cycle (15 s), and within two minutes where an autoscaler does
not follow. The alert links to its section of the [runbook](../../operations/runbook.md).

The test runs the checks of `wva doctor` on the objects of such a cluster and compares them with this page, so no line
is typed in. On a real API server with the real HPA, `tests/e2e/signal.rs` makes 20 breaks between wva and the
workload. It requires that each is named within two minutes by the condition and the event, and then by `wva doctor`.
On 2026-11-30 it took 53 to 104 s, on two busy cores. Where the table has `-`, no controller of wva could report the
break: none manages the variant, or each of two takes it for its own.

| | break | `wva doctor` | advice | alert |
|---|---|---|---|---|
";

struct Break {
    cause: &'static str,
    make: fn(&mut World),
    /// Alert, and the part of its expression that selects the break. Empty if there is none.
    alert: (&'static str, &'static str),
}

const NO_ALERT: (&str, &str) = ("", "");
const NOT_FOLLOWED: (&str, &str) = ("WVASignalNotFollowed", r#"type="SignalFollowed",status="False""#);
const WITHOUT_METRICS: (&str, &str) =
    ("WVAVariantWithoutMetrics", r#"type="MetricsAvailable",status="False""#);
const STUCK: (&str, &str) = ("WVAVariantStuck", r#"reason="Stuck""#);
const NO_LEADER: (&str, &str) = ("WVANoLeader", "sum(wva_leader");

const fn row(cause: &'static str, alert: (&'static str, &'static str), make: fn(&mut World)) -> Break {
    Break { cause, make, alert }
}

static BREAKS: &[Break] = &[
    row("Prometheus is down", WITHOUT_METRICS, |w| {
        prometheus_error(w, "Prometheus at http://prometheus:9090 did not answer within 10 s");
    }),
    row("Prometheus refuses the controller", WITHOUT_METRICS, |w| {
        prometheus_error(w, "Prometheus at https://prometheus:9090 answered 401 Unauthorized");
    }),
    row("the controller is at 0 replicas", NO_LEADER, |w| {
        w.snapshot = None;
        w.controllers[0]["spec"]["replicas"] = json!(0);
        w.controllers[0]["status"] = json!({});
    }),
    row("no replica of the controller is ready", NO_LEADER, |w| {
        w.snapshot = None;
        w.controllers[0]["status"]["readyReplicas"] = json!(0);
    }),
    row("wva is not installed", NO_ALERT, |w| {
        w.snapshot = None;
        w.controllers.clear();
    }),
    row("the controller of the variant's instance is gone", NO_ALERT, |w| {
        w.variant["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "blue"});
    }),
    row("two controllers publish the variant", NO_ALERT, |w| {
        w.controllers.push(llm_d_wva());
    }),
    row("nothing serves external metrics", NOT_FOLLOWED, |w| {
        w.api_service = None;
        no_metric(w, "no custom metrics API (external.metrics.k8s.io) registered");
    }),
    row("the server of external metrics does not answer", NOT_FOLLOWED, |w| {
        w.api_service.as_mut().unwrap()["status"] = json!({"conditions": [
            {"type": "Available", "status": "False", "message": "no endpoints for service wva/wva-webhook-service"}]});
        no_metric(w, "503 the server is currently unable to handle the request");
    }),
    row("`spec.modelID` is empty", ("WVAVariantInvalid", "InvalidConfiguration"), |w| {
        w.variant["spec"]["modelID"] = json!("");
        set_condition(w, 0, "False", "InvalidConfiguration", "spec.modelID is empty");
    }),
    row("two variants have one workload", ("WVAVariantInvalid", "TargetConflict"), |w| {
        set_condition(
            w,
            0,
            "False",
            "TargetConflict",
            "Variant prod/old is older and has the same target; delete one",
        );
    }),
    row("the workload does not exist", ("WVAVariantTargetMissing", "TargetNotFound"), |w| {
        w.deployment["metadata"]["name"] = json!("b");
        set_condition(w, 0, "False", "TargetNotFound", "Deployment a does not exist");
    }),
    row("the model server crashes", STUCK, |w| {
        let waiting =
            json!({"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"});
        w.pods[0]["status"] = json!({"containerStatuses": [{"state": {"waiting": waiting}}]});
        stuck(w);
    }),
    row("no node has the GPU", STUCK, |w| {
        w.pods[0]["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]});
        stuck(w);
    }),
    row("a quota refuses the pods", STUCK, |w| {
        w.pods.clear();
        stuck(w);
    }),
    row("Prometheus does not scrape the pods", WITHOUT_METRICS, |w| {
        w.snapshot = w.snapshot.take().map(|s| s.replace("kv: 0.5, queue: 0, ", ""));
        w.models.clear();
        set_condition(w, 1, "False", "MetricsMissing", "No replica reports metrics");
    }),
    row("`spec.modelID` is not the served name", WITHOUT_METRICS, |w| {
        w.snapshot = w.snapshot.take().map(|s| s.replace("kv: 0.5, queue: 0, ", ""));
        for (series, name) in w.models.iter_mut().zip(["base", "base-lora"]) {
            series.labels.insert("model_name".to_owned(), name.to_owned());
        }
        set_condition(w, 1, "False", "MetricsMissing", "No replica reports metrics");
    }),
    row("the HPA is missing", NOT_FOLLOWED, |w| {
        w.hpas.clear();
        w.signals.clear();
    }),
    row("the HPA scales another workload", NOT_FOLLOWED, |w| {
        w.hpas[0]["spec"]["scaleTargetRef"]["name"] = json!("b");
    }),
    row("the HPA selects another variant", NOT_FOLLOWED, |w| {
        metric(w)["selector"]["matchLabels"] = json!({"variant_name": "b", "exported_namespace": "prod"});
        w.external_values = Ok(Vec::new());
    }),
    row("the HPA reads another metric", NOT_FOLLOWED, |w| metric(w)["name"] = json!("queue_length")),
    row("two HPAs scale the workload", NOT_FOLLOWED, |w| {
        let mut second = w.hpas[0].clone();
        second["metadata"]["name"] = json!("second");
        w.hpas.push(second);
    }),
    row("the HPA takes no step up", NOT_FOLLOWED, |w| {
        w.hpas[0]["spec"]["behavior"]["scaleUp"] = json!({"selectPolicy": "Disabled"});
    }),
    row("the maximum of the variant is below the minimum of the HPA", NOT_FOLLOWED, |w| {
        w.hpas[0]["spec"]["minReplicas"] = json!(4);
        w.variant["spec"]["maxReplicas"] = json!(2);
    }),
    row("KEDA uses its fallback", NOT_FOLLOWED, |w| {
        scaled_object(w)["status"]["conditions"] =
            json!([{"type": "Ready", "status": "True"}, {"type": "Fallback", "status": "True"}]);
    }),
    row("KEDA is paused", NOT_FOLLOWED, |w| {
        scaled_object(w)["metadata"]["annotations"] = json!({"autoscaling.keda.sh/paused": "true"});
    }),
    row("the variant is paused, and the load needs more", ("WVANeedNotMet", "|Paused|"), |w| {
        w.variant["spec"]["mode"] = json!("Paused");
        unmet(w, "Paused", "The model needs 3 replicas more than the mode of the variant allows");
    }),
    row("the load needs more than the maximum", ("WVAVariantAtMaximum", r#"by="maximum""#), |w| {
        unmet(w, "AtMaximum", "The model needs 3 replicas more than the maximum 1 allows");
    }),
    row("GPUs run out", ("WVAVariantLimited", r#"by!="maximum""#), |w| {
        unmet(w, "LimitedByGPUs", "The model needs 3 replicas more than there are GPUs for");
    }),
    row("replicas wait for a quota", ("WVANeedNotMet", "WaitingForQuota"), |w| {
        let wait = "models: [{modelID: m, namespace: prod, variants: [{name: a, current: 2, ready: 1, max: 10, pending: \
            [{age: 2m, state: waitingForQuota}], quotaWait: {quota: gpus}, replicas: [{pod: a-0, kv: 0.95, queue: 9, age: 9s}]}]}]";
        w.snapshot = Some(wait.to_owned());
        unmet(w, "WaitingForQuota", "2 replicas wait for the quota gpus");
    }),
    row("the autoscaler does not carry out the target", ("WVANeedNotMet", "NotCarriedOut"), |w| {
        set_condition(
            w,
            0,
            "False",
            "NotCarriedOut",
            "The target 3 was not carried out: 1 replica after 10m0s",
        );
        w.variant["status"]["desiredOptimizedAlloc"]["numReplicas"] = json!(3);
    }),
];

fn prometheus_error(w: &mut World, error: &str) {
    let rest = "Using the last values of 1 replica(s) until they are too old";
    set_condition(w, 1, "False", "PrometheusError", &format!("{error}. {rest}"));
}

/// What the HPA says without an answer to its query.
fn no_metric(w: &mut World, answer: &str) {
    w.external_values = Err(answer.to_owned());
    w.hpas[0]["status"]["conditions"][1] = json!({"type": "ScalingActive", "status": "False",
        "reason": "FailedGetExternalMetric", "message": format!("unable to get external metric prod/wva_desired_replicas: {answer}")});
}

fn stuck(w: &mut World) {
    w.deployment["status"] = json!({"replicas": 1});
    w.snapshot = w.snapshot.take().map(|s| s.replace("{pod: a-0, kv: 0.5, queue: 0, age: 9s}", ""));
    set_condition(w, 0, "False", "Stuck", "1 replica does not become ready");
    set_condition(w, 1, "False", "MetricsMissing", "No replica reports metrics");
}

fn unmet(w: &mut World, reason: &str, message: &str) {
    let need = json!({"type": "NeedMet", "status": "False", "reason": reason, "message": message});
    w.variant["status"]["conditions"].as_array_mut().unwrap().push(need);
}

fn metric(w: &mut World) -> &mut Value {
    &mut w.hpas[0]["spec"]["metrics"][0]["external"]["metric"]
}

fn scaled_object(w: &mut World) -> &mut Value {
    w.hpas.clear();
    let query = "max(wva_desired_replicas{variant_name=\"a\",exported_namespace=\"prod\"})";
    w.scaled_objects.push(json!({"kind": "ScaledObject", "metadata": {"name": "s", "namespace": "prod"},
        "spec": {"scaleTargetRef": {"name": "a"}, "minReplicaCount": 1,
            "triggers": [{"type": "prometheus", "metadata": {"query": query, "threshold": "1"}}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    w.scaled_objects.last_mut().unwrap()
}

/// A cluster whose external metrics wva serves.
fn world() -> World {
    let mut world = World::new();
    let service = json!({"namespace": "wva", "name": "wva-webhook-service"});
    world.api_service = Some(json!({"spec": {"service": service},
        "status": {"conditions": [{"type": "Available", "status": "True"}]}}));
    world
}

/// Lines of the report that are not `ok`, in its order.
fn findings(make: fn(&mut World)) -> Vec<(&'static str, Finding)> {
    let mut world = world();
    make(&mut world);
    let facts = world.facts();
    let of_variant = check_variant(&VariantState::new(&facts, &facts.objects.variants[0])).findings;
    let all = cluster_checks::check_cluster(&facts).into_iter().chain(of_variant);
    all.filter(|(_, finding)| finding.state > State::Unknown).collect()
}

/// Time until the alert fires, as the runbook's table has it.
fn after(alert: &str) -> &'static str {
    let row = RUNBOOK.lines().find(|line| line.starts_with(&format!("| [{alert}]("))).unwrap();
    row.trim_end_matches(" |").rsplit(" | ").next().unwrap()
}

fn page() -> String {
    let mut out = HEAD.to_owned();
    for (n, Break { cause, make, alert: (alert, _) }) in BREAKS.iter().enumerate() {
        let all = findings(*make);
        // The cause comes before what follows from it; only what is broken comes before a warning.
        let (check, first) = all
            .iter()
            .find(|(_, f)| f.state == State::Broken)
            .or(all.first())
            .unwrap_or_else(|| panic!("{cause}: fine"));
        let word = if first.state == State::Broken { "BROKEN" } else { "warn" };
        let remedy = first.remedy.as_deref().unwrap_or_default();
        let alert = match *alert {
            "" => "-".to_owned(),
            name => format!("[{name}](../../operations/runbook.md#{}), {}", name.to_lowercase(), after(name)),
        };
        let cell = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
        let line = cell(&format!("{check}: {}", first.message));
        let _ = writeln!(out, "| {} | {cause} | **{word}** {line} | {} | {alert} |", n + 1, cell(remedy));
    }
    out
}

#[test]
fn page_of_breaks_is_what_doctor_says() {
    assert!(findings(|_| {}).is_empty(), "{:?}", findings(|_| {}));
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        found == page(),
        "docs/development/evidence/breaks.md is outdated: run the command in its second line"
    );
}

#[test]
#[ignore = "writes docs/development/evidence/breaks.md"]
fn write_page_of_breaks() {
    std::fs::write(PAGE, page()).unwrap();
}

#[test]
fn alert_of_each_break_selects_it() {
    let alerts: Vec<Value> = serde_saphyr::from_str(ALERTS).unwrap();
    for Break { cause, alert: (name, part), .. } in BREAKS.iter().filter(|row| row.alert != NO_ALERT) {
        let alert = alerts
            .iter()
            .find(|alert| alert["alert"] == *name)
            .unwrap_or_else(|| panic!("{cause}: no {name}"));
        assert!(alert["expr"].as_str().unwrap().contains(part), "{cause}: {alert}");
        assert!(RUNBOOK.contains(&format!("\n## {name}\n")), "{cause}: the runbook has no {name}");
    }
}
