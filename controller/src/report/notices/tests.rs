//! What is written when somebody leads, how often, and what becomes of the rest.

use std::convert::Infallible;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::Value;
use wva_crds::events::{News, event};

use super::*;

/// Names and notes of what an API server, a fake, was sent.
type Sent = Arc<Mutex<Vec<(String, String)>>>;

/// It answers each request with the next of these codes, and in the end with the last of them; 0 is no answer.
fn fake(codes: &'static [u16]) -> (Client, Sent) {
    let sent = Sent::default();
    let kept = sent.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let kept = kept.clone();
        async move {
            let bytes = to_bytes(Body::new(request.into_body()), 1 << 20).await.unwrap();
            let body: Value = serde_json::from_slice(&bytes).unwrap();
            let text = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
            let count = {
                let mut kept = kept.lock().unwrap();
                kept.push((text("/metadata/name"), text("/note")));
                kept.len()
            };
            let code = codes[(count - 1).min(codes.len() - 1)];
            if code == 0 {
                std::future::pending::<()>().await;
            }
            let status = serde_json::json!({"kind": "Status", "code": code, "message": "", "reason": ""});
            let answer = if code < 300 { &body } else { &status };
            Ok::<_, Infallible>(
                Response::builder().status(code).body(Body::from(answer.to_string())).unwrap(),
            )
        }
    });
    (Client::new(service, "default"), sent)
}

fn news(note: &str, at: Timestamp) -> Event {
    let regarding = ObjectReference {
        name: Some("main".into()),
        namespace: Some("wva".into()),
        ..ObjectReference::default()
    };
    let reason = "ImmutableConfigChangeRejected";
    event(&News { regarding, warning: true, reason, action: "Reject", note, reporter: None, at })
}

/// What is sent within so long of leading.
async fn led(notices: &Notices, codes: &'static [u16], span: Duration) -> Vec<(String, String)> {
    let (client, sent) = fake(codes);
    assert!(tokio::time::timeout(span, notices.write(&client)).await.is_err(), "it goes on");
    sent.lock().unwrap().clone()
}

fn notes(sent: &[(String, String)]) -> Vec<&str> {
    sent.iter().map(|(_, note)| note.as_str()).collect()
}

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn what_came_while_nobody_led_is_written_once_somebody_does() {
    let notices = Notices::default();
    notices.add(news("first", Timestamp::now()), &["1"]);
    notices.add(news("second", Timestamp::now()), &["2"]);
    assert_eq!(notes(&led(&notices, &[201], MINUTE).await), ["first", "second"]);
    assert!(led(&notices, &[201], MINUTE).await.is_empty(), "each of them once");
    let (client, sent) = fake(&[201]);
    let later = async {
        tokio::time::sleep(MINUTE).await;
        notices.add(news("third", Timestamp::now()), &["3"]);
    };
    let both = async { tokio::join!(notices.write(&client), later) };
    assert!(tokio::time::timeout(2 * MINUTE, both).await.is_err());
    assert_eq!(notes(&sent.lock().unwrap()), ["third"], "it does not wait for another leader");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_see_the_same_name_it_alike() {
    let name = async |note: &str, fact: [&str; 2]| {
        let notices = Notices::default();
        notices.add(news(note, Timestamp::now()), &fact);
        led(&notices, &[409], MINUTE).await.swap_remove(0).0
    };
    let first = name("of one replica", ["uid", "1"]).await;
    assert_eq!(first, "main.4496f5a3493138ff", "a replica of another release names it alike");
    assert_eq!(first, name("of another", ["uid", "1"]).await);
    assert_ne!(first, name("of one replica", ["uid", "2"]).await);
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_does_not_answer_is_tried_again_and_what_it_refuses_is_not() {
    for (codes, want) in [
        (&[0, 503, 201][..], &["first", "first", "first", "second"][..]),
        (&[403, 201], &["first", "second"]),
        (&[409, 201], &["first", "second"]),
    ] {
        let notices = Notices::default();
        notices.add(news("first", Timestamp::now()), &["1"]);
        notices.add(news("second", Timestamp::now()), &["2"]);
        assert_eq!(notes(&led(&notices, codes, 2 * MINUTE).await), want, "{codes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waited_too_long_and_what_is_too_much_is_dropped() {
    let notices = Notices::default();
    notices.add(news("old", Timestamp::now() - KEPT), &["0"]);
    notices.add(news("young", Timestamp::now() - KEPT + SignedDuration::from_mins(1)), &["1"]);
    assert_eq!(notes(&led(&notices, &[201], MINUTE).await), ["young"]);
    for fact in 0..=MOST {
        let fact = fact.to_string();
        notices.add(news(&fact, Timestamp::now()), &[&fact]);
    }
    let sent = led(&notices, &[201], MINUTE).await;
    assert_eq!((sent.len(), notes(&sent)[0]), (MOST, "1"), "the oldest went");
}
