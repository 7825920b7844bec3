//! The table: a row for each model server.

use super::ServerMetric as Metric;
use super::ServerSignal::{
    Awake, BlockTokens, CacheBlocks, CacheConfig, CacheTokens, CachedTokens, Completed, FirstToken,
    GeneratedTokens, InputCount, InputSum, KvUsage, NoRequestYet, OutputCount, OutputSum, PrefillTime,
    PrefixHits, PrefixLookups, PromptTokens, Refused, Running, TokenGap, Waiting,
};
use super::{ServerKind, ServerSignal};

/// Row of the table.
#[derive(Debug)]
pub struct ModelServer {
    /// The server.
    pub kind: ServerKind,
    /// Name in messages and docs.
    pub name: &'static str,
    /// Words in its command lines and image names, lower case.
    pub words: &'static [&'static str],
    /// Path of its metrics page.
    pub path: &'static str,
    /// Default port of that page.
    pub port: u16,
    /// Releases whose names these are.
    pub releases: &'static str,
    /// Metrics by signal, the current name first.
    pub signals: &'static [(ServerSignal, &'static [Metric])],
    /// Metrics that are added to a signal, where requests move through several queues.
    pub parts: &'static [(ServerSignal, Metric)],
}

impl ModelServer {
    /// Names of a signal, the current one first. Empty: the server does not export it.
    #[must_use]
    pub fn metrics(&self, signal: ServerSignal) -> &'static [Metric] {
        self.signals.iter().find(|(own, _)| *own == signal).map_or(&[], |(_, metrics)| metrics)
    }

    /// Metrics that are added to a signal.
    pub fn parts(&self, signal: ServerSignal) -> impl Iterator<Item = Metric> {
        self.parts.iter().filter(move |(own, _)| *own == signal).map(|(_, metric)| *metric)
    }
}

const fn of(name: &'static str) -> Metric {
    Metric::named(name)
}

/// Requests of vLLM that wait for this reason.
const fn waiting(reason: &'static str) -> Metric {
    Metric::labelled("vllm:num_requests_waiting_by_reason", "reason", reason)
}

/// Requests that vLLM refused for this reason.
const fn refused(reason: &'static str) -> Metric {
    Metric::labelled("vllm:admission_rejections_total", "reason", reason)
}

/// Requests of Triton in this state.
const fn requests(state: &'static str) -> Metric {
    Metric::labelled("nv_trt_llm_request_metrics", "request_type", state)
}

/// Figure of Triton's KV cache.
const fn cache(figure: &'static str) -> Metric {
    Metric::labelled("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", figure)
}

/// Model servers. The first row is the one that messages assume of an unknown server.
pub static MODEL_SERVERS: [ModelServer; 4] = [
    ModelServer {
        kind: ServerKind::Vllm,
        name: "vLLM",
        words: &["vllm"],
        path: "/metrics",
        port: 8000,
        releases: "0.6 and later, both engines",
        signals: &[
            (KvUsage, &[of("vllm:kv_cache_usage_perc"), of("vllm:gpu_cache_usage_perc")]),
            (Waiting, &[waiting("capacity"), of("vllm:num_requests_waiting")]),
            (Running, &[of("vllm:num_requests_running")]),
            (Awake, &[Metric::labelled("vllm:engine_sleep_state", "sleep_state", "awake")]),
            // Several API servers share the gauges, and the first writes them at its first request.
            (NoRequestYet, &[of("vllm:prompt_tokens_total")]),
            (CacheConfig, &[of("vllm:cache_config_info")]),
            (InputSum, &[of("vllm:request_prompt_tokens_sum")]),
            (InputCount, &[of("vllm:request_prompt_tokens_count")]),
            (OutputSum, &[of("vllm:request_generation_tokens_sum")]),
            (OutputCount, &[of("vllm:request_generation_tokens_count")]),
            (
                PrefixHits,
                &[
                    of("vllm:prefix_cache_hits_total"),
                    of("vllm:prefix_cache_hits"),
                    of("vllm:gpu_prefix_cache_hits_total"),
                ],
            ),
            (
                PrefixLookups,
                &[
                    of("vllm:prefix_cache_queries_total"),
                    of("vllm:prefix_cache_queries"),
                    of("vllm:gpu_prefix_cache_queries_total"),
                ],
            ),
            (Completed, &[of("vllm:request_success_total")]),
            (Refused, &[refused("max_num_queued_reqs")]),
            (PromptTokens, &[of("vllm:prompt_tokens_total")]),
            (
                CachedTokens,
                &[
                    of("vllm:prompt_tokens_cached_total"),
                    of("vllm:prefix_cache_hits_total"),
                    of("vllm:prefix_cache_hits"),
                    of("vllm:gpu_prefix_cache_hits_total"),
                ],
            ),
            (GeneratedTokens, &[of("vllm:generation_tokens_total")]),
            (PrefillTime, &[of("vllm:request_prefill_time_seconds")]),
            (TokenGap, &[of("vllm:inter_token_latency_seconds"), of("vllm:time_per_output_token_seconds")]),
            (FirstToken, &[of("vllm:time_to_first_token_seconds")]),
        ],
        parts: &[
            // It waits for a KV transfer, or for a place of its LoRA adapter: more replicas do not help it.
            (Running, waiting("deferred")),
            (Refused, refused("max_num_queued_tokens")),
        ],
    },
    ModelServer {
        kind: ServerKind::Sglang,
        name: "SGLang",
        words: &["sglang"],
        path: "/metrics",
        port: 30000,
        releases: "0.4 and later, with `--enable-metrics`",
        signals: &[
            (KvUsage, &[of("sglang:token_usage")]),
            (Waiting, &[of("sglang:num_queue_reqs")]),
            (Running, &[of("sglang:num_running_reqs")]),
            (CacheTokens, &[of("sglang:max_total_num_tokens")]),
            (InputSum, &[of("sglang:prompt_tokens_total")]),
            (InputCount, &[of("sglang:num_requests_total"), of("sglang:e2e_request_latency_seconds_count")]),
            (OutputSum, &[of("sglang:generation_tokens_total")]),
            (OutputCount, &[of("sglang:num_requests_total"), of("sglang:e2e_request_latency_seconds_count")]),
            (PrefixHits, &[of("sglang:cached_tokens_total")]),
            (PrefixLookups, &[of("sglang:prompt_tokens_total")]),
            (Completed, &[of("sglang:num_requests_total"), of("sglang:e2e_request_latency_seconds_count")]),
            (PromptTokens, &[of("sglang:prompt_tokens_total")]),
            (CachedTokens, &[of("sglang:cached_tokens_total")]),
            (GeneratedTokens, &[of("sglang:generation_tokens_total")]),
            (
                TokenGap,
                &[of("sglang:inter_token_latency_seconds"), of("sglang:time_per_output_token_seconds")],
            ),
            (FirstToken, &[of("sglang:time_to_first_token_seconds")]),
        ],
        // Prefill and decode pods have queues of their own. A request waits in the first of each for a peer or memory. In
        // the second its KV cache is transferred: it holds memory, and the transfer takes longer if the peer is busy.
        parts: &[
            (Waiting, of("sglang:num_prefill_bootstrap_queue_reqs")),
            // Its name up to 0.5.9.
            (Waiting, of("sglang:num_prefill_prealloc_queue_reqs")),
            (Waiting, of("sglang:num_decode_prealloc_queue_reqs")),
            (Running, of("sglang:num_prefill_inflight_queue_reqs")),
            // Its name up to 0.4.9.
            (Running, of("sglang:num_prefill_infight_queue_reqs")),
            (Running, of("sglang:num_decode_transfer_queue_reqs")),
        ],
    },
    ModelServer {
        kind: ServerKind::TensorrtLlm,
        name: "TensorRT-LLM",
        words: &["trtllm", "tensorrt-llm"],
        path: "/prometheus/metrics",
        port: 8000,
        releases: "`trtllm-serve` with `return_perf_metrics` and `enable_iter_perf_stats`",
        signals: &[
            (KvUsage, &[of("trtllm_kv_cache_utilization")]),
            (Waiting, &[of("trtllm_num_requests_waiting")]),
            (Running, &[of("trtllm_num_requests_running")]),
            (CacheBlocks, &[of("trtllm_kv_cache_max_blocks")]),
            (BlockTokens, &[of("trtllm_kv_cache_tokens_per_block")]),
            (InputSum, &[of("trtllm_prompt_tokens_total")]),
            (InputCount, &[of("trtllm_request_success_total")]),
            (OutputSum, &[of("trtllm_generation_tokens_total")]),
            (OutputCount, &[of("trtllm_request_success_total")]),
            (PrefixHits, &[of("trtllm_prompt_cached_tokens_total")]),
            (PrefixLookups, &[of("trtllm_prompt_tokens_total")]),
            (Completed, &[of("trtllm_request_success_total")]),
            (PromptTokens, &[of("trtllm_prompt_tokens_total")]),
            (CachedTokens, &[of("trtllm_prompt_cached_tokens_total")]),
            (GeneratedTokens, &[of("trtllm_generation_tokens_total")]),
            (PrefillTime, &[of("trtllm_request_prefill_time_seconds")]),
            (TokenGap, &[of("trtllm_time_per_output_token_seconds")]),
            (FirstToken, &[of("trtllm_time_to_first_token_seconds")]),
        ],
        parts: &[],
    },
    ModelServer {
        kind: ServerKind::Triton,
        name: "Triton",
        words: &["tritonserver", "launch_triton_server"],
        path: "/metrics",
        port: 8002,
        releases: "25.03 and later, with the backend of TensorRT-LLM",
        signals: &[
            (KvUsage, &[cache("fraction")]),
            (Waiting, &[requests("waiting")]),
            (Running, &[requests("active")]),
            (CacheBlocks, &[cache("max")]),
            (BlockTokens, &[cache("tokens_per")]),
            (InputSum, &[of("nv_llm_input_token_len_sum")]),
            (InputCount, &[of("nv_llm_input_token_len_count")]),
            (OutputSum, &[of("nv_llm_output_token_len_sum")]),
            (OutputCount, &[of("nv_llm_output_token_len_count")]),
            (Completed, &[of("nv_llm_output_token_len_count")]),
            (PromptTokens, &[of("nv_llm_input_token_len_sum")]),
            (GeneratedTokens, &[of("nv_llm_output_token_len_sum")]),
        ],
        parts: &[],
    },
];
