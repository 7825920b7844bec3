//! Tests of the client against a fake Prometheus on a loopback socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use wva_fakes::prometheus::{FakePrometheus, FakeReply, vector};

use super::*;

impl Prometheus {
    /// Values of a query.
    async fn values(&self, expression: &str) -> Result<Vec<f64>, QueryError> {
        Ok(self.query(expression).await?.into_iter().map(|series| series.value).collect())
    }
}

/// Settings with this base URL, whose password is `hunter2`, if it has one.
fn config(base_url: &str) -> PrometheusConfig {
    let (base_url, shown_url) = (base_url.to_owned(), base_url.replace("hunter2", "***"));
    PrometheusConfig { base_url, shown_url, ..PrometheusConfig::default() }
}

/// A client with a timeout of two seconds and a limit of a megabyte.
fn client(fake: &FakePrometheus) -> Prometheus {
    Prometheus::new(config(&fake.url())).unwrap().with_timeout(Duration::from_secs(2)).with_limit(1 << 20)
}

#[tokio::test]
async fn reads_values_in_prometheus_format() {
    let all = ["0.25", "NaN", "+Inf", "-Inf", "1e-3"].map(|value| (json!({"pod": "a"}), value));
    let fake = FakePrometheus::start(FakeReply::series(all)).await;
    let values = client(&fake).values("x").await.unwrap();
    assert!((values[0] - 0.25).abs() < 1e-12 && (values[4] - 0.001).abs() < 1e-12, "{values:?}");
    assert!(values[1].is_nan());
    assert_eq!(values[2..4], [f64::INFINITY, f64::NEG_INFINITY]);
    fake.set_reply(FakeReply::no_series());
    assert!(client(&fake).values("x").await.unwrap().is_empty(), "an empty answer is valid");
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
        let error = client(&fake).values("x").await.unwrap_err();
        assert!(format!("{error:?}").starts_with(variant), "{error:?}");
        assert!(error.to_string().contains(part), "{part:?} is not in {error}");
        assert!(error.to_string().len() < 500, "{error}");
        assert!(variant != "Refused" || fake.queries() == 1, "an error answer is not queried again");
    }
}

#[tokio::test]
async fn endless_answer_is_cut_off() {
    let fake = FakePrometheus::start(FakeReply::Flood).await;
    let error = client(&fake).with_timeout(Duration::from_mins(1)).values("x").await.unwrap_err();
    assert!(matches!(error, QueryError::TooLong { limit: 0x10_0000, .. }), "{error}");
}

#[tokio::test]
async fn ignores_unknown_fields_and_field_order() {
    let answer = r#"{"stats":{"x":[1,{"y":null}]},"isPartial":false,
        "data":{"result":[{"value":[1,"2"],"metric":{"odd":"\u00e9\n","pod":"a"},"more":{}}],"resultType":"vector"},
        "infos":["i"],"status":"success"}"#;
    let fake = FakePrometheus::start(FakeReply::Body(200, answer.to_owned())).await;
    assert_eq!(client(&fake).values("x").await.unwrap(), [2.0]);
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
        let client = self::client(&fake);
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
        let config = config(&base_url);
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
    let config = config(&base_url);
    let error = Prometheus::new(config).unwrap().values("x").await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    assert!(!error.contains("hunter2") && error.contains("http://operator:***@127.0.0.1"), "{error}");
}

#[test]
fn debug_output_has_no_password() {
    let config = PrometheusConfig { bearer_token: Some("hunter2".into()), ..config("http://u:hunter2@p") };
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}

#[test]
fn refuses_a_user_together_with_a_token() {
    let config = config("https://u:hunter2@p");
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
    let with_file = |url: &str| PrometheusConfig { token_path: Some("/token".into()), ..config(url) };
    for url in ["http://prometheus:9090", "HTTP://u@127.0.0.1"] {
        let error = Prometheus::new(with_file(url)).unwrap_err().to_string();
        let says = error.contains("not https") || error.contains("has a user");
        assert!(says && error.contains("PROMETHEUS_TOKEN_PATH"), "{error}");
    }
    // The setting that takes precedence leaves the file unread.
    let given = PrometheusConfig { bearer_token: Some("t".into()), ..with_file("http://prometheus:9090") };
    Prometheus::new(given).unwrap();
    Prometheus::new(with_file("https://prometheus:9090")).unwrap();
}

mod tls;
