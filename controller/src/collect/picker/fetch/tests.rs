//! Tests of requests to pods that answer correctly, and to pods that misbehave.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::token::bearer;
use super::*;
use crate::collect::page::PageTls;
use crate::collect::totals::QueueTotals;

/// Longer than the timeout of a request.
const LONG: Duration = Duration::from_secs(10);

const PAGE: &str =
    "# TYPE llm_d_epp_flow_control_queue_size gauge\nllm_d_epp_flow_control_queue_size{model_name=\"m\"} 3\n";

/// Checks for the expected error.
type ErrorCheck = fn(&PageError) -> bool;

/// Behavior of a pod after its answer.
#[derive(Clone, Copy)]
enum AfterAnswer {
    Close,
    Hang,
    SendMore,
}

fn response(status: &str, page: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n\r\n{page}").into_bytes()
}

/// An answer with this page, packed.
fn packed(page: &str) -> Vec<u8> {
    let mut encoder =
        GzEncoder::new(response("200 OK\r\ncontent-encoding: gzip", ""), Compression::default());
    encoder.write_all(page.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A pod that sends the answer of `answer` to each request.
async fn pod(answer: impl Fn(&str) -> Vec<u8> + Send + 'static, then: AfterAnswer) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let n = stream.read(&mut request).await.unwrap();
            let answer = answer(&String::from_utf8_lossy(&request[..n]));
            let mut sent = stream.write_all(&answer).await;
            match then {
                AfterAnswer::Close => {}
                AfterAnswer::Hang => std::future::pending().await,
                AfterAnswer::SendMore => {
                    while sent.is_ok() {
                        sent = stream.write_all(b"go_goroutines 12\ngo_goroutines 12\n").await;
                    }
                }
            }
        }
    });
    address
}

/// Without certificates.
fn fetcher_with(token: watch::Receiver<Option<HeaderValue>>) -> PageFetcher {
    let (_, certificates) = watch::channel(Ok(PageTls::default()));
    PageFetcher::new(token, certificates).unwrap()
}

async fn fetch_from(
    fetcher: &PageFetcher,
    address: SocketAddr,
    query: &PickerQuery,
    bytes: &mut usize,
) -> Result<PickerPage, PageError> {
    let (pod, of) = (PickerPod { address, tls: false }, PickerKey::service("ns", "epp"));
    let cost = AtomicUsize::new(0);
    let spend = |bytes: usize| {
        cost.fetch_add(bytes, Ordering::Relaxed);
        true
    };
    let page = fetcher.fetch(pod, &of, query, &spend).await;
    *bytes = cost.into_inner();
    page
}

async fn fetch(address: SocketAddr, token: Option<&str>) -> Result<BTreeMap<String, QueueTotals>, PageError> {
    let (_, token) = watch::channel(token.and_then(bearer));
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let fetcher = fetcher_with(token);
    let query = PickerQuery { models: ["m".to_owned()].into(), sends_token: true, ..PickerQuery::default() };
    Ok(fetch_from(&fetcher, address, &query, &mut 0).await?.waiting)
}

#[tokio::test]
async fn reads_waiting_requests_from_page() {
    for (page, waiting) in
        [(PAGE, QueueTotals { size: 3.0, bytes: 0.0 }), ("go_goroutines 12\n", QueueTotals::default())]
    {
        let totals = fetch(pod(|_| response("200 OK", page), AfterAnswer::Close).await, None).await.unwrap();
        assert_eq!(totals, [("m".to_owned(), waiting)].into());
    }
}

#[tokio::test]
async fn sends_the_token() {
    let wants_token = |request: &str| {
        let has_token = request.contains("authorization: Bearer hunter2\r\n");
        response(if has_token { "200 OK" } else { "401 Unauthorized" }, PAGE)
    };
    assert!(fetch(pod(wants_token, AfterAnswer::Close).await, Some("hunter2")).await.is_ok());
    for token in [None, Some("other")] {
        let refused = fetch(pod(wants_token, AfterAnswer::Close).await, token).await.unwrap_err();
        assert!(matches!(refused, PageError::Refused(StatusCode::UNAUTHORIZED)), "{refused}");
    }
    let (_, token) = watch::channel(bearer("hunter2"));
    let fetcher = fetcher_with(token);
    let address = pod(wants_token, AfterAnswer::Close).await;
    let unlabelled = fetch_from(&fetcher, address, &PickerQuery::default(), &mut 0).await;
    assert!(unlabelled.is_err(), "the token went to a namespace that does not get it");
}

#[tokio::test]
async fn misbehaving_pod_is_an_error_in_time() {
    let page = response("200 OK", PAGE);
    // The target of the redirect has a valid page.
    let elsewhere = pod(|_| response("200 OK", PAGE), AfterAnswer::Close).await;
    let rows: [(Vec<u8>, AfterAnswer, ErrorCheck); 11] = [
        (Vec::new(), AfterAnswer::Hang, |e| matches!(e, PageError::TooSlow(_))),
        (page.clone(), AfterAnswer::Hang, |e| matches!(e, PageError::TooSlow(_))),
        (page, AfterAnswer::SendMore, |e| matches!(e, PageError::TooLong(_) | PageError::TooSlow(_))),
        (response("200 OK\r\ncontent-length: 999", PAGE), AfterAnswer::Close, |e| {
            matches!(e, PageError::Unreachable(_))
        }),
        (response(&format!("302 Found\r\nlocation: http://{elsewhere}/"), ""), AfterAnswer::Close, |e| {
            matches!(e, PageError::Refused(StatusCode::FOUND))
        }),
        (response("503 Service Unavailable", "no"), AfterAnswer::Close, |e| {
            matches!(e, PageError::Refused(StatusCode::SERVICE_UNAVAILABLE))
        }),
        (response("200 OK", "<html>"), AfterAnswer::Close, |e| matches!(e, PageError::InvalidPage(_))),
        (packed("<html>"), AfterAnswer::Close, |e| matches!(e, PageError::InvalidPage(_))),
        (cut(packed(PAGE)), AfterAnswer::Close, |e| matches!(e, PageError::InvalidGzip(_))),
        (response("200 OK\r\ncontent-encoding: gzip", PAGE), AfterAnswer::Close, |e| {
            matches!(e, PageError::InvalidGzip(_))
        }),
        (response("200 OK\r\ncontent-encoding: br", PAGE), AfterAnswer::Close, |e| {
            matches!(e, PageError::Encoding(_))
        }),
    ];
    for (answer, then, is_expected) in rows {
        let address = pod(move |_| answer.clone(), then).await;
        let error = tokio::time::timeout(LONG, fetch(address, None)).await.unwrap().unwrap_err();
        assert!(is_expected(&error), "{error}");
    }
}

/// Without its last byte.
fn cut(mut answer: Vec<u8>) -> Vec<u8> {
    answer.pop();
    answer
}

/// Reads a packed page. Returns its cost in bytes, too.
async fn fetch_packed(answer: Vec<u8>) -> (Result<PickerPage, PageError>, usize) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (_, token) = watch::channel(None);
    let fetcher = fetcher_with(token);
    let query = PickerQuery { models: ["m".to_owned()].into(), ..PickerQuery::default() };
    let mut bytes = 0;
    let asks_for_gzip = move |request: &str| {
        assert!(request.contains("accept-encoding: gzip\r\n"), "{request}");
        answer.clone()
    };
    let page = fetch_from(&fetcher, pod(asks_for_gzip, AfterAnswer::Close).await, &query, &mut bytes).await;
    (page, bytes)
}

/// 40 MB of a picker with 1,000 tenants.
#[tokio::test]
async fn long_page_arrives_packed_and_costs_its_bytes() {
    let tenant = |i: usize| {
        let bucket = |le: usize| {
            format!(
                "llm_d_epp_request_duration_seconds_bucket{{fairness_id=\"tenant-{i:04}\",model_name=\"m\",target_model_name=\"m\",le=\"{le}\"}} 1\n"
            )
        };
        (0..340).map(bucket).collect::<String>()
    };
    let page: String = (0..1000).map(tenant).collect::<String>() + PAGE;
    assert!(page.len() > 37 << 20, "{}", page.len());
    let answer = packed(&page);
    let wire = answer.len() - response("200 OK\r\ncontent-encoding: gzip", "").len();
    let (read, bytes) = fetch_packed(answer).await;
    assert_eq!(read.unwrap().waiting["m"], QueueTotals { size: 3.0, bytes: 0.0 });
    // The last text of the decoder is not charged.
    let cost = (page.len() / 32).max(wire);
    assert!(bytes <= cost && bytes + 2048 > cost, "{bytes} for {wire} bytes on the wire");
}

/// A proxy may pack each piece that it gets on its own.
#[tokio::test]
async fn page_of_several_gzip_members_is_read() {
    let (begin, end) = PAGE.split_at(PAGE.len() / 2);
    let second = packed(end);
    let head = response("200 OK\r\ncontent-encoding: gzip", "").len();
    let answer = [packed(begin), second[head..].to_vec()].concat();
    let (read, _) = fetch_packed(answer).await;
    assert_eq!(read.unwrap().waiting["m"], QueueTotals { size: 3.0, bytes: 0.0 });
}

/// It unpacks to a thousand times its size.
#[tokio::test]
async fn page_that_unpacks_without_end_is_too_long_and_costs_its_text() {
    let answer = packed(&"#\n".repeat(80 << 20));
    let (mut ticks, mut gap) = (tokio::time::interval(Duration::from_millis(5)), Duration::ZERO);
    let watching = async {
        let mut last = std::time::Instant::now();
        loop {
            ticks.tick().await;
            gap = gap.max(last.elapsed());
            last = std::time::Instant::now();
        }
    };
    let (read, bytes) = tokio::select! {
        read = fetch_packed(answer) => read,
        () = watching => unreachable!(),
    };
    // A slice unpacks to 4 MB; all of the page would take a hundred times as long.
    assert!(gap < Duration::from_millis(500), "other tasks waited for {gap:?}");
    let error = read.unwrap_err();
    assert!(matches!(error, PageError::TooLong(_) | PageError::TooSlow(_)), "{error}");
    assert!(bytes > 1 << 20, "{bytes}");
}

#[tokio::test]
async fn closed_port_is_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = fetch(address, None).await.unwrap_err();
    assert!(matches!(error, PageError::Unreachable(_)), "{error}");
}
