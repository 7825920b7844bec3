//! Metrics of thousands of emulated vLLM servers on a few pages, one a namespace: a page for each pod, as the fleet of
//! the tests has it, would keep the machine busy with scrapes alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

/// A pod and the model it serves.
pub(super) struct Served {
    pub(super) pod: String,
    pub(super) model: String,
}

/// A running exporter; dropping it ends it.
pub(super) struct Exporter {
    pub(super) address: String,
    pub(super) paths: Vec<String>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Shown {
    since: Instant,
    namespaces: BTreeMap<String, Vec<Served>>,
}

impl Exporter {
    /// Serves the pods of each namespace.
    pub(super) async fn start(namespaces: BTreeMap<String, Vec<Served>>) -> anyhow::Result<Self> {
        let listener =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.context("cannot listen for scrapes")?;
        let address = listener.local_addr()?.to_string();
        let paths = namespaces.keys().map(|n| format!("/{n}")).collect();
        let shown = Arc::new(Shown { since: Instant::now(), namespaces });
        let app = Router::new().route("/{namespace}", get(page)).with_state(shown);
        let task = tokio::spawn(async move {
            // Ends with the bench.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, paths, task })
    }
}

async fn page(State(shown): State<Arc<Shown>>, Path(namespace): Path<String>) -> Response {
    let Some(served) = shown.namespaces.get(&namespace) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let seconds = shown.since.elapsed().as_secs_f64();
    let mut text = String::new();
    for (name, kind) in GAUGES_AND_COUNTERS {
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for (i, Served { pod, model }) in served.iter().enumerate() {
            let labels = format!("namespace=\"{namespace}\",pod=\"{pod}\",engine=\"0\"");
            let model = format!("{labels},model_name=\"{model}\"");
            let _ = match value(name, i, seconds) {
                Value::Plain(value) => writeln!(text, "{name}{{{model}}} {value}"),
                Value::Info => {
                    writeln!(text, "{name}{{{labels},block_size=\"16\",num_gpu_blocks=\"4096\"}} 1")
                }
            };
        }
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// What vLLM shows, as far as the program reads it.
const GAUGES_AND_COUNTERS: [(&str, &str); 11] = [
    ("vllm:kv_cache_usage_perc", "gauge"),
    ("vllm:num_requests_waiting", "gauge"),
    ("vllm:num_requests_running", "gauge"),
    ("vllm:cache_config_info", "gauge"),
    ("vllm:request_success_total", "counter"),
    ("vllm:prefix_cache_queries_total", "counter"),
    ("vllm:prefix_cache_hits_total", "counter"),
    ("vllm:request_generation_tokens_sum", "counter"),
    ("vllm:request_generation_tokens_count", "counter"),
    ("vllm:request_prompt_tokens_sum", "counter"),
    ("vllm:request_prompt_tokens_count", "counter"),
];

enum Value {
    Plain(f64),
    Info,
}

/// A load at which nothing grows and nothing shrinks, and ten requests a second of 512 + 128 tokens.
fn value(name: &str, i: usize, seconds: f64) -> Value {
    let requests = 10.0 * seconds;
    let spread = f64::from(u32::try_from(i % 7).unwrap_or(0)) / 100.0;
    Value::Plain(match name {
        "vllm:kv_cache_usage_perc" => 0.62 + spread,
        "vllm:num_requests_waiting" => 0.0,
        "vllm:num_requests_running" => 12.0,
        "vllm:cache_config_info" => return Value::Info,
        "vllm:prefix_cache_queries_total" | "vllm:request_prompt_tokens_sum" => requests * 512.0,
        "vllm:prefix_cache_hits_total" | "vllm:request_generation_tokens_sum" => requests * 128.0,
        _ => requests,
    })
}
