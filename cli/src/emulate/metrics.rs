//! `/metrics` of the emulated server, with vLLM's names.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::{Encoder, Histogram, HistogramOpts, Registry, TextEncoder};
use wva_simulator::fleet::engine::Engine;
use wva_simulator::fleet::server::ServedRequest;

use super::timeline::Reading;

/// vLLM's buckets, in seconds.
const FIRST_TOKEN_BUCKETS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// vLLM's buckets, in seconds.
const REQUEST_BUCKETS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];

/// Metrics page of an emulated server.
#[derive(Debug)]
pub struct Metrics {
    model: String,
    /// `vllm:cache_config_info` has no model name.
    cache_labels: String,
    registry: Registry,
    first_token: Histogram,
    request: Histogram,
    asleep: AtomicBool,
}

impl Metrics {
    /// A page whose series have this `model_name`.
    ///
    /// # Errors
    /// The registry refuses a histogram.
    pub fn new(model: &str, engine: &Engine) -> anyhow::Result<Self> {
        let registry = Registry::new();
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let opts = opts.const_label("engine", "0").const_label("model_name", model);
            let histogram = Histogram::with_opts(opts)?;
            registry.register(Box::new(histogram.clone()))?;
            anyhow::Ok(histogram)
        };
        Ok(Self {
            first_token: histogram(
                "vllm:time_to_first_token_seconds", "Time to the first token.", &FIRST_TOKEN_BUCKETS,
            )?,
            request: histogram(
                "vllm:e2e_request_latency_seconds", "Time of a whole request.", &REQUEST_BUCKETS,
            )?,
            cache_labels: format!(
                "block_size=\"{}\",engine=\"0\",num_gpu_blocks=\"{}\"",
                engine.block_size, engine.kv_blocks
            ),
            model: model.to_owned(),
            registry,
            asleep: AtomicBool::new(false),
        })
    }

    /// Lets the engine sleep, or wakes it.
    pub(super) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Counts the latencies of a request.
    pub fn observe(&self, served: &ServedRequest) {
        self.first_token.observe(served.first_token - served.request.arrived);
        self.request.observe(served.ended - served.request.arrived);
    }

    /// The page in the text format 0.0.4.
    ///
    /// # Errors
    /// A histogram cannot be written.
    pub fn page(&self, reading: &Reading) -> anyhow::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        let mut page = String::from_utf8(text)?;
        let model = self.model.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let labels = format!("engine=\"0\",model_name=\"{model}\"");
        let counters = &reading.counters;
        let mut sample = |name: &str, kind: &str, labels: &str, value: f64| {
            let _ = writeln!(page, "# TYPE {name} {kind}\n{name}{{{labels}}} {value}");
        };
        sample("vllm:kv_cache_usage_perc", "gauge", &labels, reading.kv_usage);
        sample("vllm:num_requests_running", "gauge", &labels, real(reading.running as u64));
        sample("vllm:num_requests_waiting", "gauge", &labels, real(reading.waiting as u64));
        let asleep = self.is_asleep();
        for (state, is_own) in [("awake", !asleep), ("weights_offloaded", asleep), ("discard_all", false)] {
            let labels = format!("{labels},sleep_state=\"{state}\"");
            sample("vllm:engine_sleep_state", "gauge", &labels, if is_own { 1.0 } else { 0.0 });
        }
        sample("vllm:cache_config_info", "gauge", &self.cache_labels, 1.0);
        let stopped = format!("{labels},finished_reason=\"length\"");
        sample("vllm:request_success_total", "counter", &stopped, real(counters.requests));
        sample("vllm:prompt_tokens_total", "counter", &labels, real(counters.prompt_tokens));
        sample("vllm:generation_tokens_total", "counter", &labels, real(counters.generated));
        sample("vllm:num_preemptions_total", "counter", &labels, real(counters.preemptions));
        sample("vllm:prefix_cache_queries_total", "counter", &labels, real(counters.prompt_tokens));
        sample("vllm:prefix_cache_hits_total", "counter", &labels, 0.0);
        let mut histogram = |name: &str, sum: f64, count: u64, buckets: &[(f64, u64)]| {
            let _ = writeln!(page, "# TYPE {name} histogram");
            for (bound, up_to) in buckets {
                let _ = writeln!(page, "{name}_bucket{{{labels},le=\"{bound}\"}} {up_to}");
            }
            let _ = writeln!(
                page,
                "{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}"
            );
        };
        for (name, sum, count) in [
            ("vllm:request_prompt_tokens", real(counters.input), counters.requests),
            ("vllm:request_generation_tokens", real(counters.output), counters.requests),
            ("vllm:request_prefill_time_seconds", counters.prefill_seconds, counters.requests),
        ] {
            histogram(name, sum, count, &[]);
        }
        let gaps: Vec<(f64, u64)> = reading.gaps.cumulative().collect();
        // The second name is the older one. Releases during the change export both.
        for name in ["vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"] {
            histogram(name, counters.gap_seconds, counters.gaps, &gaps);
        }
        Ok(page)
    }
}

#[expect(clippy::cast_precision_loss, reason = "no count of an emulated server comes near 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use wva_simulator::fleet::server::Request;
    use wva_simulator::scenario::engines::GUIDE_A100;

    use super::super::timeline::Timeline;
    use super::*;

    #[test]
    fn exports_the_series_that_analyzers_read() {
        let metrics = Metrics::new("a\"b", &GUIDE_A100).unwrap();
        let request = Request { arrived: 1.0, input: 10, output: 10 };
        metrics.observe(&ServedRequest { request, first_token: 1.3, ended: 2.0 });
        let page = metrics.page(&Timeline::new(GUIDE_A100).read()).unwrap();
        let labels = r#"engine="0",model_name="a\"b""#;
        for line in [
            format!("vllm:kv_cache_usage_perc{{{labels}}} 0"),
            format!("vllm:num_requests_waiting{{{labels}}} 0"),
            r#"vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="16000"} 1"#.to_owned(),
            format!("vllm:request_success_total{{{labels},finished_reason=\"length\"}} 0"),
            format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"0.25\"}} 0"),
            format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"0.5\"}} 1"),
            format!("vllm:inter_token_latency_seconds_bucket{{{labels},le=\"0.025\"}} 0"),
            format!("vllm:inter_token_latency_seconds_bucket{{{labels},le=\"+Inf\"}} 0"),
            format!("vllm:inter_token_latency_seconds_count{{{labels}}} 0"),
            format!("vllm:time_per_output_token_seconds_bucket{{{labels},le=\"0.025\"}} 0"),
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
    }
}
