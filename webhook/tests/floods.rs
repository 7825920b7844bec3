//! More clients than there is room for, and bodies that want more memory than there is: what they get, and that valid
//! reviews are answered all the while, over the connections that were there before and over new ones.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::time::Duration;

use serde_json::json;
use support::{SOON, Server, accepted, ask, head, read_to_end};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use wva_runtime::server;
use wva_webhook::{CONFIG_MAP_PATH, Limits, VALIDATE_PATH};

const NEVER: Duration = Duration::from_mins(10);

/// Nobody is let go for being slow: what is closed was closed for want of room.
fn patient(connections: usize) -> Limits {
    let server = server::Limits { connections, handshake: NEVER, head: NEVER, ..Limits::default().server };
    Limits { server, review: NEVER, ..Limits::default() }
}

async fn is_closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let ended = tokio::time::timeout(SOON, stream.read(&mut [0])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

async fn is_answered(server: &Server) {
    let review = tokio::time::timeout(SOON, server.review(VALIDATE_PATH, "accepted")).await.unwrap();
    assert_eq!(review["allowed"], true);
}

#[tokio::test]
async fn clients_that_ask_nothing_lock_nobody_out() {
    let server = Server::start(patient(8));
    let mut kept = server.connect().await;
    ask(&mut kept).await;

    let mut unshaken = Vec::new();
    for _ in 0..20 {
        unshaken.push(TcpStream::connect(server.addr).await.unwrap());
    }
    is_answered(&server).await;
    is_closed(&mut unshaken[0]).await;

    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(server.connect().await);
    }
    is_answered(&server).await;
    is_closed(&mut idle[0]).await;

    let mut half_headers = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        stream.write_all(b"POST /validate HTTP/1.1\r\nX-Slow: ").await.unwrap();
        half_headers.push(stream);
    }
    is_answered(&server).await;
    is_closed(&mut half_headers[0]).await;

    let mut half_bodies = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        stream.write_all(&[head(VALIDATE_PATH, 1000, "close"), b"{".to_vec()].concat()).await.unwrap();
        half_bodies.push(stream);
    }
    is_answered(&server).await;
    is_closed(&mut half_bodies[0]).await;

    ask(&mut kept).await;
}

/// Uploads that stop before their end.
async fn stalled(
    server: &Server,
    clients: usize,
    announced: usize,
    sent: usize,
) -> Vec<TlsStream<TcpStream>> {
    let part = [head(VALIDATE_PATH, announced, "close"), vec![b' '; sent]].concat();
    let mut held = Vec::new();
    for _ in 0..clients {
        let mut stream = server.connect().await;
        // The server stops reading from one that waits, and may close it, so this need not end well.
        let _ = tokio::time::timeout(Duration::from_millis(200), stream.write_all(&part)).await;
        held.push(stream);
    }
    held
}

#[tokio::test]
async fn large_bodies_that_stall_end_and_hold_up_no_small_one() {
    let review = Duration::from_secs(2);
    let server = Server::start(Limits { review, ..patient(64) });
    let mut held = stalled(&server, 3, 1 << 20, 512 << 10).await;
    is_answered(&server).await;
    for stream in &mut held {
        let (status, told) = tokio::time::timeout(SOON, read_to_end(stream)).await.unwrap();
        assert!(matches!(status, 0 | 408), "{status} {told}");
    }
    let spaces = [accepted(), vec![b' '; 1 << 20]].concat();
    assert_eq!(server.post(VALIDATE_PATH, &spaces).await.0, 200, "their places are free again");
}

#[tokio::test]
async fn large_bodies_that_stall_make_room_at_their_deadline() {
    let review = Duration::from_secs(1);
    let server = Server::start(Limits { body: 1 << 20, review, ..patient(64) });
    let large = [accepted(), vec![b' '; 700 << 10]].concat();
    for sent in [65 << 10, 300 << 10] {
        let _held = stalled(&server, 12, 1 << 20, sent).await;
        tokio::time::sleep(review).await;
        for _ in 0..3 {
            let answer = tokio::time::timeout(SOON, server.post(VALIDATE_PATH, &large)).await;
            assert!(matches!(&answer, Ok((200, _))), "{sent}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_review_ends_before_the_api_server_gives_up() {
    let server = Server::start(patient(8));
    let mut stream = server.connect().await;
    let path = format!("{VALIDATE_PATH}?timeout=1s");
    stream.write_all(&[head(&path, 1000, "close"), b"{".to_vec()].concat()).await.unwrap();
    let (status, told) = tokio::time::timeout(SOON, read_to_end(&mut stream)).await.unwrap();
    assert_eq!((status, told.as_str()), (408, "the body took too long to arrive\n"));
}

#[tokio::test]
async fn what_would_take_too_much_memory_is_refused() {
    let server = Server::start(Limits::default());
    for part in [r#"{"":0},"#, "0,", "[],"] {
        let body = format!("[{}0]", part.repeat((6 << 20) / part.len()));
        for path in [VALIDATE_PATH, CONFIG_MAP_PATH] {
            let (status, told) = server.post(path, body.as_bytes()).await;
            assert_eq!((status, told.contains("bytes of memory")), (413, true), "{part} {told}");
        }
    }
    let mut endless = server.connect().await;
    endless.write_all(b"POST /validate HTTP/1.1\r\nX-Long: ").await.unwrap();
    let _ = endless.write_all(&vec![b'x'; 1 << 20]).await;
    let (status, _) = tokio::time::timeout(SOON, read_to_end(&mut endless)).await.unwrap();
    assert!(matches!(status, 0 | 431), "a header that does not end: {status}");
}

/// A review of a saturation map of this namespace, as large as wanted.
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

async fn until_judged(server: &Server, namespace: &str) {
    let seen = async {
        while !server.cluster.judged().iter().any(|judged| judged == namespace) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, seen).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_large_map_holds_up_no_small_one() {
    let server = Server::start(patient(8));
    let cluster = server.cluster.clone();
    let large = 128 << 10;
    let [slow, late, last] = ["slow", "late", "last"].map(|namespace| map_review(namespace, large));
    let small = map_review("small", 0);
    let held = cluster.slow.lock().await;
    let asked = async {
        until_judged(&server, "slow").await;
        let (status, told) = tokio::time::timeout(SOON, server.post(CONFIG_MAP_PATH, &small)).await.unwrap();
        assert_eq!(status, 200, "{told}");
        // This one waits for its turn until its deadline is over.
        let path = format!("{CONFIG_MAP_PATH}?timeout=1s");
        let (status, told) = tokio::time::timeout(SOON, server.post(&path, &late)).await.unwrap();
        assert_eq!((status, told.trim()), (504, "the review took longer than it may"));
        drop(held);
        let answered = tokio::time::timeout(SOON, server.post(CONFIG_MAP_PATH, &last)).await;
        assert_eq!(answered.unwrap().0, 200);
    };
    let (slow, ()) = tokio::join!(server.post(CONFIG_MAP_PATH, &slow), asked);
    assert_eq!(slow.0, 200, "{}", slow.1);
    assert_eq!(cluster.judged(), ["slow", "small", "last"], "the late one is not judged");
}
