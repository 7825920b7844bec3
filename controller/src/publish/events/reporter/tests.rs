//! Which events become a series.

use jiff::SignedDuration;
use serde_json::Value;
use wva_crds::events::EventReason;
use wva_fakes::{FakeApi, Reply};

use super::*;
use crate::fixture::key;

struct Bench {
    fake: FakeApi,
    reporter: EventReporter,
}

impl Bench {
    fn new(fake: FakeApi) -> Self {
        let source = EventSource { instance: Some("blue".to_owned()), pod: Some("pod".to_owned()) };
        Self { reporter: EventReporter::new(fake.client(), source), fake }
    }

    /// Writes an event `minutes` after the first one.
    async fn write(&self, name: &str, note: &str, minutes: i64) {
        self.write_with(name, note, minutes, None).await;
    }

    async fn write_with(&self, name: &str, note: &str, minutes: i64, digest: Option<u64>) {
        let note = note.to_owned();
        let pending = PendingEvent { warning: true, reason: EventReason::Stuck, note, digest };
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
        let event = self.reporter.build(variant_reference(&key(name), "u"), None, &pending, at);
        self.reporter.write(event).await.unwrap();
    }

    /// Methods, with the count of a series.
    fn sent(&self) -> Vec<String> {
        let count = |body: &Value| body["series"]["count"].as_i64().map(|count| count.to_string());
        let requests = self.fake.requests();
        requests.iter().map(|r| format!("{} {}", r.method, count(&r.body).unwrap_or_default())).collect()
    }
}

#[tokio::test]
async fn a_repeat_extends_the_series_of_the_first_event() {
    let bench = Bench::new(FakeApi::new());
    for minutes in [0, 5, 10] {
        bench.write("a", "text", minutes).await;
    }
    assert_eq!(bench.sent(), ["POST ", "PATCH 2", "PATCH 3"]);
    let requests = bench.fake.requests();
    assert_eq!(requests[0].body["series"], Value::Null);
    assert_eq!(requests[2].body["series"]["lastObservedTime"], "1970-01-01T00:10:00.000000Z");
    assert_eq!(requests[2].path, requests[1].path, "the same object");
    let event = bench.fake.object(&requests[1].path);
    assert_eq!((&event["series"]["count"], &event["note"]), (&json!(3), &json!("text")));
    assert_eq!(event["reportingController"], "wva.llmd.ai/blue");
    assert_eq!(event["action"], "CheckReplicas");
}

#[tokio::test]
async fn other_texts_objects_and_times_are_other_events() {
    for (name, note, minutes) in [("a", "another", 1), ("b", "text", 1), ("a", "text", 6)] {
        let bench = Bench::new(FakeApi::new());
        bench.write("a", "text", 0).await;
        bench.write(name, note, minutes).await;
        assert_eq!(bench.sent(), ["POST ", "POST "], "{name} {note} {minutes}");
    }
}

/// 404: it expired. 403: the role of an older release.
#[tokio::test]
async fn a_refused_series_gives_another_event() {
    for status in [404, 403] {
        let bench = Bench::new(FakeApi::with_rule(move |request| {
            (request.method == "PATCH").then_some(Reply::Failure(status))
        }));
        bench.write("a", "text", 0).await;
        bench.write("a", "text", 1).await;
        assert_eq!(bench.sent(), ["POST ", "PATCH 2", "POST "]);
        bench.fake.clear_rule();
        bench.write("a", "text", 2).await;
        assert_eq!(bench.sent()[3], "PATCH 2", "the series of the new event");
        let requests = bench.fake.requests();
        assert_ne!(requests[3].path, requests[1].path);
    }
}

#[tokio::test]
async fn an_event_with_a_digest_is_no_series() {
    let bench = Bench::new(FakeApi::new());
    for minutes in [0, 1] {
        bench.write_with("a", "text", minutes, Some(1)).await;
    }
    assert_eq!(bench.sent(), ["POST ", "POST "]);
}

#[tokio::test]
async fn an_event_that_was_not_written_has_no_series() {
    let bench = Bench::new(FakeApi::with_rule(|_| Some(Reply::Failure(403))));
    bench.write("a", "text", 0).await;
    bench.write("a", "text", 1).await;
    assert_eq!(bench.sent(), ["POST ", "POST "]);
}
