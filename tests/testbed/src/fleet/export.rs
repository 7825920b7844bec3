//! The `/metrics` page of an emulated vLLM server: names, labels and types of real vLLM that the autoscaler and its
//! users read.

use std::fmt::Write as _;

use super::FleetConfig;
use super::queueing::Replica;

#[cfg(test)]
#[path = "../../../fixtures/page_differences.rs"]
mod page_differences;

/// Size of a page, rounded up.
const PAGE_BYTES: usize = 12_288;
/// How all requests of a fleet end.
const STOPPED: &str = ",finished_reason=\"stop\"";
/// Labels of finished requests. vLLM exports all from the start.
const FINISHED_REASONS: [&str; 5] = [
    STOPPED, ",finished_reason=\"length\"", ",finished_reason=\"abort\"", ",finished_reason=\"error\"",
    ",finished_reason=\"repetition\"",
];

/// Figures of one pod.
pub(super) struct Figures<'a> {
    pub(super) config: &'a FleetConfig,
    /// 0..=1, or NaN.
    pub(super) kv: f64,
    pub(super) waiting: f64,
    pub(super) replica: Replica,
    pub(super) asleep: bool,
    /// When the server started, in seconds since 1970.
    pub(super) created: f64,
}

/// Page under construction.
struct Page {
    text: String,
    /// Labels of every series, for each engine.
    engines: Vec<String>,
    /// Value of all `_created` series.
    created: f64,
}

impl Page {
    fn declare(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
    }

    /// Writes a value that all engines share evenly. `more` is empty, or a comma and more labels.
    fn share(&mut self, name: &str, more: &str, value: f64) {
        let engines = u32::try_from(self.engines.len()).map_or(f64::INFINITY, f64::from);
        self.sample(name, more, value / engines);
    }

    /// Writes a value that every engine has.
    fn sample(&mut self, name: &str, more: &str, value: f64) {
        for labels in &self.engines {
            let _ = writeln!(self.text, "{name}{{{labels}{more}}} {value}");
        }
    }

    fn gauge(&mut self, name: &str, value: f64) {
        self.declare(name, "gauge");
        self.sample(name, "", value);
    }

    /// Writes a counter whose name has no `_total`.
    fn counter(&mut self, name: &str, value: f64) {
        self.labelled_counter(name, &[("", value)]);
    }

    /// Writes a counter with a series for each of these labels.
    fn labelled_counter(&mut self, name: &str, series: &[(&str, f64)]) {
        let (total, created) = (format!("{name}_total"), format!("{name}_created"));
        self.declare(&total, "counter");
        for (label, value) in series {
            self.share(&total, label, *value);
        }
        self.declare(&created, "gauge");
        for (label, _) in series {
            self.sample(&created, label, self.created);
        }
    }

    /// Writes a histogram. `totals` are its sum and count.
    fn histogram(&mut self, name: &str, buckets: &[(String, f64)], totals: Option<(f64, f64)>) {
        self.declare(name, "histogram");
        let bucket = format!("{name}_bucket");
        for (bound, up_to) in buckets {
            self.share(&bucket, &format!(",le=\"{bound}\""), *up_to);
        }
        if let Some((sum, count)) = totals {
            self.share(&format!("{name}_sum"), "", sum);
            self.share(&format!("{name}_count"), "", count);
        }
        self.gauge(&format!("{name}_created"), self.created);
    }
}

/// Exposition in the text format 0.0.4.
pub(super) fn render(figures: &Figures<'_>) -> String {
    let Figures { config, kv, waiting, replica, asleep, created } = figures;
    let model = escape(&config.model);
    let engines = (0..config.engines).map(|engine| format!("engine=\"{engine}\",model_name=\"{model}\""));
    let text = String::with_capacity(PAGE_BYTES * config.engines as usize);
    let mut page = Page { text, engines: engines.collect(), created: *created };
    page.gauge("vllm:kv_cache_usage_perc", *kv);
    for (name, value) in
        [("vllm:num_requests_waiting", *waiting), ("vllm:num_requests_running", replica.running)]
    {
        page.declare(name, "gauge");
        page.share(name, "", value);
    }
    page.declare("vllm:num_requests_waiting_by_reason", "gauge");
    for (reason, value) in [(",reason=\"capacity\"", *waiting), (",reason=\"deferred\"", 0.0)] {
        page.share("vllm:num_requests_waiting_by_reason", reason, value);
    }
    page.declare("vllm:engine_sleep_state", "gauge");
    for (state, is_own) in [("awake", !asleep), ("weights_offloaded", *asleep), ("discard_all", false)] {
        let state = format!(",sleep_state=\"{state}\"");
        page.sample("vllm:engine_sleep_state", &state, f64::from(is_own));
    }
    write_cache_config(&mut page.text, config);
    write_work(&mut page, config, replica);
    page.text
}

/// vLLM exports this one without a model name. The labels are those that wva reads. Each engine reports the blocks of
/// all engines, but the tokens of its own.
fn write_cache_config(text: &mut String, config: &FleetConfig) {
    let FleetConfig { num_gpu_blocks: blocks, block_size: size, engines, .. } = config;
    let tokens = blocks * size / u64::from(*engines);
    let _ = writeln!(text, "# TYPE vllm:cache_config_info gauge");
    for engine in 0..*engines {
        let _ = writeln!(
            text,
            "vllm:cache_config_info{{block_size=\"{size}\",engine=\"{engine}\",kv_cache_size_tokens=\"{tokens}\",\
             mamba_block_size=\"None\",num_gpu_blocks=\"{blocks}\"}} 1"
        );
    }
}

/// Writes counters and histograms.
fn write_work(page: &mut Page, config: &FleetConfig, replica: &Replica) {
    let done = replica.completed;
    let completed_tokens = done * f64::from(config.generation_tokens);
    let finished = FINISHED_REASONS.map(|label| (label, if label == STOPPED { done } else { 0.0 }));
    page.labelled_counter("vllm:request_success", &finished);
    write_rejections(page, config, replica);
    let prompts = replica.prompt_tokens;
    page.counter("vllm:prompt_tokens", prompts);
    // A cancelled request has its first token.
    page.counter("vllm:generation_tokens", completed_tokens + replica.cancelled);
    page.counter("vllm:prefix_cache_queries", prompts);
    page.counter("vllm:prefix_cache_hits", prompts * config.prefix_hit_rate);
    page.counter("vllm:prompt_tokens_cached", prompts * config.prefix_hit_rate);
    for (name, tokens) in [
        ("vllm:request_generation_tokens", completed_tokens),
        ("vllm:request_prompt_tokens", replica.completed_prompt_tokens),
    ] {
        page.histogram(name, &[("+Inf".to_owned(), done)], Some((tokens, done)));
    }
    let first = &replica.latencies.first_tokens;
    let totals = Some((first.sum(), first.count()));
    page.histogram("vllm:time_to_first_token_seconds", &first.buckets(), totals);
    // The throughput analyzer learns from sum and count: this engine has no such steps.
    page.histogram("vllm:inter_token_latency_seconds", &replica.latencies.gaps.buckets(), None);
}

/// A server rejects a request before it has an engine.
fn write_rejections(page: &mut Page, config: &FleetConfig, replica: &Replica) {
    let server = format!("model_name=\"{}\"", escape(&config.model));
    let engines = std::mem::replace(&mut page.engines, vec![server]);
    let reasons =
        [(",reason=\"max_num_queued_reqs\"", replica.rejected), (",reason=\"max_num_queued_tokens\"", 0.0)];
    page.labelled_counter("vllm:admission_rejections", &reasons);
    page.engines = engines;
}

/// Flow-control queue of the endpoint picker, in the same format.
pub(super) fn render_gateway(model: &str, queued: f64, prompt_tokens: f64) -> String {
    // A text token has about 4 bytes.
    let bytes = queued * prompt_tokens * 4.0;
    let labels = format!("target_model_name=\"{}\"", escape(model));
    [("queue_size", queued), ("queue_bytes", bytes)]
        .map(|(name, value)| {
            let name = format!("inference_extension_flow_control_{name}");
            format!("# TYPE {name} gauge\n{name}{{{labels}}} {value}\n")
        })
        .concat()
}

fn escape(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels of the pod of [`busy_pod`].
    const M: &str = r#"engine="0",model_name="a\"b""#;

    fn busy_pod() -> String {
        let config =
            FleetConfig { generation_tokens: 50, num_gpu_blocks: 1024, ..FleetConfig::new("", "", "a\"b") };
        let mut replica = Replica {
            running: 2.5,
            waiting: 9.0,
            admitted: 12.0,
            completed: 10.0,
            rejected: 7.0,
            prompt_tokens: 1200.0,
            completed_prompt_tokens: 1000.0,
            ..Replica::default()
        };
        replica.latencies.first_tokens.observe(0.09, 12.0);
        replica.latencies.gaps.observe(0.02, 490.0);
        let (kv, created) = (f64::NAN, 5.5);
        render(&Figures { config: &config, kv, waiting: 3.0, replica, asleep: true, created })
    }

    fn is_latency(line: &&str) -> bool {
        line.contains("_token_seconds_bucket") || line.contains("_latency_seconds_bucket")
    }

    #[test]
    fn exposition_has_names_and_labels_of_vllm() {
        let text = busy_pod();
        let samples = text.lines().filter(|line| !line.starts_with('#') && !is_latency(line));
        let (created, samples): (Vec<&str>, Vec<&str>) = samples.partition(|line| line.contains("_created{"));
        assert!(created.len() == 16 && created.iter().all(|line| line.ends_with("} 5.5")), "{created:#?}");
        let m = M;
        let want = [
            format!("vllm:kv_cache_usage_perc{{{m}}} NaN"),
            format!("vllm:num_requests_waiting{{{m}}} 3"),
            format!("vllm:num_requests_running{{{m}}} 2.5"),
            format!("vllm:num_requests_waiting_by_reason{{{m},reason=\"capacity\"}} 3"),
            format!("vllm:num_requests_waiting_by_reason{{{m},reason=\"deferred\"}} 0"),
            format!("vllm:engine_sleep_state{{{m},sleep_state=\"awake\"}} 0"),
            format!("vllm:engine_sleep_state{{{m},sleep_state=\"weights_offloaded\"}} 1"),
            format!("vllm:engine_sleep_state{{{m},sleep_state=\"discard_all\"}} 0"),
            "vllm:cache_config_info{block_size=\"16\",engine=\"0\",kv_cache_size_tokens=\"16384\",\
             mamba_block_size=\"None\",num_gpu_blocks=\"1024\"} 1"
                .to_owned(),
            format!("vllm:request_success_total{{{m},finished_reason=\"stop\"}} 10"),
            format!("vllm:request_success_total{{{m},finished_reason=\"length\"}} 0"),
            format!("vllm:request_success_total{{{m},finished_reason=\"abort\"}} 0"),
            format!("vllm:request_success_total{{{m},finished_reason=\"error\"}} 0"),
            format!("vllm:request_success_total{{{m},finished_reason=\"repetition\"}} 0"),
            r#"vllm:admission_rejections_total{model_name="a\"b",reason="max_num_queued_reqs"} 7"#.to_owned(),
            r#"vllm:admission_rejections_total{model_name="a\"b",reason="max_num_queued_tokens"} 0"#
                .to_owned(),
            format!("vllm:prompt_tokens_total{{{m}}} 1200"),
            format!("vllm:generation_tokens_total{{{m}}} 500"),
            format!("vllm:prefix_cache_queries_total{{{m}}} 1200"),
            format!("vllm:prefix_cache_hits_total{{{m}}} 300"),
            format!("vllm:prompt_tokens_cached_total{{{m}}} 300"),
            format!("vllm:request_generation_tokens_bucket{{{m},le=\"+Inf\"}} 10"),
            format!("vllm:request_generation_tokens_sum{{{m}}} 500"),
            format!("vllm:request_generation_tokens_count{{{m}}} 10"),
            format!("vllm:request_prompt_tokens_bucket{{{m},le=\"+Inf\"}} 10"),
            format!("vllm:request_prompt_tokens_sum{{{m}}} 1000"),
            format!("vllm:request_prompt_tokens_count{{{m}}} 10"),
            format!("vllm:time_to_first_token_seconds_sum{{{m}}} 1.08"),
            format!("vllm:time_to_first_token_seconds_count{{{m}}} 12"),
        ];
        assert_eq!(samples, want);
    }

    #[test]
    fn latencies_have_the_buckets_of_vllm() {
        let (text, m) = (busy_pod(), M);
        let latencies: Vec<&str> = text.lines().filter(is_latency).collect();
        for line in [
            format!("vllm:time_to_first_token_seconds_bucket{{{m},le=\"0.08\"}} 0"),
            format!("vllm:time_to_first_token_seconds_bucket{{{m},le=\"0.1\"}} 12"),
            format!("vllm:inter_token_latency_seconds_bucket{{{m},le=\"0.025\"}} 490"),
            format!("vllm:inter_token_latency_seconds_bucket{{{m},le=\"+Inf\"}} 490"),
        ] {
            assert!(latencies.contains(&line.as_str()), "{line} is not in {latencies:#?}");
        }
        assert_eq!(latencies.len(), 23 + 20);
    }

    #[test]
    fn engines_share_the_load_and_the_cache_of_a_pod() {
        let config = FleetConfig { engines: 2, generation_tokens: 50, ..FleetConfig::new("", "", "m") };
        let replica = Replica { running: 7.0, completed: 10.0, cancelled: 4.0, ..Replica::default() };
        let text =
            render(&Figures { config: &config, kv: 0.5, waiting: 3.0, replica, asleep: false, created: 5.5 });
        for engine in [0, 1] {
            let m = format!("engine=\"{engine}\",model_name=\"m\"");
            for line in [
                format!("vllm:kv_cache_usage_perc{{{m}}} 0.5"),
                format!("vllm:num_requests_running{{{m}}} 3.5"),
                format!("vllm:num_requests_waiting{{{m}}} 1.5"),
                format!("vllm:num_requests_waiting_by_reason{{{m},reason=\"capacity\"}} 1.5"),
                format!("vllm:engine_sleep_state{{{m},sleep_state=\"awake\"}} 1"),
                // The recorded engine counts an aborted request under no reason.
                format!("vllm:request_success_total{{{m},finished_reason=\"stop\"}} 5"),
                format!("vllm:request_success_total{{{m},finished_reason=\"abort\"}} 0"),
                format!("vllm:generation_tokens_total{{{m}}} 252"),
                format!("vllm:request_generation_tokens_sum{{{m}}} 250"),
                format!("vllm:request_success_created{{{m},finished_reason=\"stop\"}} 5.5"),
                format!(
                    "vllm:cache_config_info{{block_size=\"16\",engine=\"{engine}\",kv_cache_size_tokens=\"32768\",\
                     mamba_block_size=\"None\",num_gpu_blocks=\"4096\"}} 1"
                ),
            ] {
                assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
            }
        }
    }

    /// In addition to what no emulated page has.
    const DIFFERENCES_ON_PURPOSE: &[&str] = &[
        // The fluid model knows no such times.
        "- vllm:e2e_request_latency_seconds",
        "- vllm:request_prefill_time_seconds",
        // The throughput analyzer would learn step times from them, which a fleet with fixed times does not have.
        "- vllm:inter_token_latency_seconds_count",
        "- vllm:inter_token_latency_seconds_sum",
        // The KV cache only limits how many requests run.
        "- vllm:num_preemptions",
    ];

    #[test]
    fn page_differs_from_recorded_one_only_on_purpose() {
        let config = FleetConfig::new("", "", "m");
        let replica = Replica::default();
        let page =
            render(&Figures { config: &config, kv: 0.5, waiting: 0.0, replica, asleep: false, created: 5.5 });
        page_differences::assert_differences(&page, DIFFERENCES_ON_PURPOSE);
        assert!(page.len() <= PAGE_BYTES, "{} bytes", page.len());
    }
}
