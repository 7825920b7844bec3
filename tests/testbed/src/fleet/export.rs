//! The `/metrics` page of an emulated vLLM server: names, labels and types of real vLLM that the autoscaler and its
//! users read.

use std::fmt::Write as _;

use super::FleetConfig;
use super::queueing::Replica;

/// Figures of one pod.
pub(super) struct Figures<'a> {
    pub(super) config: &'a FleetConfig,
    /// 0..=1, or NaN.
    pub(super) kv: f64,
    pub(super) waiting: f64,
    pub(super) replica: Replica,
    pub(super) asleep: bool,
}

/// Exposition in the text format 0.0.4.
pub(super) fn render(figures: &Figures<'_>) -> String {
    let Figures { config, kv, waiting, replica, asleep } = figures;
    let labels = format!("engine=\"0\",model_name=\"{}\"", escape(&config.model));
    let mut out = String::new();
    let mut series = |name: &str, kind: &str, suffix: &str, labels: &str, value: f64| {
        if !kind.is_empty() {
            let _ = writeln!(out, "# TYPE {name} {kind}");
        }
        let _ = writeln!(out, "{name}{suffix}{{{labels}}} {}", number(value));
    };
    let done = replica.completed;
    let generated = done * f64::from(config.generation_tokens);
    series("vllm:kv_cache_usage_perc", "gauge", "", &labels, *kv);
    series("vllm:num_requests_waiting", "gauge", "", &labels, *waiting);
    series("vllm:num_requests_running", "gauge", "", &labels, replica.running);
    for (state, is_own) in [("awake", !asleep), ("weights_offloaded", *asleep), ("discard_all", false)] {
        let labels = format!("{labels},sleep_state=\"{state}\"");
        series("vllm:engine_sleep_state", "gauge", "", &labels, if is_own { 1.0 } else { 0.0 });
    }
    // vLLM exports this one without a model name.
    let cache = format!(
        "block_size=\"{}\",engine=\"0\",num_gpu_blocks=\"{}\"",
        config.block_size, config.num_gpu_blocks
    );
    series("vllm:cache_config_info", "gauge", "", &cache, 1.0);
    let finished = format!("{labels},finished_reason=\"stop\"");
    series("vllm:request_success_total", "counter", "", &finished, done);
    let prompts = replica.prompt_tokens;
    series("vllm:prompt_tokens_total", "counter", "", &labels, prompts);
    series("vllm:generation_tokens_total", "counter", "", &labels, generated);
    series("vllm:prefix_cache_queries_total", "counter", "", &labels, prompts);
    series("vllm:prefix_cache_hits_total", "counter", "", &labels, prompts * config.prefix_hit_rate);
    for (name, tokens) in [
        ("vllm:request_generation_tokens", generated),
        ("vllm:request_prompt_tokens", replica.completed_prompt_tokens),
    ] {
        series(name, "histogram", "_bucket", &format!("{labels},le=\"+Inf\""), done);
        series(name, "", "_sum", &labels, tokens);
        series(name, "", "_count", &labels, done);
    }
    // Without sums and counts, from which the throughput analyzer learns: this engine has no such steps. The third name
    // is the older one of the second; releases during the change export both.
    let gaps = replica.latencies.gaps.buckets();
    for (name, buckets) in [
        ("vllm:time_to_first_token_seconds", &replica.latencies.first_tokens.buckets()),
        ("vllm:inter_token_latency_seconds", &gaps),
        ("vllm:time_per_output_token_seconds", &gaps),
    ] {
        for (i, (le, count)) in buckets.iter().enumerate() {
            let kind = if i == 0 { "histogram" } else { "" };
            series(name, kind, "_bucket", &format!("{labels},le=\"{le}\""), *count);
        }
    }
    out
}

/// Flow-control queue of the endpoint picker, in the same format.
pub(super) fn render_gateway(model: &str, queued: f64, prompt_tokens: f64) -> String {
    // A text token has about 4 bytes.
    let bytes = queued * prompt_tokens * 4.0;
    let labels = format!("target_model_name=\"{}\"", escape(model));
    [("queue_size", queued), ("queue_bytes", bytes)]
        .map(|(name, value)| {
            let name = format!("inference_extension_flow_control_{name}");
            format!("# TYPE {name} gauge\n{name}{{{labels}}} {}\n", number(value))
        })
        .concat()
}

fn number(value: f64) -> String {
    if value.is_nan() { "NaN".to_owned() } else { value.to_string() }
}

fn escape(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposition_has_names_and_labels_of_vllm() {
        let config =
            FleetConfig { generation_tokens: 50, num_gpu_blocks: 1024, ..FleetConfig::new("", "", "a\"b") };
        let mut replica = Replica {
            running: 2.5,
            waiting: 9.0,
            admitted: 12.0,
            completed: 10.0,
            prompt_tokens: 1200.0,
            completed_prompt_tokens: 1000.0,
            ..Replica::default()
        };
        replica.latencies.first_tokens.observe(0.09, 12.0);
        replica.latencies.gaps.observe(0.02, 490.0);
        let text = render(&Figures { config: &config, kv: f64::NAN, waiting: 3.0, replica, asleep: true });
        let is_latency =
            |line: &str| line.contains("_token_seconds_bucket") || line.contains("_latency_seconds_bucket");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let (latencies, samples): (Vec<&str>, Vec<&str>) = samples.partition(|line| is_latency(line));
        let m = r#"engine="0",model_name="a\"b""#;
        let want = [
            format!("vllm:kv_cache_usage_perc{{{m}}} NaN"),
            format!("vllm:num_requests_waiting{{{m}}} 3"),
            format!("vllm:num_requests_running{{{m}}} 2.5"),
            format!("vllm:engine_sleep_state{{{m},sleep_state=\"awake\"}} 0"),
            format!("vllm:engine_sleep_state{{{m},sleep_state=\"weights_offloaded\"}} 1"),
            format!("vllm:engine_sleep_state{{{m},sleep_state=\"discard_all\"}} 0"),
            r#"vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1024"} 1"#.to_owned(),
            format!("vllm:request_success_total{{{m},finished_reason=\"stop\"}} 10"),
            format!("vllm:prompt_tokens_total{{{m}}} 1200"),
            format!("vllm:generation_tokens_total{{{m}}} 500"),
            format!("vllm:prefix_cache_queries_total{{{m}}} 1200"),
            format!("vllm:prefix_cache_hits_total{{{m}}} 300"),
            format!("vllm:request_generation_tokens_bucket{{{m},le=\"+Inf\"}} 10"),
            format!("vllm:request_generation_tokens_sum{{{m}}} 500"),
            format!("vllm:request_generation_tokens_count{{{m}}} 10"),
            format!("vllm:request_prompt_tokens_bucket{{{m},le=\"+Inf\"}} 10"),
            format!("vllm:request_prompt_tokens_sum{{{m}}} 1000"),
            format!("vllm:request_prompt_tokens_count{{{m}}} 10"),
        ];
        assert_eq!(samples, want);
        for line in [
            format!("vllm:time_to_first_token_seconds_bucket{{{m},le=\"0.08\"}} 0"),
            format!("vllm:time_to_first_token_seconds_bucket{{{m},le=\"0.1\"}} 12"),
            format!("vllm:inter_token_latency_seconds_bucket{{{m},le=\"0.025\"}} 490"),
            format!("vllm:time_per_output_token_seconds_bucket{{{m},le=\"+Inf\"}} 490"),
        ] {
            assert!(latencies.contains(&line.as_str()), "{line} is not in {latencies:#?}");
        }
        assert_eq!(latencies.len(), 23 + 2 * 20);
    }
}
