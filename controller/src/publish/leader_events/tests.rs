//! Queued events: what a leader writes, how often, and what is dropped.

use k8s_openapi::api::core::v1::ObjectReference;
use wva_crds::events::{EventDraft, EventReason, EventSource, build_event};
use wva_fakes::{FakeApi, Reply};

use super::*;

/// A fake API server with these replies in turn. The last one repeats.
fn api(replies: &'static [Option<Reply>]) -> FakeApi {
    FakeApi::with_rule(|request| replies[request.number.min(replies.len() - 1)].clone())
}

/// Names and notes of the events sent.
fn sent(fake: &FakeApi) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    fake.requests().iter().map(|r| (text(&r.body["metadata"]["name"]), text(&r.body["note"]))).collect()
}

fn pending(note: &str, at: Timestamp) -> Event {
    let regarding = ObjectReference {
        name: Some("main".into()),
        namespace: Some("wva".into()),
        ..ObjectReference::default()
    };
    let reason = EventReason::ImmutableConfigChangeRejected;
    let source = &EventSource::default();
    build_event(&EventDraft { regarding, related: None, warning: true, reason, note, source, at })
}

/// Events sent while leading for this long.
async fn lead(queue: &LeaderEvents, fake: &FakeApi, span: Duration) -> Vec<(String, String)> {
    assert!(tokio::time::timeout(span, queue.write(&fake.client())).await.is_err(), "it goes on");
    sent(fake)
}

fn notes(sent: &[(String, String)]) -> Vec<&str> {
    sent.iter().map(|(_, note)| note.as_str()).collect()
}

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn events_queued_without_a_leader_are_written_by_the_next() {
    let queue = LeaderEvents::default();
    queue.add(pending("first", Timestamp::now()), &["1"]);
    queue.add(pending("second", Timestamp::now()), &["2"]);
    assert_eq!(notes(&lead(&queue, &FakeApi::new(), MINUTE).await), ["first", "second"]);
    assert!(lead(&queue, &FakeApi::new(), MINUTE).await.is_empty(), "each of them once");
    let fake = FakeApi::new();
    let client = fake.client();
    let later = async {
        tokio::time::sleep(MINUTE).await;
        queue.add(pending("third", Timestamp::now()), &["3"]);
    };
    let both = async { tokio::join!(queue.write(&client), later) };
    assert!(tokio::time::timeout(2 * MINUTE, both).await.is_err());
    assert_eq!(notes(&sent(&fake)), ["third"], "a new event is written at once");
}

#[tokio::test(start_paused = true)]
async fn replicas_name_the_event_of_a_fact_alike() {
    let name = async |note: &str, fact: [&str; 2]| {
        let queue = LeaderEvents::default();
        queue.add(pending(note, Timestamp::now()), &fact);
        lead(&queue, &api(&[Some(Reply::Failure(409))]), MINUTE).await.swap_remove(0).0
    };
    let first = name("of one replica", ["uid", "1"]).await;
    assert_eq!(first, "main.4496f5a3493138ff", "replicas of other releases must use the same name");
    assert_eq!(first, name("of another", ["uid", "1"]).await);
    assert_ne!(first, name("of one replica", ["uid", "2"]).await);
}

#[tokio::test(start_paused = true)]
async fn unanswered_writes_are_retried_and_refused_ones_are_not() {
    for (replies, want) in [
        (
            &[Some(Reply::Hang), Some(Reply::Failure(503)), None][..],
            &["first", "first", "first", "second"][..],
        ),
        (&[Some(Reply::Failure(408)), None], &["first", "first", "second"]),
        (&[Some(Reply::Failure(403)), None], &["first", "second"]),
        (&[Some(Reply::Failure(409)), None], &["first", "second"]),
    ] {
        let queue = LeaderEvents::default();
        queue.add(pending("first", Timestamp::now()), &["1"]);
        queue.add(pending("second", Timestamp::now()), &["2"]);
        assert_eq!(notes(&lead(&queue, &api(replies), 2 * MINUTE).await), want, "{replies:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn old_and_excess_events_are_dropped() {
    let queue = LeaderEvents::default();
    queue.add(pending("old", Timestamp::now() - MAX_AGE), &["0"]);
    queue.add(pending("young", Timestamp::now() - MAX_AGE + SignedDuration::from_mins(1)), &["1"]);
    assert_eq!(notes(&lead(&queue, &FakeApi::new(), MINUTE).await), ["young"]);
    for fact in 0..=MAX_QUEUED {
        let fact = fact.to_string();
        queue.add(pending(&fact, Timestamp::now()), &[&fact]);
    }
    let sent = lead(&queue, &FakeApi::new(), MINUTE).await;
    assert_eq!((sent.len(), notes(&sent)[0]), (MAX_QUEUED, "1"), "the oldest was dropped");
}
