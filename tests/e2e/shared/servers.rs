//! One model on vLLM, SGLang and an older vLLM at once, through a real Prometheus. The servers are emulated.

use crate::support::{DEADLINE, fleet_config, saturation_map, target};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_cli::emulate::as_sglang;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Fleet, FleetConfig, eventually};

/// A release that renames the KV cache use, and exports it under both names.
fn as_older_vllm(page: &str) -> String {
    let kv: String =
        page.lines().filter(|line| line.contains("kv_cache_usage_perc")).fold(String::new(), |text, line| {
            text + &line.replace("kv_cache_usage_perc", "gpu_cache_usage_perc") + "\n"
        });
    kv + &with_older_names(page)
}

/// vLLM 0.8, without the current names.
fn as_oldest_vllm(page: &str) -> String {
    with_older_names(page).replace("kv_cache_usage_perc", "gpu_cache_usage_perc")
}

/// The older name of the time between tokens, and a cache without its size in tokens.
fn with_older_names(page: &str) -> String {
    page.replace("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
        .replace("kv_cache_size_tokens=\"65536\",", "")
}

/// vLLM's page with the series of a router. All its requests stream, in two priorities: the router observes as many as
/// two of the four servers.
fn with_fake_router(page: &str) -> String {
    let model =
        page.split_once("model_name=\"").and_then(|(_, rest)| rest.split('"').next()).unwrap_or_default();
    let of_model = format!("model_name=\"{model}\",target_model_name=\"{model}\"");
    let first_tokens: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("vllm:time_to_first_token_seconds_bucket{"))
        .collect();
    let mut lines = vec![page.to_owned()];
    for priority in [0, 1] {
        let tenant = format!("fairness_id=\"default\",priority=\"{priority}\"");
        let streamed = format!("{tenant},streaming=\"true\",target_model_name=\"{model}\"");
        let bucket = |rest: &&str| format!("llm_d_epp_request_ttft_seconds_bucket{{{streamed},{rest}");
        lines.extend(first_tokens.iter().map(bucket));
        lines.push(format!("llm_d_epp_request_running{{{tenant},{of_model}}} 4"));
    }
    let pool = "inference_pool=\"pool\"";
    lines.push(format!("llm_d_epp_flow_control_queue_size{{{pool},{of_model}}} 0"));
    for (stage, saturation) in [("decode", 0.25), ("effective", 0.5)] {
        lines
            .push(format!("llm_d_epp_flow_control_pool_saturation{{{pool},stage=\"{stage}\"}} {saturation}"));
    }
    lines.join("\n") + "\n"
}

/// Rewrites the metrics page of the emulated server.
type Rewrite = fn(&str) -> String;

const FLEETS: [(&str, Option<Rewrite>); 4] = [
    ("vllm", Some(with_fake_router)),
    ("sglang", Some(as_sglang)),
    ("older", Some(as_older_vllm)),
    ("oldest", Some(as_oldest_vllm)),
];

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_one_model_count_alike() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("servers").await?;
    let fleet = |(name, page): (&str, _)| {
        let config = FleetConfig { selector: format!("app={name}"), rate: 5.0, page, ..fleet_config(&ns) };
        Fleet::start(&cluster.testbed, config)
    };
    let fleets = FLEETS.into_iter().map(fleet).collect::<anyhow::Result<Vec<_>>>()?;
    let entry = "{analyzerName: token, shadowAnalyzer: throughput, ttftSlo: 90, itlSlo: 17.5}";
    cluster.testbed.apply(&saturation_map(&ns, entry)).await?;
    for (name, _) in FLEETS {
        cluster.testbed.apply(&VariantFixture::new(&ns, name).all()).await?;
    }
    eventually("the snapshot to show every signal of every server", DEADLINE, async || {
        let model = cluster.model(&ns).await?;
        let variants = model["variants"].as_array().context("no variants")?;
        ensure!(variants.len() == FLEETS.len(), "{} variants", variants.len());
        variants.iter().try_for_each(has_every_signal)?;
        let router = &model["router"];
        ensure!(*router == json!({"running": 8.0, "saturation": 0.5}), "router: {router}");
        Ok(())
    })
    .await?;
    // The first round of latencies may be too early for an increase; the next comes a minute later.
    eventually("first tokens at the router to count", DEADLINE, async || {
        let attainment = &cluster.model(&ns).await?["attainment"];
        ensure!(attainment["atRouter"] == true && attainment["ttft"]["5m"].is_number(), "{attainment}");
        Ok(())
    })
    .await?;
    for fleet in &fleets {
        fleet.set_fixed_all(0.97, 40.0);
    }
    eventually("a variant of the model to grow", DEADLINE, async || {
        let mut targets = Vec::new();
        for (name, _) in FLEETS {
            targets.push(target(&cluster.variant(&ns, name).await?));
        }
        ensure!(targets.iter().any(|target| *target > Some(1)), "{targets:?}");
        Ok(())
    })
    .await?;
    for query in [
        "kv_usage", "queue", "sample_age", "running", "cache_config", "tokens", "prefix_hit_rate", "work",
        "work_before", "time_to_first_token", "inter_token_latency",
    ] {
        let errors = cluster.install.series("wva_prometheus_query_errors_total", &[("query", query)]).await?;
        ensure!(errors == Some(0.0), "{query}: {errors:?} queries failed");
    }
    Ok(())
}

fn has_every_signal(variant: &Value) -> anyhow::Result<()> {
    let name = variant["name"].as_str().unwrap_or_default();
    let replica = &variant["replicas"][0];
    ensure!(variant["running"].as_f64() > Some(0.0), "nothing runs: {variant}");
    ensure!(replica["kv"].as_f64() > Some(0.0) && replica["queue"].is_number(), "{name}: {replica}");
    let server = if name == "sglang" { Value::from("sglang") } else { Value::Null };
    ensure!(replica["server"] == server, "{name}: {replica}");
    let capacity = replica["numGpuBlocks"].as_f64().zip(replica["blockSize"].as_f64());
    ensure!(
        capacity.is_some_and(|(blocks, size)| (blocks * size - 65536.0).abs() < 1.0),
        "{name}: {replica}"
    );
    for (key, wanted) in [("meanInput", 512.0), ("meanOutput", 128.0), ("prefixHitRate", 0.25)] {
        let found = replica[key].as_f64().with_context(|| format!("{name} has no {key}: {replica}"))?;
        // SGLang counts prompts by the requests that end.
        ensure!((found - wanted).abs() < 0.2 * wanted, "{name}: {key} is {found}");
    }
    let work =
        replica["work"].as_array().and_then(|all| all.first()).with_context(|| format!("{name}: no work"))?;
    for key in ["completed", "promptTokens", "generatedTokens"] {
        ensure!(work[key].as_f64() > Some(0.0), "{name}: {key} in {work}");
    }
    Ok(())
}

/// Two servers of each pod have equal labels of engine and model, and differ in the port of `instance`.
#[tokio::test(flavor = "multi_thread")]
async fn servers_of_one_pod_add_up() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("two-servers").await?;
    let fleets = [fleet_config(&ns), fleet_config(&ns)].map(|config| Fleet::start(&cluster.testbed, config));
    let fleets = fleets.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    for (fleet, (kv, waiting)) in fleets.iter().zip([(0.2, 1.0), (0.4, 2.0)]) {
        fleet.set_fixed_all(kv, waiting);
        fleet.set_rate(4.0);
    }
    cluster.testbed.apply(&saturation_map(&ns, "analyzerName: throughput")).await?;
    cluster.testbed.apply(&VariantFixture::new(&ns, "a").all()).await?;
    eventually("both servers of the pod to add up", DEADLINE, async || {
        let model = cluster.model(&ns).await?;
        let replica = &model["variants"][0]["replicas"][0];
        let kv = replica["kv"].as_f64().context("no KV use")?;
        ensure!((kv - 0.3).abs() < 0.01 && replica["queue"] == 3.0, "{replica}");
        ensure!(replica["ranks"] == 2, "{replica}");
        let work = replica["work"].as_array().and_then(|all| all.last()).context("no work")?;
        // Each waits and counts on its own.
        ensure!(work["waiting"] == 3.0 && work["completed"].as_f64() > Some(0.0), "{work}");
        Ok(())
    })
    .await
}
