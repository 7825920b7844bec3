//! What is written when somebody leads, how often, and what becomes of the rest.

use k8s_openapi::api::core::v1::ObjectReference;
use wva_crds::events::{EventDraft, build_event};
use wva_fakes::{FakeApi, Reply};

use super::*;

/// A fake API server that replies with these in turn, and in the end with the last of them again and again.
fn api(replies: &'static [Option<Reply>]) -> FakeApi {
    FakeApi::with_rule(|request| replies[request.number.min(replies.len() - 1)].clone())
}

/// Names and notes of the events that it was sent.
fn sent(fake: &FakeApi) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    fake.requests().iter().map(|r| (text(&r.body["metadata"]["name"]), text(&r.body["note"]))).collect()
}

fn news(note: &str, at: Timestamp) -> Event {
    let regarding = ObjectReference {
        name: Some("main".into()),
        namespace: Some("wva".into()),
        ..ObjectReference::default()
    };
    let reason = "ImmutableConfigChangeRejected";
    build_event(&EventDraft { regarding, warning: true, reason, action: "Reject", note, reporter: None, at })
}

/// What is sent within so long of leading.
async fn led(notices: &Notices, fake: &FakeApi, span: Duration) -> Vec<(String, String)> {
    assert!(tokio::time::timeout(span, notices.write(&fake.client())).await.is_err(), "it goes on");
    sent(fake)
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
    assert_eq!(notes(&led(&notices, &FakeApi::new(), MINUTE).await), ["first", "second"]);
    assert!(led(&notices, &FakeApi::new(), MINUTE).await.is_empty(), "each of them once");
    let fake = FakeApi::new();
    let client = fake.client();
    let later = async {
        tokio::time::sleep(MINUTE).await;
        notices.add(news("third", Timestamp::now()), &["3"]);
    };
    let both = async { tokio::join!(notices.write(&client), later) };
    assert!(tokio::time::timeout(2 * MINUTE, both).await.is_err());
    assert_eq!(notes(&sent(&fake)), ["third"], "it does not wait for another leader");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_see_the_same_name_it_alike() {
    let name = async |note: &str, fact: [&str; 2]| {
        let notices = Notices::default();
        notices.add(news(note, Timestamp::now()), &fact);
        led(&notices, &api(&[Some(Reply::Failure(409))]), MINUTE).await.swap_remove(0).0
    };
    let first = name("of one replica", ["uid", "1"]).await;
    assert_eq!(first, "main.4496f5a3493138ff", "a replica of another release names it alike");
    assert_eq!(first, name("of another", ["uid", "1"]).await);
    assert_ne!(first, name("of one replica", ["uid", "2"]).await);
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_does_not_answer_is_tried_again_and_what_it_refuses_is_not() {
    for (replies, want) in [
        (
            &[Some(Reply::Hang), Some(Reply::Failure(503)), None][..],
            &["first", "first", "first", "second"][..],
        ),
        (&[Some(Reply::Failure(403)), None], &["first", "second"]),
        (&[Some(Reply::Failure(409)), None], &["first", "second"]),
    ] {
        let notices = Notices::default();
        notices.add(news("first", Timestamp::now()), &["1"]);
        notices.add(news("second", Timestamp::now()), &["2"]);
        assert_eq!(notes(&led(&notices, &api(replies), 2 * MINUTE).await), want, "{replies:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waited_too_long_and_what_is_too_much_is_dropped() {
    let notices = Notices::default();
    notices.add(news("old", Timestamp::now() - KEPT), &["0"]);
    notices.add(news("young", Timestamp::now() - KEPT + SignedDuration::from_mins(1)), &["1"]);
    assert_eq!(notes(&led(&notices, &FakeApi::new(), MINUTE).await), ["young"]);
    for fact in 0..=MOST {
        let fact = fact.to_string();
        notices.add(news(&fact, Timestamp::now()), &[&fact]);
    }
    let sent = led(&notices, &FakeApi::new(), MINUTE).await;
    assert_eq!((sent.len(), notes(&sent)[0]), (MOST, "1"), "the oldest went");
}
