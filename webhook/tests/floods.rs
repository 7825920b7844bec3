//! More clients and larger bodies than the limits allow. Valid reviews are answered all the time, over existing and new
//! connections.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use serde_json::json;
use support::{SOON, Server, accepted, head, read_to_end, send_review};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use wva_runtime::server;
use wva_webhook::{CONFIG_MAP_PATH, Limits, VALIDATE_PATH};

const NEVER: Duration = Duration::from_mins(10);

/// Limits without time-outs: connections are closed only because there are too many.
fn without_timeouts(connections: usize) -> Limits {
    let server = server::Limits { connections, handshake: NEVER, head: NEVER, ..Limits::default().server };
    Limits { server, review: NEVER, ..Limits::default() }
}

async fn assert_closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let ended = tokio::time::timeout(SOON, stream.read(&mut [0])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

async fn assert_answered(server: &Server) {
    let review = tokio::time::timeout(SOON, server.review(VALIDATE_PATH, "accepted")).await.unwrap();
    assert_eq!(review["allowed"], true);
}

#[tokio::test]
async fn idle_clients_do_not_block_reviews() {
    let server = Server::start(without_timeouts(8));
    let mut kept = server.connect().await;
    send_review(&mut kept).await;

    let mut without_handshake = Vec::new();
    for _ in 0..20 {
        without_handshake.push(TcpStream::connect(server.addr).await.unwrap());
    }
    assert_answered(&server).await;
    assert_closed(&mut without_handshake[0]).await;

    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(server.connect().await);
    }
    assert_answered(&server).await;
    assert_closed(&mut idle[0]).await;

    let mut half_headers = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        stream.write_all(b"POST /validate HTTP/1.1\r\nX-Slow: ").await.unwrap();
        half_headers.push(stream);
    }
    assert_answered(&server).await;
    assert_closed(&mut half_headers[0]).await;

    let mut half_bodies = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        stream.write_all(&[head(VALIDATE_PATH, 1000, "close"), b"{".to_vec()].concat()).await.unwrap();
        half_bodies.push(stream);
    }
    assert_answered(&server).await;
    assert_closed(&mut half_bodies[0]).await;

    send_review(&mut kept).await;
}

/// Starts uploads that send only a part of the announced body.
async fn start_stalled_uploads(
    server: &Server,
    clients: usize,
    announced: usize,
    sent: usize,
) -> Vec<TlsStream<TcpStream>> {
    let part = [head(VALIDATE_PATH, announced, "close"), vec![b' '; sent]].concat();
    let mut held = Vec::new();
    for _ in 0..clients {
        let mut stream = server.connect().await;
        // May fail: the server stops reading from a waiting client and may close it.
        let _ = tokio::time::timeout(Duration::from_millis(200), stream.write_all(&part)).await;
        held.push(stream);
    }
    held
}

#[tokio::test]
async fn stalled_large_bodies_end_and_delay_no_small_one() {
    let review = Duration::from_secs(2);
    let server = Server::start(Limits { review, ..without_timeouts(64) });
    let mut held = start_stalled_uploads(&server, 3, 1 << 20, 512 << 10).await;
    assert_answered(&server).await;
    for stream in &mut held {
        let (status, text) = tokio::time::timeout(SOON, read_to_end(stream)).await.unwrap();
        assert!(matches!(status, 0 | 408), "{status} {text}");
    }
    let spaces = [accepted(), vec![b' '; 1 << 20]].concat();
    assert_eq!(server.post(VALIDATE_PATH, &spaces).await.0, 200, "their memory is free again");
}

#[tokio::test]
async fn stalled_large_bodies_free_memory_at_their_deadline() {
    let review = Duration::from_secs(1);
    let server = Server::start(Limits { body: 1 << 20, review, ..without_timeouts(64) });
    let large = [accepted(), vec![b' '; 700 << 10]].concat();
    for sent in [65 << 10, 300 << 10] {
        let _held = start_stalled_uploads(&server, 12, 1 << 20, sent).await;
        tokio::time::sleep(review).await;
        for _ in 0..3 {
            let answer = tokio::time::timeout(SOON, server.post(VALIDATE_PATH, &large)).await;
            assert!(matches!(&answer, Ok((200, _))), "{sent}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn answers_before_the_api_server_times_out() {
    let server = Server::start(without_timeouts(8));
    let mut stream = server.connect().await;
    let path = format!("{VALIDATE_PATH}?timeout=1s");
    stream.write_all(&[head(&path, 1000, "close"), b"{".to_vec()].concat()).await.unwrap();
    let (status, text) = tokio::time::timeout(SOON, read_to_end(&mut stream)).await.unwrap();
    assert_eq!((status, text.as_str()), (408, "the body took too long to arrive\n"));
}

#[tokio::test]
async fn refuses_bodies_over_the_memory_limit() {
    let server = Server::start(Limits::default());
    for part in [r#"{"":0},"#, "0,", "[],"] {
        let body = format!("[{}0]", part.repeat((6 << 20) / part.len()));
        for path in [VALIDATE_PATH, CONFIG_MAP_PATH] {
            let (status, text) = server.post(path, body.as_bytes()).await;
            assert_eq!((status, text.contains("memory limit")), (413, true), "{part} {text}");
        }
    }
    let mut endless = server.connect().await;
    endless.write_all(b"POST /validate HTTP/1.1\r\nX-Long: ").await.unwrap();
    let _ = endless.write_all(&vec![b'x'; 1 << 20]).await;
    let (status, _) = tokio::time::timeout(SOON, read_to_end(&mut endless)).await.unwrap();
    assert!(matches!(status, 0 | 431), "an endless header: {status}");
}

/// A review of a saturation map of this namespace, of at least `bytes` bytes.
fn map_review(namespace: &str, bytes: usize) -> Vec<u8> {
    let name = "wva-saturation-scaling-config";
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {}});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "name": name,
        "namespace": namespace, "operation": "CREATE", "object": object}});
    let mut body = review.to_string().into_bytes();
    body.resize(body.len().max(bytes), b' ');
    body
}

async fn wait_until_judged(server: &Server, namespace: &str) {
    let judged = async {
        while !server.cluster.judged().iter().any(|other| other == namespace) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, judged).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_large_map_delays_no_small_one() {
    let server = Server::start(without_timeouts(8));
    let cluster = server.cluster.clone();
    let large = 128 << 10;
    let [slow, late, last] = ["slow", "late", "last"].map(|namespace| map_review(namespace, large));
    let small = map_review("small", 0);
    let held = cluster.slow.lock().await;
    let meanwhile = async {
        wait_until_judged(&server, "slow").await;
        let (status, text) = tokio::time::timeout(SOON, server.post(CONFIG_MAP_PATH, &small)).await.unwrap();
        assert_eq!(status, 200, "{text}");
        // Waits for its permit until its deadline.
        let path = format!("{CONFIG_MAP_PATH}?timeout=1s");
        let (status, text) = tokio::time::timeout(SOON, server.post(&path, &late)).await.unwrap();
        assert_eq!((status, text.trim()), (504, "the review exceeded its time limit"));
        drop(held);
        let answered = tokio::time::timeout(SOON, server.post(CONFIG_MAP_PATH, &last)).await;
        assert_eq!(answered.unwrap().0, 200);
    };
    let (slow, ()) = tokio::join!(server.post(CONFIG_MAP_PATH, &slow), meanwhile);
    assert_eq!(slow.0, 200, "{}", slow.1);
    assert_eq!(cluster.judged(), ["slow", "small", "last"], "the cancelled review is not judged");
}
