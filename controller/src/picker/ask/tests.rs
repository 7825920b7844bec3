//! One request against pods that answer as they should, and against those that do whatever they can think of.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Response, Uri};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::StatusCode;
use tokio_util::bytes::Bytes;

use super::super::token::bearer;
use super::*;
use crate::picker::page::Waiting;

/// Longer than a request may take.
const LONG: Duration = Duration::from_secs(10);

const PAGE: &str =
    "# TYPE llm_d_epp_flow_control_queue_size gauge\nllm_d_epp_flow_control_queue_size{model_name=\"m\"} 3\n";

/// Whether it is the right fault.
type Judge = fn(&NoAnswer) -> bool;

/// What a pod does.
#[derive(Clone, Copy)]
enum Does {
    Says(u16, &'static str),
    Hangs,
    Trickles,
    Floods,
    BreaksOff,
    Redirects,
    WantsToken(&'static str),
}

fn answer(does: Does, headers: &HeaderMap) -> Response<Body> {
    let endless = |piece: &'static [u8]| {
        Body::from_stream(futures::stream::repeat_with(move || {
            Ok::<_, std::io::Error>(Bytes::from_static(piece))
        }))
    };
    let answer = Response::builder();
    let made = match does {
        Does::Says(status, text) => answer.status(status).body(Body::from(text)),
        Does::Hangs => unreachable!("it does not get here"),
        Does::Trickles => {
            let begin = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(PAGE.as_bytes()))]);
            answer.body(Body::from_stream(begin.chain(futures::stream::pending())))
        }
        Does::Floods => answer.body(endless(b"go_goroutines 12\ngo_goroutines 12\ngo_goroutines 12\n")),
        Does::BreaksOff => {
            answer.header("content-length", "999").body(Body::from_stream(futures::stream::iter([
                Ok(Bytes::from_static(PAGE.as_bytes())),
                Err(std::io::Error::other("gone")),
            ])))
        }
        Does::Redirects => answer.status(302).header("location", "/elsewhere").body(Body::empty()),
        Does::WantsToken(token)
            if headers.get("authorization").is_some_and(|h| h.as_bytes() == token.as_bytes()) =>
        {
            answer.body(Body::from(PAGE))
        }
        Does::WantsToken(_) => answer.status(401).body(Body::empty()),
    };
    made.unwrap()
}

async fn pod(does: Does) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(move |uri: Uri, headers: HeaderMap| async move {
        if matches!(does, Does::Hangs) {
            std::future::pending::<()>().await;
        }
        // Where a redirect leads there is a page, too.
        let does = if uri.path() == "/metrics" { does } else { Does::Says(200, PAGE) };
        answer(does, &headers)
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn ask_with(does: Does, token: Option<&str>) -> Result<BTreeMap<String, Waiting>, NoAnswer> {
    let (_, token) = watch::channel(token.and_then(bearer));
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let asker = Asker::new(token).unwrap();
    let query = PickerQuery { models: ["m".to_owned()].into(), ..PickerQuery::default() };
    Ok(asker.ask(pod(does).await, &query, &mut 0).await?.waiting)
}

async fn ask(does: Does) -> Result<BTreeMap<String, Waiting>, NoAnswer> {
    ask_with(does, None).await
}

#[tokio::test]
async fn a_page_says_what_waits() {
    let said = ask(Does::Says(200, PAGE)).await.unwrap();
    assert_eq!(said, [("m".to_owned(), Waiting { size: 3.0, bytes: 0.0 })].into());
    let said = ask(Does::Says(200, "go_goroutines 12\n")).await.unwrap();
    assert_eq!(said, [("m".to_owned(), Waiting::default())].into());
}

#[tokio::test]
async fn the_token_goes_along() {
    let wants = Does::WantsToken("Bearer hunter2");
    assert!(ask_with(wants, Some("hunter2")).await.is_ok());
    for token in [None, Some("other")] {
        let refused = ask_with(wants, token).await.unwrap_err();
        assert!(matches!(refused, NoAnswer::Refused(StatusCode::UNAUTHORIZED)), "{refused}");
    }
}

#[tokio::test]
async fn what_a_pod_does_instead_of_answering_is_no_answer_and_is_over_in_time() {
    let rows: [(Does, Judge); 7] = [
        (Does::Hangs, |e| matches!(e, NoAnswer::TooSlow)),
        (Does::Trickles, |e| matches!(e, NoAnswer::TooSlow)),
        (Does::Floods, |e| matches!(e, NoAnswer::TooLong | NoAnswer::TooSlow)),
        (Does::BreaksOff, |e| matches!(e, NoAnswer::Unreachable(_))),
        (Does::Redirects, |e| matches!(e, NoAnswer::Refused(StatusCode::FOUND))),
        (Does::Says(503, "no"), |e| matches!(e, NoAnswer::Refused(StatusCode::SERVICE_UNAVAILABLE))),
        (Does::Says(200, "<html>"), |e| matches!(e, NoAnswer::NotMetrics(_))),
    ];
    for (does, is_it) in rows {
        let asked = tokio::time::timeout(LONG, ask(does)).await;
        let error = asked.unwrap().unwrap_err();
        assert!(is_it(&error), "{error}");
    }
}

#[tokio::test]
async fn nobody_there_is_no_answer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let asker = Asker::new(watch::channel(None).1).unwrap();
    let error = asker.ask(address, &PickerQuery::default(), &mut 0).await.unwrap_err();
    assert!(matches!(error, NoAnswer::Unreachable(_)), "{error}");
}
