//! `/metrics` of a running process against the list of the API, both ways: every metric exists with exactly its labels,
//! and no other metric.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cluster, SOON, cluster, run, wait_until_published};
use anyhow::{Context as _, ensure};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::get;
use wva_testbed::{Fleet, eventually};

/// Name, type and labels, for a controller without an instance. The library defines the process metrics.
const METRICS: [(&str, &str, &[&str]); 43] = [
    ("wva_desired_replicas", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_current_replicas", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_desired_ratio", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("inferno_desired_replicas", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("inferno_current_replicas", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("inferno_desired_ratio", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_replica_scaling_total", "counter", &["direction", "namespace", "reason", "variant_name"]),
    (
        "wva_variant_info",
        "gauge",
        &[
            "accelerator_type", "analyzer", "mode", "model_name", "namespace", "scale_target_kind",
            "scale_target_name", "variant_name",
        ],
    ),
    ("wva_variant_cost", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_variant_gpus", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_variant_ready_replicas", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_variant_min_replicas", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_variant_max_replicas", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_variant_scale_target_replicas", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_variant_kv_cache_usage_ratio", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    ("wva_variant_queue_length", "gauge", &["accelerator_type", "namespace", "variant_name"]),
    (
        "wva_variant_autoscaler_replicas",
        "gauge",
        &["accelerator_type", "autoscaler", "namespace", "variant_name"],
    ),
    ("wva_variant_condition", "gauge", &["namespace", "reason", "status", "type", "variant_name"]),
    ("wva_variant_limited", "gauge", &["by", "namespace", "variant_name"]),
    ("wva_spare_capacity_ratio", "gauge", &["model_name", "namespace"]),
    ("wva_gpus_capacity", "gauge", &["accelerator_type"]),
    ("wva_gpus_free", "gauge", &["accelerator_type"]),
    ("wva_gpus_used", "gauge", &["accelerator_type"]),
    ("wva_engine_cycle_duration_seconds", "histogram", &[]),
    ("wva_engine_cycles_total", "counter", &["result"]),
    ("wva_prometheus_query_duration_seconds", "histogram", &["query"]),
    ("wva_prometheus_query_errors_total", "counter", &["query"]),
    ("wva_prometheus_partial_answers_total", "counter", &["query"]),
    ("wva_admission_review_duration_seconds", "histogram", &["operation", "resource"]),
    ("wva_admission_reviews_total", "counter", &["allowed", "code", "operation", "resource"]),
    ("wva_certificate_expiry_timestamp_seconds", "gauge", &["name"]),
    ("wva_leader", "gauge", &[]),
    ("wva_config_reloads_total", "counter", &["config", "result"]),
    ("wva_unmapped_pods", "gauge", &[]),
    ("wva_variants", "gauge", &["reason"]),
    ("wva_build_info", "gauge", &["revision", "rustc", "version"]),
    ("process_cpu_seconds_total", "counter", &[]),
    ("process_max_fds", "gauge", &[]),
    ("process_open_fds", "gauge", &[]),
    ("process_resident_memory_bytes", "gauge", &[]),
    ("process_start_time_seconds", "gauge", &[]),
    ("process_threads", "gauge", &[]),
    ("process_virtual_memory_bytes", "gauge", &[]),
];
/// Allowed values of labels that are not names of objects.
const CLOSED: [(&str, &[&str]); 11] = [
    ("direction", &["up", "down"]),
    ("analyzer", &["percentage", "saturation", "throughput"]),
    ("autoscaler", &["HorizontalPodAutoscaler", "ScaledObject"]),
    ("by", &["maximum", "gpus", "refused"]),
    ("mode", &["auto", "recommend", "paused", "fixed"]),
    ("result", &["ok", "degraded", "invalid"]),
    ("scale_target_kind", &["Deployment", "StatefulSet", "LeaderWorkerSet"]),
    ("status", &["True", "False", "Unknown"]),
    ("allowed", &["true", "false"]),
    ("operation", &["CREATE", "UPDATE", "DELETE", "other"]),
    ("resource", &["variantautoscalings", "configmaps", "other"]),
];

/// Type and label names of each metric, and values of each label, of a page.
#[derive(Default)]
struct Page {
    types: BTreeMap<String, String>,
    labels: BTreeMap<String, BTreeSet<String>>,
    values: BTreeMap<String, BTreeSet<String>>,
}

impl Page {
    async fn read(cluster: &Cluster) -> anyhow::Result<Self> {
        let (status, text) = get(&format!("http://{}/metrics", cluster.install.address("metrics")?)).await?;
        ensure!(status == 200, "/metrics answered {status}");
        let mut page = Self::default();
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix("# TYPE ") {
                let (name, kind) = heading.split_once(' ').context("a type without a name")?;
                page.types.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                page.add_series(line)?;
            }
        }
        Ok(page)
    }

    fn add_series(&mut self, line: &str) -> anyhow::Result<()> {
        let (series, _) = line.rsplit_once(' ').with_context(|| format!("no value: {line}"))?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let part = |end| {
            name.strip_suffix(end).filter(|name| self.types.get(*name).is_some_and(|t| t == "histogram"))
        };
        let name = ["_bucket", "_sum", "_count"].into_iter().find_map(part).unwrap_or(name);
        ensure!(self.types.contains_key(name), "a series without a type: {line}");
        let all = self.labels.entry(name.to_owned()).or_default();
        // No label value contains a comma or a quote.
        for pair in labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty()) {
            let (label, value) = pair.split_once('=').with_context(|| format!("no label: {line}"))?;
            if label != "le" {
                all.insert(label.to_owned());
                self.values.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_match_the_documented_list() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ns = cluster.testbed.namespace("metrics").await?;
    let fixture = VariantFixture::new(&ns, "counted");
    let _load = Fleet::start(&cluster.testbed, fixture.fleet())?;
    // A replica more than the maximum, so that the limit has a series. An HPA would remove it.
    let model = "bounded".to_owned();
    let bounded = VariantFixture { model, ..VariantFixture::new(&ns, "bounded") }.replicas(2);
    let all = [fixture.all(), bounded.deployment(), bounded.variant()];
    cluster.testbed.apply(&all.join("---\n")).await?;
    let maximum = r#"{"spec": {"maxReplicas": 1}}"#;
    run(cluster, &["patch", "va", "bounded", "-n", &ns, "--type=merge", "-p", maximum]).await?;
    wait_until_published(cluster, &ns, "counted", 1).await?;
    let mut replicas = 1;
    let page = eventually("every metric to have a series", SOON, async || {
        // A change of the target, so that it is counted, and a cycle, for the newest samples.
        replicas = 5 - replicas.clamp(2, 3);
        let mode = format!("wva.llmd.ai/mode=fixed={replicas}");
        run(cluster, &["annotate", "va", "counted", "-n", &ns, "--overwrite", &mode]).await?;
        let page = Page::read(cluster).await?;
        let missing: Vec<_> = METRICS.iter().filter(|(name, ..)| !page.labels.contains_key(*name)).collect();
        ensure!(missing.is_empty(), "{missing:?}");
        Ok(page)
    })
    .await?;
    let documented = include_str!("../../../docs/reference/metrics.md");
    for (name, labels) in &page.labels {
        ensure!(
            name.starts_with("process_") || documented.contains(&format!("`{name}`")),
            "{name} is in no doc"
        );
        let known = METRICS.iter().find(|(known, ..)| known == name);
        let (_, kind, wanted) = known.with_context(|| format!("{name} is not in the API"))?;
        ensure!(page.types[name] == *kind, "{name} is a {}", page.types[name]);
        let wanted: BTreeSet<String> = wanted.iter().map(|&label| label.to_owned()).collect();
        ensure!(*labels == wanted, "{name} has the labels {labels:?}");
    }
    for (label, allowed) in CLOSED {
        for value in &page.values[label] {
            ensure!(allowed.contains(&value.as_str()), "{label}={value:?}");
        }
    }
    Ok(())
}
