//! The client against a fake Prometheus on a loopback socket, which says or does whatever a test asks of it.

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

/// What the fake does with a query.
#[derive(Clone)]
pub(crate) enum Answers {
    /// Answers with a status and a body.
    Says(u16, String),
    /// Takes the query and never answers.
    Hangs,
    /// Begins to answer and never ends.
    Trickles,
    /// Sends more than anybody wants.
    Floods,
    /// Answers by the signal that the expression names.
    By(fn(&str) -> (u16, String)),
}

/// Authorization header and body of a query.
type Asked = (Option<String>, String);

/// A fake Prometheus; it ends with the test's runtime.
#[derive(Clone)]
pub(crate) struct FakePrometheus {
    pub(crate) address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    hanging: Arc<AtomicUsize>,
}

impl FakePrometheus {
    pub(crate) async fn start(answers: Answers) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            address: listener.local_addr().unwrap(),
            answers: Arc::new(Mutex::new(answers)),
            asked: Arc::default(),
            hanging: Arc::default(),
        };
        let handler = fake.clone();
        let router = Router::new().fallback(move |headers: HeaderMap, body: String| {
            let fake = handler.clone();
            async move { fake.answer(&headers, body).await }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        fake
    }

    pub(crate) fn now(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
    }

    pub(crate) fn queries(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Queries that were taken and not answered.
    pub(crate) fn hanging(&self) -> usize {
        self.hanging.load(Ordering::SeqCst)
    }

    /// A client that waits a fifth of a second.
    pub(crate) fn client(&self) -> Prometheus {
        let config =
            PrometheusConfig { base_url: format!("http://{}/", self.address), ..PrometheusConfig::default() };
        Prometheus::new(config).unwrap().timeout(Duration::from_millis(200))
    }

    async fn answer(&self, headers: &HeaderMap, body: String) -> Response {
        let token = headers.get("authorization").map(|v| v.to_str().unwrap().to_owned());
        self.asked.lock().unwrap().push((token, body.clone()));
        let answers = self.answers.lock().unwrap().clone();
        match answers {
            Answers::Says(status, text) => (StatusCode::from_u16(status).unwrap(), text).into_response(),
            Answers::By(answer) => {
                let (status, text) = answer(&body);
                (StatusCode::from_u16(status).unwrap(), text).into_response()
            }
            Answers::Hangs => {
                self.hanging.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            }
            Answers::Trickles => {
                let begun = futures::stream::iter([Ok::<_, std::io::Error>("{\"status\":")]);
                Body::from_stream(begun.chain(futures::stream::pending())).into_response()
            }
            Answers::Floods => {
                let megabyte = " ".repeat(1 << 20);
                let flood =
                    std::iter::repeat_with(move || Ok::<_, std::io::Error>(megabyte.clone())).take(80);
                Body::from_stream(futures::stream::iter(flood)).into_response()
            }
        }
    }
}

/// The answer with these series.
pub(crate) fn vector(series: &Value) -> String {
    json!({"status": "success", "data": {"resultType": "vector", "result": series}}).to_string()
}

#[tokio::test]
async fn values_are_read_as_prometheus_writes_them() {
    let one = |v: &str| json!({"metric": {"pod": "a"}, "value": [1_700_000_000.5, v]});
    let answer = vector(&json!([one("0.25"), one("NaN"), one("+Inf"), one("-Inf"), one("1e-3")]));
    let fake = FakePrometheus::start(Answers::Says(200, answer)).await;
    let values: Vec<f64> = fake.client().query("x").await.unwrap().into_iter().map(|s| s.value).collect();
    assert!((values[0] - 0.25).abs() < 1e-12 && (values[4] - 0.001).abs() < 1e-12, "{values:?}");
    assert!(values[1].is_nan());
    assert_eq!(values[2..4], [f64::INFINITY, f64::NEG_INFINITY]);
    fake.now(Answers::Says(200, vector(&json!([]))));
    assert_eq!(fake.client().query("x").await.unwrap(), [], "no series is an answer");
}

#[tokio::test]
async fn what_is_no_answer_is_an_error_that_says_so() {
    let says = |status, text: &str| Answers::Says(status, text.to_owned());
    let long = json!({"status": "error", "error": "y".repeat(5000)}).to_string();
    for (answers, variant, part) in [
        (says(503, "upstream is down\nsecond line"), "Refused", "503: upstream is down"),
        (
            says(422, r#"{"status":"error","errorType":"execution","error":"too many samples"}"#),
            "Refused",
            "422: too many samples",
        ),
        (says(400, &long), "Refused", "yyy"),
        (says(302, ""), "Refused", "302"),
        (says(200, "<html>login</html>"), "Unreadable", "line 1"),
        (says(200, ""), "Unreadable", "EOF"),
        (says(200, r#"{"status":"success"}"#), "Unreadable", "without data"),
        (says(200, r#"{"status":"error","error":"shard lost"}"#), "Unreadable", "shard lost"),
        (
            says(200, r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#),
            "Unreadable",
            "matrix",
        ),
        (says(200, &vector(&json!([{"metric": {}, "value": [1, "many"]}]))), "Unreadable", "many"),
        (Answers::Hangs, "Unreachable", "timed out"),
        (Answers::Trickles, "Unreachable", "timed out"),
    ] {
        let fake = FakePrometheus::start(answers).await;
        let error = fake.client().query("x").await.unwrap_err();
        assert!(format!("{error:?}").starts_with(variant), "{error:?}");
        assert!(error.to_string().contains(part), "{part:?} is not in {error}");
        assert!(error.to_string().len() < 500, "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_never_ends_is_cut_off() {
    let fake = FakePrometheus::start(Answers::Floods).await;
    let error = fake.client().timeout(Duration::from_mins(1)).query("x").await.unwrap_err();
    assert!(
        matches!(&error, QueryError::Unreadable { problem, .. } if problem.contains("longer than")),
        "{error}"
    );
}

#[tokio::test]
async fn nobody_there_is_told_down_to_the_cause() {
    // Bound and never listened on: nothing else can take the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base_url = format!("http://operator:hunter2@{}", socket.local_addr().unwrap());
    let config = PrometheusConfig { base_url, ..PrometheusConfig::default() };
    let error = Prometheus::new(config).unwrap().query("x").await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    assert!(!error.contains("hunter2") && error.contains("http://operator:***@127.0.0.1"), "{error}");
}

#[test]
fn a_password_is_no_part_of_a_message() {
    let config = PrometheusConfig {
        base_url: "http://u:hunter2@p".into(),
        bearer_token: Some("hunter2".into()),
        ..PrometheusConfig::default()
    };
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}

#[tokio::test]
async fn the_token_is_sent_and_a_rotated_one_is_read_again() {
    let fake = FakePrometheus::start(Answers::Says(200, vector(&json!([])))).await;
    let folder = std::env::temp_dir().join(format!("wva-token-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("token");
    let mut client = fake.client();
    client.config.token_path = Some(file.display().to_string());
    let missing = client.query("x").await.unwrap_err();
    assert!(matches!(missing, QueryError::Token { .. }), "{missing}");
    for token in ["one", "two"] {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        client.query("up{a=\"b\"}").await.unwrap();
    }
    client.config.bearer_token = Some("given".into());
    client.query("x").await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let asked = fake.asked.lock().unwrap();
    let tokens: Vec<_> = asked.iter().map(|(t, _)| t.as_deref().unwrap()).collect();
    assert_eq!(tokens, ["Bearer one", "Bearer two", "Bearer given"]);
    assert_eq!(asked[0].1, "query=up%7Ba%3D%22b%22%7D");
}
