//! Tests of the client against a fake Prometheus on a loopback socket.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Value, json};

use super::*;

/// Reply of the fake to a query.
#[derive(Clone)]
pub(crate) enum FakeReply {
    /// A status and a body.
    Body(u16, String),
    /// Accepts the query and never answers.
    Hang,
    /// Starts an answer and never ends it.
    Trickle,
    /// Sends more than the client reads.
    Flood,
    /// Depends on the expression.
    By(Arc<dyn Fn(&str) -> FakeReply + Send + Sync>),
}

impl FakeReply {
    pub(crate) fn by(reply: impl Fn(&str) -> FakeReply + Send + Sync + 'static) -> Self {
        Self::By(Arc::new(reply))
    }

    /// Series, each as labels and value.
    pub(crate) fn series(series: impl IntoIterator<Item = (Value, impl ToString)>) -> Self {
        let rows = series
            .into_iter()
            .map(|(labels, value)| json!({"metric": labels, "value": [1_700_000_000.5, value.to_string()]}));
        Self::Body(200, vector(&rows.collect()))
    }

    pub(crate) fn no_series() -> Self {
        Self::Body(200, vector(&json!([])))
    }

    /// The reply to one expression.
    pub(crate) fn for_expression(&self, expression: &str) -> Self {
        match self {
            Self::By(reply) => reply(expression).for_expression(expression),
            other => other.clone(),
        }
    }
}

impl Prometheus {
    /// Values of a query.
    pub(crate) async fn values(&self, expression: &str) -> Result<Vec<f64>, QueryError> {
        Ok(self.query(expression).await?.into_iter().map(|series| series.value).collect())
    }
}

/// A query to the fake.
#[derive(Debug)]
struct Request {
    host: String,
    authorization: Option<String>,
    expression: String,
}

/// A fake Prometheus. It ends with the runtime of the test.
#[derive(Clone)]
pub(crate) struct FakePrometheus {
    address: SocketAddr,
    reply: Arc<Mutex<FakeReply>>,
    requests: Arc<Mutex<Vec<Request>>>,
    hanging: Arc<AtomicUsize>,
}

impl FakePrometheus {
    pub(crate) async fn start(reply: FakeReply) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (fake, router) = Self::at(listener.local_addr().unwrap(), reply);
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    /// A fake at the address of a listener, and the router to serve there.
    fn at(address: SocketAddr, reply: FakeReply) -> (Self, Router) {
        let reply = Arc::new(Mutex::new(reply));
        let fake = Self { address, reply, requests: Arc::default(), hanging: Arc::default() };
        let handler = fake.clone();
        let router = Router::new().fallback(move |headers: HeaderMap, body: String| {
            let fake = handler.clone();
            async move { fake.answer(&headers, &body).await }
        });
        (fake, router)
    }

    pub(crate) fn set_reply(&self, reply: FakeReply) {
        *self.reply.lock().unwrap() = reply;
    }

    pub(crate) fn queries(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Number of accepted queries without an answer.
    pub(crate) fn hanging(&self) -> usize {
        self.hanging.load(Ordering::SeqCst)
    }

    /// A client with a timeout of two seconds and a limit of a megabyte.
    pub(crate) fn client(&self) -> Prometheus {
        Prometheus::new(self.config()).unwrap().with_timeout(Duration::from_secs(2)).with_limit(1 << 20)
    }

    pub(crate) fn config(&self) -> PrometheusConfig {
        PrometheusConfig { base_url: format!("http://{}/", self.address), ..PrometheusConfig::default() }
    }

    /// Expressions of the queries, in order.
    pub(crate) fn expressions(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.expression.clone()).collect()
    }

    async fn answer(&self, headers: &HeaderMap, body: &str) -> Response {
        let header = |name: &str| headers.get(name).map(|v| v.to_str().unwrap().to_owned());
        let form = reqwest::Url::parse(&format!("http://h/?{body}")).unwrap();
        let expression = form.query_pairs().find(|(key, _)| key == "query").unwrap().1.into_owned();
        let reply = self.reply.lock().unwrap().for_expression(&expression);
        let (host, authorization) = (header("host").unwrap(), header("authorization"));
        self.requests.lock().unwrap().push(Request { host, authorization, expression });
        match reply {
            FakeReply::By(_) => unreachable!("it is the reply to one expression"),
            FakeReply::Body(status, text) => (StatusCode::from_u16(status).unwrap(), text).into_response(),
            FakeReply::Hang => {
                self.hanging.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            }
            FakeReply::Trickle => {
                let start = futures::stream::iter([Ok::<_, std::io::Error>("{\"status\":")]);
                Body::from_stream(start.chain(futures::stream::pending())).into_response()
            }
            FakeReply::Flood => {
                let megabyte = " ".repeat(1 << 20);
                let flood = std::iter::repeat_with(move || Ok::<_, std::io::Error>(megabyte.clone())).take(8);
                Body::from_stream(futures::stream::iter(flood)).into_response()
            }
        }
    }
}

/// An answer with these series.
fn vector(series: &Value) -> String {
    json!({"status": "success", "data": {"resultType": "vector", "result": series}}).to_string()
}

#[tokio::test]
async fn reads_values_in_prometheus_format() {
    let all = ["0.25", "NaN", "+Inf", "-Inf", "1e-3"].map(|value| (json!({"pod": "a"}), value));
    let fake = FakePrometheus::start(FakeReply::series(all)).await;
    let values = fake.client().values("x").await.unwrap();
    assert!((values[0] - 0.25).abs() < 1e-12 && (values[4] - 0.001).abs() < 1e-12, "{values:?}");
    assert!(values[1].is_nan());
    assert_eq!(values[2..4], [f64::INFINITY, f64::NEG_INFINITY]);
    fake.set_reply(FakeReply::no_series());
    assert!(fake.client().values("x").await.unwrap().is_empty(), "an empty answer is valid");
}

#[tokio::test]
async fn invalid_answers_are_errors_with_the_cause() {
    let body = |status, text: &str| FakeReply::Body(status, text.to_owned());
    let error = |status, error: &str| {
        let body = json!({"status": "error", "errorType": "execution", "error": error});
        FakeReply::Body(status, body.to_string())
    };
    let success = |data: Value| FakeReply::Body(200, json!({"status": "success", "data": data}).to_string());
    for (answers, variant, part) in [
        (body(503, "upstream is down\nsecond line"), "Refused", "503: upstream is down"),
        (error(422, "too many samples"), "Refused", "422: too many samples"),
        (error(400, &"y".repeat(5000)), "Refused", "yyy"),
        (body(302, ""), "Refused", "302"),
        (body(200, "<html>login</html>"), "Unreadable", "line 1"),
        (body(200, ""), "Unreadable", "EOF"),
        (body(200, r#"{"status":"success"}"#), "Unreadable", "without data"),
        (success(json!({})), "Unreadable", "without a vector"),
        (success(json!({"resultType": "vector", "result": [{"metric": {}}]})), "Unreadable", "value"),
        (body(200, &(vector(&json!([])) + "x")), "Unreadable", "trailing"),
        (error(200, "shard lost"), "Unreadable", "shard lost"),
        (success(json!({"resultType": "matrix", "result": []})), "Unreadable", "matrix"),
        (FakeReply::series([(json!({}), "many")]), "Unreadable", "many"),
        (FakeReply::Hang, "TimedOut", "timed out"),
        (FakeReply::Trickle, "TimedOut", "timed out"),
    ] {
        let fake = FakePrometheus::start(answers).await;
        let error = fake.client().values("x").await.unwrap_err();
        assert!(format!("{error:?}").starts_with(variant), "{error:?}");
        assert!(error.to_string().contains(part), "{part:?} is not in {error}");
        assert!(error.to_string().len() < 500, "{error}");
        assert!(variant != "Refused" || fake.queries() == 1, "an error answer is not queried again");
    }
}

#[tokio::test]
async fn endless_answer_is_cut_off() {
    let fake = FakePrometheus::start(FakeReply::Flood).await;
    let error = fake.client().with_timeout(Duration::from_mins(1)).values("x").await.unwrap_err();
    assert!(matches!(error, QueryError::TooLong { limit: 0x10_0000, .. }), "{error}");
}

#[tokio::test]
async fn ignores_unknown_fields_and_field_order() {
    let answer = r#"{"stats":{"x":[1,{"y":null}]},"isPartial":false,
        "data":{"result":[{"value":[1,"2"],"metric":{"odd":"\u00e9\n","pod":"a"},"more":{}}],"resultType":"vector"},
        "infos":["i"],"status":"success"}"#;
    let fake = FakePrometheus::start(FakeReply::Body(200, answer.to_owned())).await;
    assert_eq!(fake.client().values("x").await.unwrap(), [2.0]);
}

#[tokio::test]
async fn warnings_mean_missing_series_except_annotations() {
    let note = "PromQL warning: encountered a mix of histograms and floats";
    let info = "PromQL info: metric might not be a counter, name does not end in _total";
    let lost = "store b: deadline exceeded";
    for (key, value, partial) in [
        ("warnings", json!([]), None),
        ("warnings", json!(null), None),
        ("warnings", json!([lost]), Some(lost)),
        ("warnings", json!([note, info]), None),
        ("warnings", json!([note, lost]), Some(lost)),
        ("infos", json!([info]), None),
        ("isPartial", json!(false), None),
        ("isPartial", json!(true), Some("isPartial is true")),
    ] {
        let mut answer: Value = serde_json::from_str(&vector(&json!([]))).unwrap();
        answer[key] = value;
        let fake = FakePrometheus::start(FakeReply::Body(200, answer.to_string())).await;
        let client = fake.client();
        let session = client.session().await.unwrap();
        let result = client.query_into(&session, "x", Vec::new).await.unwrap();
        assert_eq!(result, (vec![], partial.map(str::to_owned)), "{answer}");
    }
}

/// Closes this many connections without an answer, then answers.
async fn start_flaky_server(times: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, taken) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = taken.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if count.fetch_add(1, Ordering::SeqCst) < times {
                continue;
            }
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let body = vector(&json!([]));
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
    });
    (address, taken)
}

#[tokio::test]
async fn retries_a_broken_connection_once() {
    for (times, answered, connections) in [(0, true, 1), (1, true, 2), (2, false, 2)] {
        let (address, taken) = start_flaky_server(times).await;
        let base_url = format!("http://{address}");
        let config = PrometheusConfig { base_url, ..PrometheusConfig::default() };
        let answer = Prometheus::new(config).unwrap().values("x").await;
        assert_eq!(answer.is_ok(), answered, "{answer:?}");
        assert_eq!(taken.load(Ordering::SeqCst), connections);
    }
}

#[tokio::test]
async fn unreachable_error_names_the_cause_without_password() {
    // The socket is bound but does not listen, so no other process takes the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base_url = format!("http://operator:hunter2@{}", socket.local_addr().unwrap());
    let config = PrometheusConfig { base_url, ..PrometheusConfig::default() };
    let error = Prometheus::new(config).unwrap().values("x").await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    assert!(!error.contains("hunter2") && error.contains("http://operator:***@127.0.0.1"), "{error}");
}

#[test]
fn debug_output_has_no_password() {
    let config = PrometheusConfig {
        base_url: "http://u:hunter2@p".into(),
        bearer_token: Some("hunter2".into()),
        ..PrometheusConfig::default()
    };
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}

#[test]
fn refuses_a_user_together_with_a_token() {
    let config = PrometheusConfig { base_url: "https://u:hunter2@p".into(), ..PrometheusConfig::default() };
    let token = PrometheusConfig { bearer_token: Some("t".into()), ..config.clone() };
    let file = PrometheusConfig { token_path: Some("/token".into()), ..config.clone() };
    for (config, setting) in [(token, "PROMETHEUS_BEARER_TOKEN"), (file, "PROMETHEUS_TOKEN_PATH")] {
        let error = Prometheus::new(config).unwrap_err().to_string();
        assert!(error.contains(setting) && error.contains("https://u:***@p has a user"), "{error}");
    }
    Prometheus::new(config).unwrap();
}

#[test]
fn refuses_a_token_file_over_plain_http() {
    let config = |base_url: &str| PrometheusConfig {
        base_url: base_url.into(),
        token_path: Some("/token".into()),
        ..PrometheusConfig::default()
    };
    for url in ["http://prometheus:9090", "HTTP://u@127.0.0.1"] {
        let error = Prometheus::new(config(url)).unwrap_err().to_string();
        let says = error.contains("not https") || error.contains("has a user");
        assert!(says && error.contains("PROMETHEUS_TOKEN_PATH"), "{error}");
    }
    // The setting that takes precedence leaves the file unread.
    let given = PrometheusConfig { bearer_token: Some("t".into()), ..config("http://prometheus:9090") };
    Prometheus::new(given).unwrap();
    Prometheus::new(config("https://prometheus:9090")).unwrap();
}

/// A temporary folder of the test.
pub(crate) struct TempFolder(std::path::PathBuf);

impl TempFolder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("wva-collect-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), contents).unwrap();
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) mod tls;
