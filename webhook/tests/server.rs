//! The server over real TLS: answers, refused bodies and slow clients.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::time::{Duration, Instant};

use prometheus::{Encoder as _, TextEncoder};
use serde_json::json;
use support::{Server, accepted, head, read_to_end, send_review};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wva_runtime::server;
use wva_webhook::{CONFIG_MAP_PATH, Limits, MUTATE_PATH, VALIDATE_PATH};

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// Asserts a denial with a cause for each of these codes.
#[track_caller]
fn assert_denied(response: &serde_json::Value, codes: &[&str]) {
    assert_eq!(response["allowed"], false, "{response}");
    assert_eq!(response["uid"], UID);
    let status = &response["status"];
    assert_eq!((&status["reason"], &status["code"]), (&json!("Invalid"), &json!(422)));
    let causes = status["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), codes.len(), "{causes:?}");
    for (cause, code) in causes.iter().zip(codes) {
        assert!(cause["message"].as_str().unwrap().starts_with(&format!("[{code}]")), "{cause}");
        assert!(status["message"].as_str().unwrap().contains(code));
    }
    assert!(response.get("patch").is_none(), "a denial has no patch");
}

fn metrics(server: &Server) -> String {
    let mut out = Vec::new();
    TextEncoder::new().encode(&server.registry.gather(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn reviews_are_answered_with_their_uid() {
    let server = Server::start(Limits::default());
    let admitted = server.review(VALIDATE_PATH, "accepted").await;
    assert_eq!((&admitted["uid"], &admitted["allowed"]), (&json!(UID), &json!(true)));
    assert!(admitted.get("patch").is_none());

    let mutated = server.review(MUTATE_PATH, "accepted").await;
    assert_eq!((&mutated["allowed"], &mutated["patchType"]), (&json!(true), &json!("JSONPatch")));
    let patch: k8s_openapi::ByteString = serde_json::from_value(mutated["patch"].clone()).unwrap();
    let patch: serde_json::Value = serde_json::from_slice(&patch.0).unwrap();
    let label = "/metadata/labels/wva.llmd.ai~1controller-instance";
    assert_eq!(patch, json!([{"op": "add", "path": label, "value": "a"}]));
}

/// The warnings on a saturation map in a namespace.
async fn warnings(server: &Server, namespace: &str, entry: &str) -> Vec<String> {
    let name = "wva-saturation-scaling-config";
    let metadata = json!({"name": name, "namespace": namespace});
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"default": entry}});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": UID, "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "name": name,
        "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "namespace": namespace,
        "operation": "CREATE", "userInfo": {"username": "u"}, "object": map}});
    let (status, answer) = server.post(CONFIG_MAP_PATH, review.to_string().as_bytes()).await;
    assert_eq!(status, 200, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    serde_json::from_value(answer["response"]["warnings"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn judges_a_local_map_with_the_global_map() {
    let server = Server::start(Limits::default());
    let found = warnings(&server, "prod", "kvCacheThreshold: 0.2").await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("[WVA-CM-063]") && found[0].ends_with("kvSpareTrigger is 0.3"), "{found:?}");
    assert_eq!(warnings(&server, "prod", "kvCacheThreshold: 0.4").await, [""; 0]);
}

#[tokio::test]
async fn variant_is_not_unread_while_its_apply_may_go_on() {
    let server = Server::start(Limits::default());
    let now = k8s_openapi::jiff::Timestamp::now();
    for (operation, minutes, is_warned) in
        [("CREATE", 0, false), ("UPDATE", 1, false), ("UPDATE", 3, true), ("UPDATE", -1, false)]
    {
        let mut review: serde_json::Value = serde_json::from_slice(&accepted()).unwrap();
        let request = &mut review["request"];
        request["operation"] = json!(operation);
        request["namespace"] = json!("unread");
        request["object"]["metadata"]["namespace"] = json!("unread");
        let created = now - k8s_openapi::jiff::SignedDuration::from_mins(minutes);
        request["object"]["metadata"]["creationTimestamp"] = json!(created.to_string());
        if operation == "UPDATE" {
            request["oldObject"] = request["object"].clone();
        }
        let (_, answer) = server.post(VALIDATE_PATH, review.to_string().as_bytes()).await;
        assert_eq!(answer.contains("WVA-VA-063"), is_warned, "{operation} after {minutes} min: {answer}");
    }
}

#[tokio::test]
async fn refusals_name_their_rules() {
    let server = Server::start(Limits::default());
    for path in [MUTATE_PATH, VALIDATE_PATH] {
        assert_denied(&server.review(path, "WVA-VA-003").await, &["WVA-VA-003"]);
        let all = server.review(path, "all-at-once").await;
        assert_denied(&all, &["WVA-VA-004", "WVA-VA-003", "WVA-VA-006"]);
        let already = server.review(path, "WVA-VA-003-already").await;
        assert_eq!(already["allowed"], true);
        assert!(already["warnings"][0].as_str().unwrap().starts_with("[WVA-VA-003] spec.variantCost: "));
        let absent = server.review(path, "WVA-VA-054").await;
        assert_eq!(absent["allowed"], true);
        let warning = absent["warnings"][0].as_str().unwrap();
        assert!(warning.starts_with("[WVA-VA-054]") && warning.contains("\"absent\""), "{warning}");
    }
    let taken = server.review(MUTATE_PATH, "WVA-VA-015").await;
    assert_denied(&taken, &["WVA-VA-015"]);
    assert!(taken["status"]["message"].as_str().unwrap().contains("\"other\""));
}

#[tokio::test]
async fn metrics_count_outcomes_in_closed_sets() {
    let server = Server::start(Limits::default());
    server.review(VALIDATE_PATH, "accepted").await;
    server.review(VALIDATE_PATH, "WVA-VA-003").await;
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "MADE-UP", "kind": {"group": "llmd.ai", "kind": "VariantAutoscaling"}}});
    assert_eq!(server.post(VALIDATE_PATH, review.to_string().as_bytes()).await.0, 200);
    assert_eq!(server.post(VALIDATE_PATH, b"x").await.0, 400);
    let page = metrics(&server);
    for line in [
        r#"{allowed="true",code="200",operation="CREATE",resource="variantautoscalings"} 1"#,
        r#"{allowed="false",code="422",operation="CREATE",resource="variantautoscalings"} 1"#,
        r#"{allowed="true",code="200",operation="other",resource="variantautoscalings"} 1"#,
        r#"{allowed="false",code="400",operation="other",resource="variantautoscalings"} 1"#,
    ] {
        assert!(page.contains(&format!("wva_admission_reviews_total{line}")), "{line} in {page}");
    }
    let count =
        r#"wva_admission_review_duration_seconds_count{operation="CREATE",resource="variantautoscalings"} 2"#;
    assert!(page.contains(count), "{page}");
    assert!(!page.contains("MADE-UP"));
}

#[tokio::test]
async fn invalid_reviews_get_an_error_message() {
    let server = Server::start(Limits::default());
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let in_object = |depth| {
        let text = String::from_utf8(accepted()).unwrap();
        text.replacen("\"x\"", &nested(depth), 1).into_bytes()
    };
    let other_kind = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "kind": {"group": "", "kind": "Pod"}}});
    let no_uid = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}});
    for (path, body, status, message) in [
        (VALIDATE_PATH, b"".to_vec(), 400, "not valid JSON"),
        (VALIDATE_PATH, b"\xff\xfe".to_vec(), 400, "not valid JSON"),
        (VALIDATE_PATH, b"{\"a\":".to_vec(), 400, "not valid JSON"),
        (VALIDATE_PATH, b"[]".to_vec(), 400, "not an AdmissionReview"),
        (
            VALIDATE_PATH,
            br#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#.to_vec(),
            400,
            "not an AdmissionReview",
        ),
        (VALIDATE_PATH, no_uid.to_string().into_bytes(), 400, "uid"),
        (VALIDATE_PATH, other_kind.to_string().into_bytes(), 400, "VariantAutoscaling"),
        (VALIDATE_PATH, in_object(130), 400, "at most 128 levels"),
        (MUTATE_PATH, nested(3_000_000).into_bytes(), 400, "at most 128 levels"),
        (MUTATE_PATH, vec![b' '; (7 << 20) + 1], 413, "7340032 bytes"),
        ("/nowhere", b"{}".to_vec(), 404, "no such path"),
    ] {
        let (found, text) = server.post(path, &body).await;
        assert_eq!(found, status, "{path} {message}: {text}");
        assert!(text.contains(message), "{text}");
    }
    assert_eq!(server.post(VALIDATE_PATH, &in_object(100)).await.0, 200, "deep, but not too deep");
}

#[tokio::test]
async fn refuses_bodies_over_the_size_limit() {
    let server = Server::start(Limits { body: 1000, ..Limits::default() });
    let mut stream = server.connect().await;
    let chunked = format!(
        "POST {VALIDATE_PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(chunked.as_bytes()).await.unwrap();
    stream.write_all(format!("7d0\r\n{}\r\n0\r\n\r\n", "x".repeat(2000)).as_bytes()).await.unwrap();
    assert_eq!(read_to_end(&mut stream).await.0, 413);
    let mut stream = server.connect().await;
    stream.write_all(&head(VALIDATE_PATH, 100_000_000, "close")).await.unwrap();
    assert_eq!(read_to_end(&mut stream).await.0, 413);
}

#[tokio::test]
async fn a_panic_fails_only_its_own_review() {
    let server = Server::start(Limits::default());
    let text = String::from_utf8(accepted()).unwrap().replace("\"llama\"", "\"panic\"");
    let (status, text) = server.post(VALIDATE_PATH, text.as_bytes()).await;
    assert_eq!((status, text.trim()), (500, "the review failed; see the log of wva"));
    assert_eq!(server.review(VALIDATE_PATH, "accepted").await["allowed"], true);
}

#[tokio::test]
async fn closes_connections_of_slow_clients() {
    let short = Duration::from_millis(300);
    let server = server::Limits { handshake: short, head: short, ..Limits::default().server };
    let limits = Limits { server, review: short, ..Limits::default() };
    let server = Server::start(limits);
    let longest = Duration::from_secs(20);
    let within = |start: Instant| assert!(start.elapsed() < longest, "{:?}", start.elapsed());

    let start = Instant::now();
    let mut tcp = tokio::net::TcpStream::connect(server.addr).await.unwrap();
    let mut byte = [0];
    let ended = tokio::time::timeout(longest, tcp.read(&mut byte)).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "no handshake, no connection");

    let mut silent = server.connect().await;
    assert_eq!(tokio::time::timeout(longest, read_to_end(&mut silent)).await.unwrap().0, 0);

    let mut dripping = server.connect().await;
    let mut dripped = 0;
    while start.elapsed() < longest
        && dripping.write_all(b"P").await.is_ok()
        && dripping.flush().await.is_ok()
    {
        dripped += 1;
        let next = tokio::time::timeout(Duration::from_millis(20), dripping.read(&mut byte)).await;
        if next.is_ok() {
            break;
        }
    }
    assert!(dripped > 1, "the first bytes are read");
    within(start);

    let mut no_body = server.connect().await;
    no_body.write_all(&head(VALIDATE_PATH, 10, "close")).await.unwrap();
    let (status, text) = tokio::time::timeout(longest, read_to_end(&mut no_body)).await.unwrap();
    assert_eq!((status, text.trim()), (408, "the body took too long to arrive"));
}

#[tokio::test]
async fn closes_idle_connections_after_the_idle_timeout() {
    let head = Duration::from_secs(2);
    let server = server::Limits { head, ..Limits::default().server };
    let server = Server::start(Limits { server, ..Limits::default() });
    let mut stream = server.connect().await;
    let mut byte = [0];
    for _ in 0..4 {
        send_review(&mut stream).await;
        let idle = tokio::time::timeout(Duration::from_millis(600), stream.read(&mut byte)).await;
        assert!(idle.is_err(), "each review restarts the time-out: {idle:?}");
    }
    let ended = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut byte)).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "idle for too long");
}

#[tokio::test]
async fn finishes_open_reviews_at_shutdown() {
    let server = Server::start(Limits::default());
    let idle = server.connect().await;
    let body = accepted();
    let mut stream = server.connect().await;
    let mut begin = head(VALIDATE_PATH, body.len(), "keep-alive");
    begin.splice(begin.len() - 2..begin.len() - 2, *b"Expect: 100-continue\r\n");
    stream.write_all(&begin).await.unwrap();
    let mut proceed = vec![0; 25];
    // The server requests the body once the review has begun.
    stream.read_exact(&mut proceed).await.unwrap();
    assert!(proceed.starts_with(b"HTTP/1.1 100 "));
    server.end.shutdown.cancel();
    stream.write_all(&body).await.unwrap();
    let (status, _) = read_to_end(&mut stream).await;
    assert_eq!(status, 200);
    tokio::time::timeout(Duration::from_secs(5), server.ended).await.unwrap().unwrap().unwrap();
    drop(idle);
    assert!(tokio::net::TcpStream::connect(server.addr).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn a_stopping_server_answers_and_closes_the_connection() {
    let server = Server::start(Limits::default());
    let mut open = server.connect().await;
    let review = [head(VALIDATE_PATH, accepted().len(), "keep-alive"), accepted()].concat();
    let mut answer = [0; 4096];
    open.write_all(&review).await.unwrap();
    let n = open.read(&mut answer).await.unwrap();
    assert!(!String::from_utf8_lossy(&answer[..n]).contains("connection: close"));
    server.end.stopping.cancel();
    for mut stream in [open, server.connect().await] {
        stream.write_all(&review).await.unwrap();
        let mut all = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut all)).await;
        assert!(closed.is_ok(), "the connection ends after the answer");
        let text = String::from_utf8_lossy(&all);
        assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("connection: close"), "{text}");
    }
    server.end.shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(5), server.ended).await.unwrap().unwrap().unwrap();
}
