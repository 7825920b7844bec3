//! Deletion costs against a fake API server with one Deployment, whose pods serve metrics pages on loopback.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use wva_crds::events::EventSource;
use wva_fakes::{FakeApi, Method, Reply};
use wva_objects::WorkloadKey;
use wva_scaling::Snapshot;

use super::*;
use crate::actuate::tests::{IDLE, RUNNING, serve, servers};
use crate::fixture::{Cluster, decision, key, publication, published};

const PODS: &str = "/api/v1/namespaces/ns/pods";

/// Deployment `d` of variant `a`, which is to have `to` replicas.
struct Bench {
    fake: FakeApi,
    cluster: Cluster,
    costs: DeletionCosts,
    replicas: u32,
    /// All pods serve at this port, each at its own address. 0 without pods.
    port: u16,
    pods: u8,
}

impl Bench {
    /// `replicas`: of the Deployment in the cache.
    fn new(replicas: u32) -> Self {
        let mut cluster = Cluster::new();
        cluster.variant_with_target("a", "Deployment", "d", "m", json!({}));
        cluster.deployment("d", replicas, replicas);
        let fake = FakeApi::new();
        let reporter = EventReporter::new(fake.client(), EventSource::default());
        let (watches, ownership) = (cluster.watches(), Ownership::default());
        let costs = DeletionCosts::new(fake.client(), servers(), watches, ownership, reporter);
        Self { fake, cluster, costs, replicas, port: 0, pods: 0 }
    }

    /// Adds a ready pod with this metrics page. `cost`: annotation and its field manager.
    async fn pod(&mut self, name: &str, page: &'static str, cost: Option<(&str, &str)>) {
        self.pods += 1;
        let ip = format!("127.0.0.{}", self.pods);
        self.port = serve(&format!("{ip}:{}", self.port), &[("/metrics", page)]).await;
        let container = json!({"name": "vllm", "ports": [{"containerPort": self.port}]});
        let template = json!({"spec": {"containers": [container]}});
        self.cluster.deployment_with("d", json!({"spec": {"replicas": self.replicas, "template": template}}));
        let mut metadata = json!({});
        if let Some((value, manager)) = cost {
            metadata["annotations"] = json!({ANNOTATION: value});
            let fields = json!({"f:metadata": {"f:annotations": {format!("f:{ANNOTATION}"): {}}}});
            metadata["managedFields"] =
                json!([{"manager": manager, "operation": "Apply", "fieldsV1": fields}]);
        }
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        self.put(name, json!({"metadata": metadata, "status": {"podIP": ip, "conditions": conditions}}));
    }

    /// Adds a pod that is not ready. `over` is merged over it.
    fn put(&mut self, name: &str, mut over: Value) {
        let uid = format!("uid of {name}");
        let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": uid}});
        self.fake.put(&format!("{PODS}/{name}"), object);
        over["metadata"]["uid"] = json!(uid);
        self.cluster.pod_with(name, "ReplicaSet", "d-rs", over);
    }

    fn publication(to: Option<u32>) -> Published {
        let variant = published(decision(json!({"current": 3}), json!({})));
        let mut publication = publication([("a", variant)]);
        let workload = WorkloadKey { namespace: "ns".into(), kind: "Deployment".into(), name: "d".into() };
        publication.scale_downs = to
            .map(|to| (key("a"), ScaleDown { workload, to, is_step: false, ranks: BTreeSet::new() }))
            .into_iter()
            .collect();
        publication
    }

    fn step(to: u32) -> Published {
        let mut publication = Self::publication(Some(to));
        publication.scale_downs.values_mut().for_each(|scale_down| scale_down.is_step = true);
        publication
    }

    /// Marks the pods of a step.
    async fn mark(&self, to: u32) {
        self.mark_for(Self::step(to)).await;
    }

    async fn mark_for(&self, newest: Published) {
        let (_sender, reader) = watch::channel(Some(Arc::new(newest)));
        self.costs.mark(&key("a"), &reader).await;
    }

    fn patch_count(&self) -> usize {
        self.fake.count(|r| r.method == Method::PATCH)
    }

    /// Pods and their new costs, in the order of the names; null for removed ones.
    fn patches(&self) -> Vec<(String, Value)> {
        let requests = self.fake.requests().into_iter().filter(|r| r.method == Method::PATCH);
        let mut patches: Vec<_> = requests
            .map(|r| {
                assert!(r.query.contains(&format!("fieldManager={MANAGER}")) && !r.query.contains("force"));
                let (_, name) = r.path.rsplit_once('/').unwrap();
                let metadata = &r.body["metadata"];
                assert_eq!(metadata["uid"], format!("uid of {name}"), "it could create a pod");
                (name.to_owned(), metadata["annotations"][ANNOTATION].clone())
            })
            .collect();
        patches.sort_by(|(a, _), (b, _)| a.cmp(b));
        patches
    }

    async fn events(&self) -> usize {
        self.costs.report_failures(&Self::publication(Some(1))).await;
        self.fake.count(|r| r.method == Method::POST && r.path.ends_with("/events"))
    }
}

#[tokio::test]
async fn idle_pods_are_marked() {
    let mut bench = Bench::new(3);
    bench.pod("busy", RUNNING, None).await;
    bench.pod("idle", IDLE, None).await;
    bench.pod("unknown", "go_goroutines 12\n", None).await;
    bench.mark(2).await;
    assert_eq!(bench.patches(), [("idle".to_owned(), json!("-200"))]);
    assert_eq!(bench.fake.requests().len(), 1, "the cache has the pods");
}

/// A scale-down to `to` replicas, with these replicas in the snapshot.
fn step_with(to: u32, replicas: &str) -> Published {
    let model = format!(
        "models: [{{modelID: m, namespace: ns, variants: [{{name: a, current: 3, replicas: [{replicas}]}}]}}]"
    );
    Published { snapshot: Snapshot::parse(&model).unwrap().into(), ..Bench::step(to) }
}

#[tokio::test]
async fn the_snapshot_tells_which_pods_sleep_or_are_stalled() {
    for (to, costs) in [(2, &[("c", "-250")][..]), (1, &[("b", "-199"), ("c", "-250")])] {
        let mut bench = Bench::new(3);
        bench.pod("a", RUNNING, None).await;
        bench.pod("b", RUNNING, None).await;
        bench.pod("c", IDLE, None).await;
        let replicas = "{pod: a, kv: 0.1, queue: 0}, {pod: b, kv: 0.9, queue: 9, stalledFor: 10m}, \
                        {pod: c, kv: 0, queue: 0, asleep: true}";
        bench.mark_for(step_with(to, replicas)).await;
        let costs: Vec<_> = costs.iter().map(|(pod, cost)| ((*pod).to_owned(), json!(cost))).collect();
        assert_eq!(bench.patches(), costs);
    }
}

#[tokio::test]
async fn a_pod_without_a_main_signal_is_not_marked() {
    for missing in ["kv: 0.1", "queue: 0"] {
        let mut bench = Bench::new(2);
        bench.pod("a", RUNNING, None).await;
        bench.pod("b", IDLE, None).await;
        bench.mark_for(step_with(1, &format!("{{pod: a, kv: 0.1, queue: 0}}, {{pod: b, {missing}}}"))).await;
        assert_eq!(bench.patches(), [("a".to_owned(), json!("-198"))], "{missing}");
    }
}

#[test]
fn requests_of_a_sample_are_those_that_ran() {
    let load = |replica: Value| load_of(&serde_json::from_value(replica).unwrap()).map(|load| load.requests);
    assert_eq!(
        load(json!({"pod": "a", "kv": 0.9, "queue": 0, "running": 0})),
        Some(0.0),
        "a cache of prefixes"
    );
    assert_eq!(load(json!({"pod": "a", "kv": 0.1, "queue": 2, "running": 3})), Some(5.0));
    assert_eq!(load(json!({"pod": "a", "kv": 0.1, "queue": 2})), Some(3.0), "without the gauge");
}

#[tokio::test]
async fn pods_that_became_busy_lose_their_cost() {
    let mut bench = Bench::new(3);
    bench.pod("kept", IDLE, Some(("-200", MANAGER))).await;
    bench.pod("busy", RUNNING, Some(("-200", MANAGER))).await;
    bench.pod("other", RUNNING, None).await;
    bench.mark(2).await;
    assert_eq!(bench.patches(), [("busy".to_owned(), Value::Null)]);
}

#[tokio::test]
async fn costs_of_users_are_left_alone() {
    let mut bench = Bench::new(3);
    bench.pod("a", IDLE, Some(("100", "kubectl-annotate"))).await;
    bench.pod("b", RUNNING, None).await;
    bench.pod("c", RUNNING, None).await;
    bench.mark(2).await;
    assert_eq!(bench.patches(), [("b".to_owned(), json!("-198"))]);
}

#[tokio::test]
async fn pods_of_other_workloads_are_left_alone() {
    let mut bench = Bench::new(2);
    bench.pod("a", RUNNING, None).await;
    bench.pod("b", RUNNING, None).await;
    bench.pod("foreign", IDLE, None).await;
    bench.cluster.deployment("e", 1, 1).pod("foreign", "e");
    bench.mark(1).await;
    assert_eq!(bench.patches(), [("a".to_owned(), json!("-198"))]);
}

#[tokio::test]
async fn a_missing_permission_is_reported_once() {
    let mut bench = Bench::new(2);
    bench.pod("a", IDLE, None).await;
    bench.pod("b", IDLE, None).await;
    bench.fake.set_rule(|request| (request.method == Method::PATCH).then_some(Reply::Failure(403)));
    for _ in 0..2 {
        bench.mark(1).await;
        assert_eq!(bench.events().await, 1);
    }
}

#[tokio::test]
async fn another_failure_is_reported_if_it_repeats() {
    let mut bench = Bench::new(2);
    bench.put("a", json!({}));
    bench.put("b", json!({}));
    let mark = async |status: Option<u16>| {
        bench.fake.set_rule(move |r| status.filter(|_| r.method == Method::PATCH).map(Reply::Failure));
        bench.mark(1).await;
        bench.events().await
    };
    for (nth, (status, events)) in
        [(Some(500), 0), (None, 0), (Some(500), 0), (Some(500), 1), (Some(500), 1), (None, 1), (Some(403), 2)]
            .into_iter()
            .enumerate()
    {
        assert_eq!(mark(status).await, events, "mark {nth}");
    }
}

#[tokio::test]
async fn a_pod_that_is_gone_or_annotated_meanwhile_is_no_failure() {
    for status in [404, 409] {
        let mut bench = Bench::new(2);
        bench.pod("a", IDLE, None).await;
        bench.pod("b", IDLE, None).await;
        bench.fake.set_rule(move |r| (r.method == Method::PATCH).then_some(Reply::Failure(status)));
        bench.mark(1).await;
        assert_eq!(bench.events().await, 0, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_server_delays_a_scale_down_by_one_timeout() {
    let mut bench = Bench::new(2);
    bench.put("a", json!({}));
    bench.put("b", json!({}));
    bench.fake.reply_to_all(Reply::Hang);
    let began = tokio::time::Instant::now();
    bench.mark(1).await;
    assert_eq!(began.elapsed(), TIMEOUT);
}

/// For an autoscaler.
#[tokio::test(start_paused = true)]
async fn a_mark_is_repeated_when_it_can_differ() {
    let mut bench = Bench::new(3);
    bench.put("a", json!({}));
    bench.put("b", json!({}));
    let marked = async |bench: &Bench, to: u32| {
        let before = bench.patch_count();
        bench.mark_for(Bench::publication(Some(to))).await;
        bench.patch_count() > before
    };
    assert!(marked(&bench, 1).await);
    assert!(!marked(&bench, 1).await, "nothing changed");
    tokio::time::advance(REFRESH.saturating_sub(Duration::from_millis(1))).await;
    assert!(!marked(&bench, 1).await);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(marked(&bench, 1).await, "loads change");
    assert!(marked(&bench, 0).await, "another target");
    bench.put("c", json!({}));
    assert!(marked(&bench, 0).await, "another pod");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    bench.put("c", ready);
    assert!(marked(&bench, 0).await, "it is ready");
    assert!(!marked(&bench, 0).await);
    bench.mark(0).await;
    bench.mark(0).await;
    assert!(!marked(&bench, 0).await);
    for ended in [Bench::publication(None), Bench::step(0)] {
        bench.costs.recent.retain_scale_downs(&ended);
        assert!(marked(&bench, 0).await, "the scale-down began again");
    }
}

#[tokio::test(start_paused = true)]
async fn few_variants_are_marked_at_once() {
    let mut bench = Bench::new(2);
    bench.put("a", json!({}));
    bench.put("b", json!({}));
    bench.fake.reply_to_all(Reply::Hang);
    let marks = futures::future::join_all((0..3 * CONCURRENCY).map(|_| bench.mark(1)));
    assert!(tokio::time::timeout(TIMEOUT / 2, marks).await.is_err());
    assert_eq!(bench.patch_count(), CONCURRENCY);
}

#[tokio::test]
async fn the_newest_scale_down_counts() {
    let mut bench = Bench::new(2);
    bench.put("a", json!({}));
    bench.put("b", json!({}));
    let (sender, reader) = watch::channel(Some(Arc::new(Bench::step(1))));
    let all_slots = bench.costs.slots.acquire_many(8).await.unwrap();
    let mark_variant = key("a");
    tokio::join!(bench.costs.mark(&mark_variant, &reader), async {
        sender.send_replace(Some(Arc::new(Bench::publication(None))));
        drop(all_slots);
    });
    assert_eq!(bench.patch_count(), 0, "it was cancelled before the pods were marked");
}

#[tokio::test(start_paused = true)]
async fn marks_follow_the_load_until_the_autoscaler_acts() {
    let mut bench = Bench::new(2);
    bench.put("a", json!({}));
    bench.put("b", json!({}));
    let (sender, reader) = watch::channel(None);
    let fake = bench.fake.clone();
    let running = tokio::spawn(async move { bench.costs.run(reader).await });
    let publish = |to| sender.send_replace(Some(Arc::new(Bench::publication(to))));
    let mut found = Vec::new();
    for wait in [1, 5, 8, 2, 15, 15] {
        publish(Some(1));
        tokio::time::sleep(Duration::from_secs(wait)).await;
        found.push(fake.count(|r| r.method == Method::PATCH));
    }
    assert_eq!(found, [1, 1, 1, 2, 3, 4], "at 1, 6, 14, 16, 31 and 46 s");
    drop(sender);
    running.await.unwrap();
}

#[tokio::test]
async fn costs_are_removed_once_the_replicas_are_reached() {
    let mut bench = Bench::new(2);
    bench.pod("a", IDLE, Some(("-200", MANAGER))).await;
    bench.pod("b", IDLE, Some(("-200", "kubectl-annotate"))).await;
    bench.pod("c", IDLE, None).await;
    let mut leftovers = Leftovers::default();
    let wanted = Bench::publication(Some(1));
    assert!(!bench.costs.remove_leftovers(&mut leftovers, &wanted).await);
    let cancelled = Bench::publication(None);
    assert!(bench.costs.remove_leftovers(&mut leftovers, &cancelled).await);
    assert_eq!(bench.patches(), [], "three pods, two replicas: the ReplicaSet has yet to choose");
    bench.cluster.without_pod("c");
    assert!(bench.costs.remove_leftovers(&mut leftovers, &cancelled).await);
    assert_eq!(bench.patches(), [("a".to_owned(), Value::Null)]);
}

#[tokio::test(start_paused = true)]
async fn costs_are_removed_after_a_bounded_time() {
    let mut bench = Bench::new(1);
    bench.pod("a", IDLE, Some(("-200", MANAGER))).await;
    bench.pod("b", IDLE, None).await;
    let (sender, reader) = watch::channel(None);
    let fake = bench.fake.clone();
    let costs = Arc::new(bench.costs);
    let running = tokio::spawn(async move { costs.run(reader).await });
    sender.send_replace(Some(Arc::new(Bench::publication(None))));
    let patches = || fake.count(|r| r.method == Method::PATCH);
    tokio::time::sleep(Duration::from_secs(110)).await;
    assert_eq!(patches(), 0);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(patches() > 0, "no publication came meanwhile");
    drop(sender);
    running.await.unwrap();
}

#[tokio::test]
async fn costs_of_another_controller_are_left_alone() {
    let mut bench = Bench::new(2);
    let labels = json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": "other"}}});
    bench.cluster.variant_with_target("a", "Deployment", "d", "m", labels);
    bench.pod("a", IDLE, Some(("-200", MANAGER))).await;
    let removed = bench.costs.remove_leftovers(&mut Leftovers::default(), &Published::default()).await;
    assert!(!removed && bench.patches().is_empty());
    bench.cluster.without_variant("a");
    bench.costs.remove_leftovers(&mut Leftovers::default(), &Published::default()).await;
    assert_eq!(bench.patches().len(), 1, "no controller manages it");
}
