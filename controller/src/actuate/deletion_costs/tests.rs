//! Deletion costs against a fake API server with one Deployment, whose pods serve metrics pages on loopback.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use wva_fakes::{FakeApi, Method, Reply};

use super::*;
use crate::actuate::tests::{IDLE, RUNNING, server, servers, workload};
use crate::fixture::{Cluster, decision, key, publication, published};

const PODS: &str = "/api/v1/namespaces/ns/pods";

/// Deployment `d` of variant `a`, which is to have `to` replicas.
struct Bench {
    fake: FakeApi,
    cluster: Cluster,
    costs: DeletionCosts,
}

impl Bench {
    /// `replicas`: of the Deployment in the cache.
    fn new(replicas: u32) -> Self {
        let mut cluster = Cluster::new();
        cluster.variant_with_target("a", "Deployment", "d", "m", json!({}));
        cluster.deployment("d", replicas, replicas);
        let fake = workload(replicas);
        let reporter = EventReporter { client: fake.client(), pod_name: None };
        let seen = (cluster.watches(), Ownership::default());
        let costs = DeletionCosts::new(fake.client(), servers(), seen, reporter);
        Self { fake, cluster, costs }
    }

    /// Adds a ready pod with this metrics page. `cost`: annotation and its field manager.
    async fn pod(&mut self, name: &str, page: &'static str, cost: Option<(&str, &str)>) {
        let mut pod = server(page).await;
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "d-rs", "uid": "uid of d-rs",
            "controller": true}]);
        let mut metadata = json!({"name": name, "namespace": "ns", "uid": format!("uid of {name}"),
            "labels": {"app": "d"}, "ownerReferences": owner});
        if let Some((value, manager)) = cost {
            metadata["annotations"] = json!({ANNOTATION: value});
            let fields = json!({"f:metadata": {"f:annotations": {format!("f:{ANNOTATION}"): {}}}});
            metadata["managedFields"] =
                json!([{"manager": manager, "operation": "Apply", "fieldsV1": fields}]);
        }
        pod["metadata"] = metadata.clone();
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        self.cluster.pod_with(name, "ReplicaSet", "d-rs", json!({"metadata": metadata}));
        self.fake.put(&format!("{PODS}/{name}"), pod);
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

    async fn mark(&self, to: u32) {
        self.costs.mark(&key("a"), &Self::publication(Some(to))).await;
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
    assert_eq!(bench.patches(), [("b".to_owned(), json!("-100"))]);
}

#[tokio::test]
async fn pods_of_other_workloads_are_left_alone() {
    let mut bench = Bench::new(2);
    bench.pod("a", RUNNING, None).await;
    bench.pod("b", RUNNING, None).await;
    bench.pod("foreign", IDLE, None).await;
    bench.fake.edit(&format!("{PODS}/foreign"), |pod| pod["metadata"]["ownerReferences"] = json!([]));
    bench.mark(1).await;
    assert_eq!(bench.patches(), [("a".to_owned(), json!("-100"))]);
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
    bench.fake.clear_rule();
    bench.mark(1).await;
    bench.fake.reply_to_all(Reply::Failure(500));
    bench.mark(1).await;
    assert_eq!(bench.events().await, 2, "a new failure");
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
    let bench = Bench::new(2);
    bench.fake.reply_to_all(Reply::Hang);
    let began = tokio::time::Instant::now();
    bench.mark(1).await;
    assert_eq!(began.elapsed(), TIMEOUT);
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
