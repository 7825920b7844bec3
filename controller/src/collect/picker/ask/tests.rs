//! One request against pods that answer as they should, and against those that do whatever they can think of.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::token::bearer;
use super::*;
use crate::collect::totals::QueueTotals;

/// Longer than a request may take.
const LONG: Duration = Duration::from_secs(10);

const PAGE: &str =
    "# TYPE llm_d_epp_flow_control_queue_size gauge\nllm_d_epp_flow_control_queue_size{model_name=\"m\"} 3\n";

/// Whether it is the right fault.
type Judge = fn(&NoAnswer) -> bool;

/// What a pod does once it has sent its answer.
#[derive(Clone, Copy)]
enum Then {
    Closes,
    Hangs,
    SendsMore,
}

fn says(status: &str, page: &str) -> String {
    format!("HTTP/1.1 {status}\r\n\r\n{page}")
}

/// A pod that sends what `answer` makes of a request.
async fn pod(answer: impl Fn(&str) -> String + Send + 'static, then: Then) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let n = stream.read(&mut request).await.unwrap();
            let answer = answer(&String::from_utf8_lossy(&request[..n]));
            let mut sent = stream.write_all(answer.as_bytes()).await;
            match then {
                Then::Closes => {}
                Then::Hangs => std::future::pending().await,
                Then::SendsMore => {
                    while sent.is_ok() {
                        sent = stream.write_all(b"go_goroutines 12\ngo_goroutines 12\n").await;
                    }
                }
            }
        }
    });
    address
}

async fn ask(address: SocketAddr, token: Option<&str>) -> Result<BTreeMap<String, QueueTotals>, NoAnswer> {
    let (_, token) = watch::channel(token.and_then(bearer));
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let asker = Asker::new(token).unwrap();
    let query = PickerQuery { models: ["m".to_owned()].into(), ..PickerQuery::default() };
    Ok(asker.ask(address, &query, &mut 0).await?.waiting)
}

#[tokio::test]
async fn a_page_says_what_waits() {
    for (page, waiting) in
        [(PAGE, QueueTotals { size: 3.0, bytes: 0.0 }), ("go_goroutines 12\n", QueueTotals::default())]
    {
        let said = ask(pod(|_| says("200 OK", page), Then::Closes).await, None).await.unwrap();
        assert_eq!(said, [("m".to_owned(), waiting)].into());
    }
}

#[tokio::test]
async fn the_token_goes_along() {
    let wants_token = |request: &str| {
        let is_there = request.contains("authorization: Bearer hunter2\r\n");
        says(if is_there { "200 OK" } else { "401 Unauthorized" }, PAGE)
    };
    assert!(ask(pod(wants_token, Then::Closes).await, Some("hunter2")).await.is_ok());
    for token in [None, Some("other")] {
        let refused = ask(pod(wants_token, Then::Closes).await, token).await.unwrap_err();
        assert!(matches!(refused, NoAnswer::Refused(StatusCode::UNAUTHORIZED)), "{refused}");
    }
}

#[tokio::test]
async fn what_a_pod_does_instead_of_answering_is_no_answer_and_is_over_in_time() {
    let page = says("200 OK", PAGE);
    // Where a redirect leads there is a page, too.
    let elsewhere = pod(|_| says("200 OK", PAGE), Then::Closes).await;
    let rows: [(String, Then, Judge); 7] = [
        (String::new(), Then::Hangs, |e| matches!(e, NoAnswer::TooSlow)),
        (page.clone(), Then::Hangs, |e| matches!(e, NoAnswer::TooSlow)),
        (page, Then::SendsMore, |e| matches!(e, NoAnswer::TooLong | NoAnswer::TooSlow)),
        (says("200 OK\r\ncontent-length: 999", PAGE), Then::Closes, |e| {
            matches!(e, NoAnswer::Unreachable(_))
        }),
        (says(&format!("302 Found\r\nlocation: http://{elsewhere}/"), ""), Then::Closes, |e| {
            matches!(e, NoAnswer::Refused(StatusCode::FOUND))
        }),
        (says("503 Service Unavailable", "no"), Then::Closes, |e| {
            matches!(e, NoAnswer::Refused(StatusCode::SERVICE_UNAVAILABLE))
        }),
        (says("200 OK", "<html>"), Then::Closes, |e| matches!(e, NoAnswer::NotMetrics(_))),
    ];
    for (answer, then, is_it) in rows {
        let address = pod(move |_| answer.clone(), then).await;
        let error = tokio::time::timeout(LONG, ask(address, None)).await.unwrap().unwrap_err();
        assert!(is_it(&error), "{error}");
    }
}

#[tokio::test]
async fn nobody_there_is_no_answer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = ask(address, None).await.unwrap_err();
    assert!(matches!(error, NoAnswer::Unreachable(_)), "{error}");
}
