//! The sync against a fake API server. The cache gets what the fake has only where a test says so.

use serde_json::json;
use wva_crds::events::EventSource;
use wva_fakes::{FakeApi, Method, Reply};

use super::*;
use crate::fixture::{Cluster, merge};

const VARIANTS: &str = "/apis/llmd.ai/v1alpha1/namespaces/ns/variantautoscalings";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";

struct Bench {
    fake: FakeApi,
    cluster: Cluster,
    sync: AnnotationSync,
    state: SyncState,
}

impl Bench {
    fn new() -> Self {
        let (fake, cluster) = (FakeApi::new(), Cluster::new());
        let (sync, state) = term(&fake, &cluster);
        Self { fake, cluster, sync, state }
    }

    /// Adds HPA `h` of Deployment `d`, which selects variant `v`.
    fn hpa(&mut self, over: Value) {
        let mut hpa = json!({
            "metadata": {"name": "h", "namespace": "ns", "uid": "uid of h", "annotations": {
                "llm-d.ai/managed": "true", "llm-d.ai/model-id": "m"}},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 8,
                "metrics": [{"type": "External", "external": {"target": {"type": "AverageValue", "averageValue": "1"},
                    "metric": {"name": "wva_desired_replicas", "selector": {"matchLabels": {"variant_name": "v"}}}}}]},
        });
        merge(&mut hpa, over);
        self.cluster.hpa_object(hpa);
    }

    /// The watch receives the object of the fake.
    fn receive(&mut self) {
        match self.fake.get(&format!("{VARIANTS}/v")) {
            Some(object) => self.cluster.variant_object(object),
            None => self.cluster.without_variant("v"),
        };
    }

    /// One publication. Returns its writes of variants.
    async fn sync(&mut self) -> Vec<String> {
        let before = self.fake.requests().len();
        self.sync.sync(&mut self.state).await;
        let requests = self.fake.requests().into_iter().skip(before);
        let writes = requests.filter(|r| r.method != Method::GET && r.path.starts_with(VARIANTS));
        writes.map(|r| format!("{} {}", r.method, r.path.trim_start_matches(VARIANTS))).collect()
    }

    fn events(&self) -> Vec<(String, String)> {
        let created = self.fake.requests().into_iter().filter(|r| r.path == EVENTS && r.status == Some(201));
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        created
            .map(|r| {
                assert_eq!(r.body["regarding"]["kind"], "HorizontalPodAutoscaler");
                assert_eq!(r.body["regarding"]["name"], "h");
                (text(&r.body, "reason"), text(&r.body, "note"))
            })
            .collect()
    }
}

fn term(fake: &FakeApi, cluster: &Cluster) -> (AnnotationSync, SyncState) {
    let reporter = EventReporter::new(fake.client(), EventSource::default());
    let sync = AnnotationSync::new(fake.client(), cluster.watches(), Ownership::default(), reporter);
    (sync, SyncState::default())
}

const NOTHING: [&str; 0] = [];

#[tokio::test(start_paused = true)]
async fn creates_once_and_applies_every_change() {
    let mut bench = Bench::new();
    bench.hpa(json!({"metadata": {"annotations": {"wva.llmd.ai/mode": "recommend"}}}));
    assert_eq!(bench.sync().await, ["POST ", "PATCH /v"]);
    let requests = bench.fake.requests();
    assert_eq!(
        requests[0].body["metadata"]["annotations"],
        Value::Null,
        "a create could not remove it later"
    );
    assert!(
        requests[1].query.contains("force=true")
            && requests[1].query.contains("fieldManager=wva-annotations")
    );
    assert_eq!(
        bench.fake.object(&format!("{VARIANTS}/v"))["metadata"]["annotations"]["wva.llmd.ai/mode"],
        "recommend"
    );
    assert_eq!(bench.sync().await, NOTHING, "the watch has not received it yet");
    bench.receive();
    assert_eq!(bench.sync().await, NOTHING);
    bench.hpa(json!({"spec": {"maxReplicas": 9}}));
    assert_eq!(bench.sync().await, ["PATCH /v"]);
    assert_eq!(bench.fake.object(&format!("{VARIANTS}/v"))["spec"]["maxReplicas"], 9);
    bench.receive();
    bench.fake.edit(&format!("{VARIANTS}/v"), |v| {
        v["spec"]["modelID"] = json!("by hand");
        v["metadata"]["generation"] = json!(7);
    });
    bench.receive();
    assert_eq!(bench.sync().await, ["PATCH /v"], "the annotations decide");
    assert_eq!(bench.fake.object(&format!("{VARIANTS}/v"))["spec"]["modelID"], "m");
}

#[tokio::test(start_paused = true)]
async fn new_leader_applies_each_object_once() {
    let mut bench = Bench::new();
    bench.hpa(json!({}));
    bench.sync().await;
    bench.receive();
    (bench.sync, bench.state) = term(&bench.fake, &bench.cluster);
    assert_eq!(bench.sync().await, ["PATCH /v"]);
    bench.receive();
    assert_eq!(bench.sync().await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn deletes_only_its_own_object_by_uid() {
    let mut bench = Bench::new();
    bench.hpa(json!({}));
    bench.sync().await;
    bench.fake.edit(&format!("{VARIANTS}/v"), |v| v["metadata"]["uid"] = json!("uid of v"));
    bench.receive();
    bench.cluster.variant("other", "m", json!({}));
    bench.hpa(json!({"metadata": {"annotations": {"llm-d.ai/managed": "false"}}}));
    assert_eq!(bench.sync().await, ["DELETE /v"]);
    let deletion = bench.fake.requests().into_iter().find(|r| r.method == Method::DELETE).unwrap();
    assert_eq!(deletion.body["preconditions"]["uid"], "uid of v");
    bench.receive();
    assert_eq!(bench.sync().await, NOTHING);
}

#[tokio::test(start_paused = true)]
async fn renamed_variant_is_deleted_before_the_new_one_is_created() {
    let mut bench = Bench::new();
    bench.hpa(json!({}));
    bench.sync().await;
    bench.receive();
    bench.hpa(json!({"spec": {"metrics": []}}));
    assert_eq!(bench.sync().await, ["DELETE /v"]);
    bench.receive();
    assert_eq!(bench.sync().await, ["POST ", "PATCH /d"]);
}

#[tokio::test(start_paused = true)]
async fn object_of_an_earlier_autoscaler_is_replaced() {
    let mut bench = Bench::new();
    bench.hpa(json!({}));
    bench.sync().await;
    bench.receive();
    bench.hpa(json!({"metadata": {"uid": "another"}}));
    assert_eq!(bench.sync().await, ["DELETE /v"]);
    bench.receive();
    assert_eq!(bench.sync().await, ["POST ", "PATCH /v"]);
    let owner = &bench.fake.object(&format!("{VARIANTS}/v"))["metadata"]["ownerReferences"][0]["uid"];
    assert_eq!(owner, "another");
}

#[tokio::test(start_paused = true)]
async fn refusal_is_reported_once_and_retried_with_backoff() {
    let mut bench = Bench::new();
    bench.hpa(json!({}));
    let status = json!({"kind": "Status", "code": 422, "reason": "Invalid",
        "message": "admission webhook denied the request: spec.modelID: too long [WVA-VA-999]"});
    bench.fake.set_rule(move |r| {
        (r.method == Method::POST && r.path == VARIANTS).then(|| Reply::Json(422, status.clone()))
    });
    let mut attempts = 0;
    for _ in 0..60 {
        attempts += bench.sync().await.len();
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(attempts, 5, "after 2, 4, 8, 16 and 32 seconds");
    let events = bench.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].0 == "AnnotationsRefused" && events[0].1.contains("[WVA-VA-999]"), "{events:?}");
    bench.fake.clear_rule();
    bench.hpa(json!({"metadata": {"annotations": {"llm-d.ai/variant-cost": "3"}}}));
    assert_eq!(bench.sync().await, ["POST ", "PATCH /v"], "a change of the annotations is tried at once");
}

#[tokio::test(start_paused = true)]
async fn temporary_error_is_retried_without_an_event() {
    let mut bench = Bench::new();
    bench.hpa(json!({}));
    for reply in [Reply::Failure(503), Reply::Failure(429), Reply::Failure(409)] {
        bench.fake.reply_to_all(reply);
        bench.sync().await;
        tokio::time::advance(LONGEST_RETRY).await;
    }
    bench.fake.clear_rule();
    assert_eq!(bench.events(), []);
    assert_eq!(bench.sync().await, ["POST ", "PATCH /v"]);
}

#[tokio::test(start_paused = true)]
async fn missing_right_names_the_remedy() {
    let mut bench = Bench::new();
    bench.hpa(json!({}));
    let status = json!({"kind": "Status", "code": 403, "reason": "Forbidden",
        "message": "variantautoscalings.llmd.ai is forbidden: User \"u\" cannot create resource"});
    bench.fake.set_rule(move |r| (r.path == VARIANTS).then(|| Reply::Json(403, status.clone())));
    bench.sync().await;
    let events = bench.events();
    assert!(events[0].1.contains("wva.annotations=true"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn invalid_annotation_keeps_the_object_and_is_reported_per_text() {
    let mut bench = Bench::new();
    bench.hpa(json!({}));
    bench.sync().await;
    bench.receive();
    for cost in ["abc", "abc", "xyz"] {
        bench.hpa(json!({"metadata": {"annotations": {"llm-d.ai/variant-cost": cost}}}));
        assert_eq!(bench.sync().await, NOTHING);
    }
    let events = bench.events();
    assert_eq!(
        events.iter().map(|(reason, _)| reason.as_str()).collect::<Vec<_>>(),
        [reports::REFUSED.as_str(); 2]
    );
    assert!(events[0].1.contains("abc") && events[1].1.contains("xyz"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn hand_written_object_is_reported_and_replaces_the_own_one() {
    let mut bench = Bench::new();
    bench.hpa(json!({}));
    bench.sync().await;
    bench.receive();
    bench.cluster.variant_with_target("mine", "Deployment", "d", "m", json!({}));
    assert_eq!(bench.sync().await, ["DELETE /v"]);
    bench.receive();
    assert_eq!(bench.sync().await, NOTHING);
    let events = bench.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].0 == reports::NOT_USED.as_str() && events[0].1.contains("VariantAutoscaling mine"),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn terminating_autoscaler_is_left_alone() {
    let mut bench = Bench::new();
    bench.hpa(json!({"metadata": {"deletionTimestamp": crate::fixture::CREATED}}));
    assert_eq!(bench.sync().await, NOTHING);
}
