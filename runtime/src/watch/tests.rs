//! Lists of a watch, streamed or in pages, on a fake API server.

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use wva_fakes::{FakeApi, Reply};

use super::*;

/// The first events of a watch of three maps, and the requests that it made.
async fn first_events(fake: &FakeApi) -> (Vec<String>, Vec<String>) {
    for name in ["a", "b", "c"] {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}});
        fake.put(&format!("/api/v1/namespaces/ns/configmaps/{name}"), map);
    }
    let api: Api<ConfigMap> = Api::all(fake.client());
    let events = Box::pin(events(api, config())).take(5).try_collect::<Vec<_>>().await.unwrap();
    let text = |event: Event<ConfigMap>| match event {
        Event::Init => "init".to_owned(),
        Event::InitApply(map) => map.metadata.name.unwrap(),
        Event::InitDone => "done".to_owned(),
        other => format!("{other:?}"),
    };
    let requests = fake.requests().into_iter().map(|request| request.query);
    (events.into_iter().map(text).collect(), requests.collect())
}

const ALL: [&str; 5] = ["init", "a", "b", "c", "done"];

#[tokio::test]
async fn lists_are_streamed() {
    let (events, requests) = first_events(&FakeApi::new()).await;
    assert_eq!(events, ALL);
    assert!(matches!(requests.as_slice(), [one] if one.contains("sendInitialEvents=true")), "{requests:?}");
}

#[tokio::test]
async fn an_api_server_without_streaming_lists_sends_pages() {
    let fake = FakeApi::with_rule(|request| {
        request.query.contains("sendInitialEvents=true").then_some(Reply::Failure(422))
    });
    let (events, requests) = first_events(&fake).await;
    assert_eq!(events, ALL);
    assert!(requests[1].contains("limit=50") && requests.len() == 2, "{requests:?}");
}
