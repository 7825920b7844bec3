//! The series of a pod as vLLM 0.32 shows them.

use wva_simulator::fleet::server::ServedRequest;

use super::driver::{FleetRun, Pod, Scrape};
use super::remote_write::Series;

/// Bounds of `vllm:time_to_first_token_seconds`.
const TTFT: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Bounds of `vllm:inter_token_latency_seconds` and `vllm:request_time_per_output_token_seconds`.
const GAP: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Bounds of `vllm:request_prompt_tokens` and `vllm:request_generation_tokens`, of a model with 131,072 tokens.
const TOKENS: [f64; 16] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0,
    50_000.0, 100_000.0,
];

/// A change of the pod's counters.
struct Step {
    at: f64,
    /// A first token, else the end of a request.
    is_first: bool,
    served: ServedRequest,
}

/// The series of a pod, slice by slice.
pub(super) struct PodSeries<'a> {
    ran: &'a FleetRun,
    pod: &'a Pod,
    steps: std::iter::Peekable<std::vec::IntoIter<Step>>,
    /// Scrapes that are written.
    written: usize,
    counts: Counts,
    generating: Vec<ServedRequest>,
    page: Page,
}

/// Names of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) namespace: &'a str,
    pub(super) model: &'a str,
    pub(super) pod: &'a str,
}

impl<'a> PodSeries<'a> {
    /// `epoch`: seconds since the epoch of the start.
    pub(super) fn new(ran: &'a FleetRun, pod: &'a Pod, names: Names<'_>, epoch: i64) -> Self {
        let mut steps: Vec<Step> = Vec::with_capacity(2 * pod.served.len());
        for served in &pod.served {
            steps.push(Step { at: served.first_token, is_first: true, served: *served });
            steps.push(Step { at: served.ended, is_first: false, served: *served });
        }
        steps.sort_by(|a, b| a.at.total_cmp(&b.at));
        let (counts, page) = (Counts::default(), Page::new(names, epoch));
        Self {
            ran,
            pod,
            steps: steps.into_iter().peekable(),
            written: 0,
            counts,
            generating: Vec::new(),
            page,
        }
    }

    /// Samples of the scrapes before `until`, seconds since the start, that were not taken yet.
    pub(super) fn take(&mut self, until: f64) -> &[Series] {
        self.page.series.iter_mut().for_each(|series| series.samples.clear());
        while let Some(scrape) = self.pod.scrapes.get(self.written).filter(|scrape| scrape.at < until) {
            self.written += 1;
            while let Some(step) = self.steps.next_if(|step| step.at <= scrape.at) {
                self.counts.add(&step, &mut self.generating);
            }
            self.put(scrape);
        }
        &self.page.series
    }

    fn put(&mut self, scrape: &Scrape) {
        let (counts, page) = (&self.counts, &mut self.page);
        let (tokens, gaps, seconds) = counts.with(&self.generating, scrape.at);
        page.time(scrape.at);
        page.put("vllm:num_requests_running", &[], to_f64(scrape.running));
        page.put("vllm:num_requests_waiting", &[], to_f64(scrape.waiting));
        page.put("vllm:kv_cache_usage_perc", &[], scrape.kv);
        page.put("vllm:request_success_total", &[("finished_reason", "stop")], counts.finished);
        page.put("vllm:request_success_total", &[("finished_reason", "abort")], 0.0);
        page.put("vllm:prompt_tokens_total", &[], counts.prompt_tokens);
        page.put("vllm:generation_tokens_total", &[], tokens.round());
        page.histogram("vllm:time_to_first_token_seconds", &TTFT, &counts.ttft, counts.ttft_sum);
        page.histogram("vllm:request_time_per_output_token_seconds", &GAP, &counts.gap, counts.gap_sum);
        page.put("vllm:inter_token_latency_seconds_sum", &[], seconds);
        page.put("vllm:inter_token_latency_seconds_count", &[], gaps.round());
        page.histogram("vllm:request_prompt_tokens", &TOKENS, &counts.prompts, counts.prompt_sum);
        page.histogram("vllm:request_generation_tokens", &TOKENS, &counts.outputs, counts.output_sum);
        page.put("process_start_time_seconds", &[], page.epoch + self.pod.created);
        let (blocks, size) = (self.ran.kv_blocks.to_string(), self.ran.block_size.to_string());
        page.put("vllm:cache_config_info", &[("num_gpu_blocks", &blocks), ("block_size", &size)], 1.0);
    }
}

#[derive(Default)]
struct Counts {
    finished: f64,
    prompt_tokens: f64,
    generated: f64,
    gaps: f64,
    gap_seconds: f64,
    ttft: Vec<f64>,
    ttft_sum: f64,
    gap: Vec<f64>,
    gap_sum: f64,
    prompts: Vec<f64>,
    prompt_sum: f64,
    outputs: Vec<f64>,
    output_sum: f64,
}

impl Counts {
    fn add(&mut self, step: &Step, generating: &mut Vec<ServedRequest>) {
        let (served, request) = (&step.served, step.served.request);
        if step.is_first {
            self.prompt_tokens += f64::from(request.input);
            let ttft = served.first_token - request.arrived;
            observe(&mut self.ttft, &TTFT, ttft);
            self.ttft_sum += ttft;
            generating.push(*served);
            return;
        }
        self.finished += 1.0;
        generating.retain(|other| other != served);
        self.generated += f64::from(request.output);
        if request.output > 1 {
            let gaps = f64::from(request.output - 1);
            let gap = (served.ended - served.first_token) / gaps;
            observe(&mut self.gap, &GAP, gap);
            self.gap_sum += gap;
            self.gaps += gaps;
            self.gap_seconds += served.ended - served.first_token;
        }
        observe(&mut self.prompts, &TOKENS, f64::from(request.input));
        observe(&mut self.outputs, &TOKENS, f64::from(request.output));
        self.prompt_sum += f64::from(request.input);
        self.output_sum += f64::from(request.output);
    }

    /// Generated tokens, gaps and their seconds, with those of requests under way.
    fn with(&self, generating: &[ServedRequest], now: f64) -> (f64, f64, f64) {
        let mut sums = (self.generated, self.gaps, self.gap_seconds);
        for served in generating {
            let seconds = now - served.first_token;
            let share = (seconds / (served.ended - served.first_token).max(1e-9)).min(1.0);
            let gaps = (share * f64::from(served.request.output.saturating_sub(1))).floor();
            sums.0 += 1.0 + gaps;
            sums.1 += gaps;
            sums.2 += seconds;
        }
        sums
    }
}

fn observe(counts: &mut Vec<f64>, bounds: &[f64], value: f64) {
    counts.resize(bounds.len() + 1, 0.0);
    counts[bounds.partition_point(|bound| *bound < value)] += 1.0;
}

#[expect(clippy::cast_precision_loss, reason = "requests of a pod")]
fn to_f64(count: usize) -> f64 {
    count as f64
}

/// Series in the order of the page, which is the same in each scrape.
struct Page {
    labels: Vec<(String, String)>,
    series: Vec<Series>,
    epoch: f64,
    now: i64,
    next: usize,
}

impl Page {
    fn new(names: Names<'_>, epoch: i64) -> Self {
        let Names { namespace, model, pod } = names;
        let labels = [("engine", "0"), ("model_name", model), ("namespace", namespace), ("pod", pod)];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        #[expect(clippy::cast_precision_loss, reason = "times of this century in seconds")]
        let epoch = epoch as f64;
        Self { labels, series: Vec::new(), epoch, now: 0, next: 0 }
    }

    fn time(&mut self, at: f64) {
        self.next = 0;
        #[expect(clippy::cast_possible_truncation, reason = "times of this century in milliseconds")]
        let now = ((self.epoch + at) * 1000.0) as i64;
        self.now = now;
    }

    fn put(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        if self.series.len() <= self.next {
            let own = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let mut all: Vec<_> = self.labels.iter().cloned().chain(own).collect();
            all.push(("__name__".to_owned(), name.to_owned()));
            all.sort();
            self.series.push(Series { labels: all, samples: Vec::new() });
        }
        self.series[self.next].samples.push((self.now, value));
        self.next += 1;
    }

    fn histogram(&mut self, name: &str, bounds: &[f64], counts: &[f64], sum: f64) {
        let bucket = format!("{name}_bucket");
        let mut below = 0.0;
        for (i, bound) in bounds.iter().enumerate() {
            below += counts.get(i).copied().unwrap_or_default();
            self.put(&bucket, &[("le", &format!("{bound:?}"))], below);
        }
        below += counts.get(bounds.len()).copied().unwrap_or_default();
        self.put(&bucket, &[("le", "+Inf")], below);
        self.put(&format!("{name}_count"), &[], below);
        self.put(&format!("{name}_sum"), &[], sum);
    }
}
