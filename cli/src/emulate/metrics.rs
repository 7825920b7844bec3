//! `/metrics` of the emulated server, with vLLM's names.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use prometheus::core::Metric as _;
use prometheus::{Histogram, HistogramOpts};
use wva_simulator::fleet::engine::Engine;
use wva_simulator::fleet::server::ServedRequest;

use super::page::Page;
use super::timeline::Reading;

#[cfg(test)]
#[path = "../../../tests/fixtures/page_differences.rs"]
mod page_differences;

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

/// How all requests end: they generate as many tokens as they ask for.
const FINISHED: &str = ",finished_reason=\"length\"";
/// Labels of finished requests. vLLM exports all from the start.
const FINISHED_REASONS: [&str; 5] = [
    ",finished_reason=\"stop\"", FINISHED, ",finished_reason=\"abort\"", ",finished_reason=\"error\"",
    ",finished_reason=\"repetition\"",
];

/// Metrics page of an emulated server.
#[derive(Debug)]
pub struct Metrics {
    labels: String,
    /// `vllm:cache_config_info` has no model name.
    cache_labels: String,
    /// Start of the server, in seconds since 1970.
    created: f64,
    first_token: Histogram,
    request: Histogram,
    asleep: AtomicBool,
}

impl Metrics {
    /// A page whose series have this `model_name`.
    ///
    /// # Errors
    /// The buckets of a histogram are out of order.
    pub fn new(model: &str, engine: &Engine) -> anyhow::Result<Self> {
        let histogram = |name: &str, buckets: &[f64]| {
            Histogram::with_opts(HistogramOpts::new(name, name).buckets(buckets.to_vec()))
        };
        let model = model.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        Ok(Self {
            labels: format!("engine=\"0\",model_name=\"{model}\""),
            cache_labels: format!(
                "block_size=\"{}\",engine=\"0\",kv_cache_size_tokens=\"{}\",mamba_block_size=\"None\",num_gpu_blocks=\"{}\"",
                engine.block_size,
                engine.kv_tokens(),
                engine.kv_blocks
            ),
            created: UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64()),
            first_token: histogram("first_token", &FIRST_TOKEN_BUCKETS)?,
            request: histogram("request", &REQUEST_BUCKETS)?,
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
    #[must_use]
    pub fn page(&self, reading: &Reading) -> String {
        let mut page = Page::new(&self.labels, self.created);
        let waiting = real(reading.waiting as u64);
        page.gauge("vllm:kv_cache_usage_perc", reading.kv_usage);
        page.gauge("vllm:num_requests_running", real(reading.running as u64));
        page.gauge("vllm:num_requests_waiting", waiting);
        page.declare("vllm:num_requests_waiting_by_reason", "gauge");
        for (reason, value) in [(",reason=\"capacity\"", waiting), (",reason=\"deferred\"", 0.0)] {
            page.sample("vllm:num_requests_waiting_by_reason", reason, value);
        }
        let asleep = self.is_asleep();
        page.declare("vllm:engine_sleep_state", "gauge");
        for (state, is_own) in [("awake", !asleep), ("weights_offloaded", asleep), ("discard_all", false)] {
            let state = format!(",sleep_state=\"{state}\"");
            page.sample("vllm:engine_sleep_state", &state, f64::from(is_own));
        }
        page.info("vllm:cache_config_info", &self.cache_labels);
        self.write_work(&mut page, reading);
        page.into_text()
    }

    /// Writes counters and histograms.
    fn write_work(&self, page: &mut Page<'_>, reading: &Reading) {
        let counters = &reading.counters;
        let requests = real(counters.requests);
        let finished = FINISHED_REASONS.map(|label| (label, if label == FINISHED { requests } else { 0.0 }));
        page.counter("vllm:request_success", &finished);
        for (name, value) in [
            ("vllm:prompt_tokens", real(counters.prompt_tokens)),
            ("vllm:prompt_tokens_cached", real(counters.cached_tokens)),
            ("vllm:generation_tokens", real(counters.generated)),
            ("vllm:num_preemptions", real(counters.preemptions)),
            ("vllm:prefix_cache_queries", real(counters.prompt_tokens)),
            ("vllm:prefix_cache_hits", real(counters.cached_tokens)),
        ] {
            page.counter(name, &[("", value)]);
        }
        for (name, histogram) in [
            ("vllm:time_to_first_token_seconds", &self.first_token),
            ("vllm:e2e_request_latency_seconds", &self.request),
        ] {
            let metric = histogram.metric();
            let buckets = metric.get_histogram().get_bucket().iter();
            let buckets = buckets.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
            page.histogram(name, histogram.get_sample_sum(), histogram.get_sample_count(), buckets);
        }
        for (name, sum) in [
            ("vllm:request_prompt_tokens", real(counters.input)),
            ("vllm:request_generation_tokens", real(counters.output)),
            ("vllm:request_prefill_time_seconds", counters.prefill_seconds),
        ] {
            page.histogram(name, sum, counters.requests, []);
        }
        let (name, buckets) = ("vllm:inter_token_latency_seconds", reading.gaps.cumulative());
        page.histogram(name, counters.gap_seconds, counters.gaps, buckets);
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
        let request = Request { arrived: 0.0, input: 10, output: 10 };
        metrics.observe(&ServedRequest { request, first_token: 0.3, ended: 1.0 });
        let page = metrics.page(&Timeline::new(GUIDE_A100).read());
        let labels = r#"engine="0",model_name="a\"b""#;
        for line in [
            format!("vllm:kv_cache_usage_perc{{{labels}}} 0"),
            format!("vllm:num_requests_waiting{{{labels}}} 0"),
            "vllm:cache_config_info{block_size=\"16\",engine=\"0\",kv_cache_size_tokens=\"256000\",\
             mamba_block_size=\"None\",num_gpu_blocks=\"16000\"} 1"
                .to_owned(),
            format!("vllm:request_success_total{{{labels},finished_reason=\"length\"}} 0"),
            format!("vllm:time_to_first_token_seconds_sum{{{labels}}} 0.3"),
            format!("vllm:time_to_first_token_seconds_count{{{labels}}} 1"),
            format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"0.25\"}} 0"),
            format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"0.5\"}} 1"),
            format!("vllm:inter_token_latency_seconds_bucket{{{labels},le=\"0.025\"}} 0"),
            format!("vllm:inter_token_latency_seconds_bucket{{{labels},le=\"+Inf\"}} 0"),
            format!("vllm:inter_token_latency_seconds_count{{{labels}}} 0"),
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
    }
    /// Differences on purpose, in addition to what no emulated page has: wva reads the mean of the prefill.
    const DIFFERENCES_ON_PURPOSE: &[&str] = &[
        // Its queue has no limit.
        "- vllm:admission_rejections",
        "- vllm:request_prefill_time_seconds_bucket{le}",
    ];

    #[test]
    fn page_differs_from_recorded_one_only_on_purpose() {
        let metrics = Metrics::new("m", &GUIDE_A100).unwrap();
        let page = metrics.page(&Timeline::new(GUIDE_A100).read());
        page_differences::assert_differences(&page, DIFFERENCES_ON_PURPOSE);
    }
}
