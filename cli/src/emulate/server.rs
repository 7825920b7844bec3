//! HTTP server: completions of the `OpenAI` API, health and metrics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::ArgMatches;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use wva_crds::duration::GoDuration;
use wva_runtime::Signals;
use wva_runtime::server::{Limits, bind, serve};
use wva_simulator::fleet::engine::Engine;
use wva_simulator::scenario::engines::{ENGINES, GUIDE_A100};

use super::metrics::Metrics;
use super::sglang::as_sglang;
use super::timeline::{Rejection, Timeline};

/// vLLM's default.
const DEFAULT_OUTPUT: u64 = 16;
/// Average of English text.
const CHARACTERS_PER_TOKEN: usize = 4;
const MAX_CONNECTIONS: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(30);

struct Emulator {
    model: String,
    ready_at: Instant,
    timeline: Timeline,
    metrics: Metrics,
    /// Gives a page the names of the emulated server.
    names: fn(String) -> String,
}

pub(super) async fn run(arguments: &ArgMatches) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let text = |key| arguments.get_one::<String>(key).cloned().unwrap_or_default();
    let model = text("model");
    let engine = engine(arguments);
    let load_time =
        arguments.get_one::<GoDuration>("load-time").copied().map_or(Duration::ZERO, Duration::from);
    let address = arguments.get_one::<SocketAddr>("address").copied().context("--address is missing")?;
    let emulator = Arc::new(Emulator {
        metrics: Metrics::new(&model, &engine)?,
        names: if text("metrics") == "sglang" { |page| as_sglang(&page) } else { |page| page },
        model,
        ready_at: Instant::now() + load_time,
        timeline: Timeline::new(engine),
    });
    let listener = bind("the emulated model server", address)?;
    let shutdown = CancellationToken::new();
    let limits =
        Limits { head: TIMEOUT, drain: TIMEOUT, ..Limits::new("emulated model server", MAX_CONNECTIONS) };
    let serving = serve(listener, None, router(emulator.clone()), limits, shutdown.clone());
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended.context("cannot serve"),
        () = emulator.timeline.run() => {}
        _ = signals.recv() => shutdown.cancel(),
    }
    // The timeline must finish the requests in flight.
    tokio::select! {
        ended = serving => ended.context("cannot serve"),
        () = emulator.timeline.run() => Ok(()),
    }
}

fn engine(arguments: &ArgMatches) -> Engine {
    let name = arguments.get_one::<String>("engine");
    let found = ENGINES.iter().find(|(known, _)| name.is_some_and(|name| name == known));
    let engine = found.map_or(GUIDE_A100, |(_, engine)| *engine);
    let max_seqs = arguments.get_one::<u32>("max-num-seqs").map_or(engine.max_seqs, |n| *n as usize);
    Engine { max_seqs, ..engine }
}

fn router(emulator: Arc<Emulator>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/v1/models", get(models))
        .route("/metrics", get(metrics))
        .route("/sleep", post(sleep))
        .route("/wake_up", post(wake_up))
        .route("/is_sleeping", get(is_sleeping))
        .route("/v1/completions", post(complete))
        .route("/v1/chat/completions", post(complete))
        .with_state(emulator)
}

type Shared = State<Arc<Emulator>>;

impl Emulator {
    fn is_ready(&self) -> bool {
        Instant::now() >= self.ready_at
    }
}

async fn health(State(emulator): Shared) -> Response {
    if emulator.is_ready() { StatusCode::OK.into_response() } else { loading() }
}

async fn models(State(emulator): Shared) -> Json<Value> {
    Json(json!({"object": "list", "data": [{"id": emulator.model, "object": "model", "owned_by": "wva"}]}))
}

async fn metrics(State(emulator): Shared) -> Response {
    if !emulator.is_ready() {
        return loading();
    }
    let page = (emulator.names)(emulator.metrics.page(&emulator.timeline.read()));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response()
}

/// Puts the engine to sleep. The level does not matter: the weights are not emulated.
async fn sleep(State(emulator): Shared) -> StatusCode {
    emulator.metrics.set_asleep(true);
    StatusCode::OK
}

async fn wake_up(State(emulator): Shared) -> StatusCode {
    emulator.metrics.set_asleep(false);
    StatusCode::OK
}

async fn is_sleeping(State(emulator): Shared) -> Json<Value> {
    Json(json!({"is_sleeping": emulator.metrics.is_asleep()}))
}

async fn complete(State(emulator): Shared, request: Request) -> Response {
    if !emulator.is_ready() {
        return loading();
    }
    if emulator.metrics.is_asleep() {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "the engine sleeps; wake it with POST /wake_up");
    }
    let body = match timeout(TIMEOUT, Json::<Value>::from_request(request, &())).await {
        Ok(Ok(Json(body))) => body,
        Ok(Err(error)) => return refusal(error.status(), &error.body_text()),
        Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive"),
    };
    if body["model"].as_str().is_some_and(|model| model != emulator.model) {
        let message = format!("model {} does not exist here; use {:?}", body["model"], emulator.model);
        return refusal(StatusCode::NOT_FOUND, &message);
    }
    if body["stream"] == json!(true) {
        let message = "the emulated server does not stream; leave stream out";
        return refusal(StatusCode::BAD_REQUEST, message);
    }
    let tokens = Tokens::from_body(&body);
    let answer = match emulator.timeline.push(tokens.input, tokens.output) {
        Ok(answer) => answer,
        Err(rejection) => return rejection_response(tokens, &rejection),
    };
    let Ok(served) = answer.await else {
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "the server is shutting down");
    };
    emulator.metrics.observe(&served);
    let id = format!("emulated-{}", served.request.arrived.to_bits());
    Json(completion(&emulator.model, &id, &body, tokens)).into_response()
}

#[derive(Clone, Copy)]
struct Tokens {
    input: u32,
    output: u32,
}

impl Tokens {
    fn from_body(body: &Value) -> Self {
        let requested =
            ["max_completion_tokens", "max_tokens"].into_iter().find_map(|key| body[key].as_u64());
        let prompt = characters(&body["prompt"]) + characters(&body["messages"]);
        Self {
            input: u32::try_from(prompt.div_ceil(CHARACTERS_PER_TOKEN)).unwrap_or(u32::MAX).max(1),
            output: u32::try_from(requested.unwrap_or(DEFAULT_OUTPUT)).unwrap_or(u32::MAX).max(1),
        }
    }
}

fn rejection_response(Tokens { input, output }: Tokens, rejection: &Rejection) -> Response {
    match rejection {
        Rejection::TooLong(tokens) => {
            let message = format!(
                "the request has {input} prompt tokens and asks for {output}; the KV cache holds {tokens} in total"
            );
            refusal(StatusCode::BAD_REQUEST, &message)
        }
        Rejection::Full => {
            refusal(StatusCode::SERVICE_UNAVAILABLE, "too many concurrent requests; try again later")
        }
    }
}

fn completion(model: &str, id: &str, body: &Value, Tokens { input, output }: Tokens) -> Value {
    let text = "token ".repeat(output as usize);
    let (object, choice) = if body["messages"].is_null() {
        ("text_completion", json!({"index": 0, "text": text, "finish_reason": "length"}))
    } else {
        let message = json!({"role": "assistant", "content": text});
        ("chat.completion", json!({"index": 0, "message": message, "finish_reason": "length"}))
    };
    let total = u64::from(input) + u64::from(output);
    json!({
        "id": id,
        "object": object,
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": total},
    })
}

fn characters(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.iter().map(characters).sum(),
        Value::Object(fields) => fields.get("content").or_else(|| fields.get("text")).map_or(0, characters),
        // In a prompt of token ids each number is a token.
        Value::Number(_) => CHARACTERS_PER_TOKEN,
        Value::Null | Value::Bool(_) => 0,
    }
}

fn loading() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "the model is loading")
}

fn refusal(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"error": {"message": message, "code": status.as_u16()}}))).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn send(emulator: &Arc<Emulator>, path: &str, body: Option<Value>) -> (u16, Value) {
        let (status, body) = send_text(emulator, path, body).await;
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    async fn send_text(emulator: &Arc<Emulator>, path: &str, body: Option<Value>) -> (u16, String) {
        let request = Request::builder().uri(path).header("content-type", "application/json");
        let request = match body {
            Some(body) => request.method("POST").body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        };
        let exchange = router(emulator.clone()).oneshot(request.unwrap());
        let response = tokio::select! {
            () = emulator.timeline.run() => unreachable!(),
            response = exchange => response.unwrap(),
        };
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn emulator(load_time: Duration) -> Arc<Emulator> {
        Arc::new(Emulator {
            model: "m".to_owned(),
            ready_at: Instant::now() + load_time,
            timeline: Timeline::new(GUIDE_A100),
            metrics: Metrics::new("m", &GUIDE_A100).unwrap(),
            names: |page| page,
        })
    }

    /// The controller reads the number from the arguments of the pod.
    #[test]
    fn example_names_the_limit_of_its_engine() {
        let example = include_str!("../../../deploy/examples/demo.yaml");
        let documents: Vec<Value> = serde_saphyr::from_multiple(example).unwrap();
        let deployment = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
        let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
        let arguments: Vec<&str> = arguments.iter().skip(1).map(|word| word.as_str().unwrap()).collect();
        assert!(arguments.contains(&"--max-num-seqs=4"), "{arguments:?}");
        let parse = |arguments: &[&str]| {
            engine(&super::super::server_command().try_get_matches_from(arguments).unwrap()).max_seqs
        };
        assert_eq!(parse(&arguments), GUIDE_A100.max_seqs);
        assert_eq!(parse(&["server", "--model=m"]), GUIDE_A100.max_seqs);
        assert_eq!(parse(&["server", "--model=m", "--engine=qwen3-32b-h100", "--max-num-seqs", "8"]), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_completions_after_the_time_they_take() {
        let emulator = emulator(Duration::ZERO);
        for (path, body) in [
            ("/v1/completions", json!({"model": "m", "prompt": "x".repeat(400), "max_tokens": 50})),
            (
                "/v1/chat/completions",
                json!({"messages": [{"role": "user", "content": "x".repeat(400)}], "max_completion_tokens": 50}),
            ),
        ] {
            let started = Instant::now();
            let (status, answer) = send(&emulator, path, Some(body)).await;
            assert_eq!(status, 200, "{answer}");
            assert_eq!(
                answer["usage"],
                json!({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150})
            );
            assert!(started.elapsed() > Duration::from_secs(1), "50 steps of 21 ms: {:?}", started.elapsed());
        }
        assert_eq!(emulator.timeline.read().counters.requests, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn refuses_what_it_cannot_serve() {
        let emulator = emulator(Duration::ZERO);
        for (body, want) in [
            (json!({"model": "other", "prompt": "x"}), 404),
            (json!({"prompt": "x", "stream": true}), 400),
            (json!({"prompt": "x", "max_tokens": 1_000_000}), 400),
        ] {
            let (status, answer) = send(&emulator, "/v1/completions", Some(body)).await;
            assert_eq!((status, &answer["error"]["code"]), (want, &json!(want)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn serves_nothing_while_its_engine_sleeps() {
        let emulator = emulator(Duration::ZERO);
        let request = || Some(json!({"prompt": "x"}));
        for (path, asleep, status) in [("/sleep", true, 503), ("/wake_up", false, 200)] {
            assert_eq!(send(&emulator, path, Some(json!({}))).await.0, 200);
            assert_eq!(send(&emulator, "/is_sleeping", None).await.1["is_sleeping"], asleep);
            let (_, page) = send_text(&emulator, "/metrics", None).await;
            let awake = format!("sleep_state=\"awake\"}} {}", u8::from(!asleep));
            assert!(page.contains(&awake), "{awake} is not in\n{page}");
            assert_eq!(send(&emulator, "/v1/completions", request()).await.0, status);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_on_a_body_that_does_not_arrive() {
        let body = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::convert::Infallible>>());
        let request = Request::post("/v1/completions").header("content-type", "application/json");
        let started = Instant::now();
        let answer = router(emulator(Duration::ZERO)).oneshot(request.body(body).unwrap()).await.unwrap();
        assert_eq!((answer.status(), started.elapsed()), (StatusCode::REQUEST_TIMEOUT, TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn is_unavailable_while_the_model_loads() {
        let emulator = emulator(Duration::from_secs(20));
        for path in ["/health", "/metrics"] {
            assert_eq!(send(&emulator, path, None).await.0, 503, "{path}");
        }
        assert_eq!(send(&emulator, "/v1/completions", Some(json!({"prompt": "x"}))).await.0, 503);
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(send(&emulator, "/health", None).await.0, 200);
    }
}
