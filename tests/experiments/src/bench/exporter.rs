//! Metrics of thousands of emulated vLLM servers, one page per namespace. A page per pod, as in the tests' fleet,
//! would overload the machine with scrapes.

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
use tokio::task::JoinSet;

/// A pod and the model it serves.
pub(super) struct ServingPod {
    pub(super) pod: String,
    pub(super) model: String,
}

/// A running exporter; drop it to stop.
pub(super) struct Exporter {
    pub(super) address: String,
    pub(super) paths: Vec<String>,
    _serving: JoinSet<()>,
}

struct ExporterState {
    since: Instant,
    namespaces: BTreeMap<String, Vec<ServingPod>>,
}

impl Exporter {
    /// Serves the pods of each namespace.
    pub(super) async fn start(namespaces: BTreeMap<String, Vec<ServingPod>>) -> anyhow::Result<Self> {
        let listener =
            tokio::net::TcpListener::bind("127.0.0.1:0").await.context("cannot listen for scrapes")?;
        let address = listener.local_addr()?.to_string();
        let paths = namespaces.keys().map(|n| format!("/{n}")).collect();
        let state = Arc::new(ExporterState { since: Instant::now(), namespaces });
        let app = Router::new().route("/{namespace}", get(page)).with_state(state);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, paths, _serving: serving })
    }
}

/// vLLM metrics that the program reads: a steady load without scaling, ten requests per second of 512 + 128 tokens.
async fn page(State(state): State<Arc<ExporterState>>, Path(namespace): Path<String>) -> Response {
    let Some(served) = state.namespaces.get(&namespace) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let requests = 10.0 * state.since.elapsed().as_secs_f64();
    let (input, output) = (requests * 512.0, requests * 128.0);
    let series = [
        ("kv_cache_usage_perc", "gauge", 0.62),
        ("num_requests_waiting", "gauge", 0.0),
        ("num_requests_running", "gauge", 12.0),
        ("cache_config_info", "gauge", 1.0),
        ("request_success_total", "counter", requests),
        ("prefix_cache_queries_total", "counter", input),
        ("prefix_cache_hits_total", "counter", output),
        ("request_generation_tokens_sum", "counter", output),
        ("request_generation_tokens_count", "counter", requests),
        ("request_prompt_tokens_sum", "counter", input),
        ("request_prompt_tokens_count", "counter", requests),
    ];
    let mut text = String::new();
    for (name, kind, value) in series {
        let _ = writeln!(text, "# TYPE vllm:{name} {kind}");
        for (spread, ServingPod { pod, model }) in (0..7).cycle().zip(served) {
            let (own, value) = match name {
                "cache_config_info" => ("block_size=\"16\",num_gpu_blocks=\"4096\"".to_owned(), value),
                "kv_cache_usage_perc" => {
                    (format!("model_name=\"{model}\""), value + f64::from(spread) / 100.0)
                }
                _ => (format!("model_name=\"{model}\""), value),
            };
            let pod = format!("namespace=\"{namespace}\",pod=\"{pod}\",engine=\"0\"");
            let _ = writeln!(text, "vllm:{name}{{{pod},{own}}} {value}");
        }
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
