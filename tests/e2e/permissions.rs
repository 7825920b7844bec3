//! What the program may not do. Every end-to-end test runs with the service account of `config/base/rbac.yaml`, which
//! proves that it may do what it must; this proves the other half, by trying with a token of it. Each attempt is made
//! by the administrator too, who succeeds: a path that does not exist would be refused to anybody.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{InstallOptions, SYSTEM, WEBHOOKS};
use wva_testbed::picker::{CRDS, pool};
use wva_testbed::replicas::{LEASE_NAME, Replicas};
use wva_testbed::{Options, Testbed};

const ACCOUNT: &str = "workload-variant-autoscaler-controller-manager";
const ROLE: &str = "workload-variant-autoscaler-system-workload-variant-autoscaler-manager";
const CA_SECRET: &str = "workload-variant-autoscaler-webhook-service-ca";
const API_SERVICE: &str = "v1beta1.external.metrics.k8s.io";

/// Something the program must not be able to do.
struct Attempt {
    what: &'static str,
    /// `GET`, `POST`, `PATCH` (a merge patch) or `DELETE`.
    method: &'static str,
    path: String,
    body: Value,
}

fn read(what: &'static str, path: impl Into<String>) -> Attempt {
    Attempt { what, method: "GET", path: path.into(), body: Value::Null }
}

fn delete(what: &'static str, path: impl Into<String>) -> Attempt {
    Attempt { what, method: "DELETE", path: path.into(), body: Value::Null }
}

fn patch(what: &'static str, path: impl Into<String>, body: Value) -> Attempt {
    Attempt { what, method: "PATCH", path: path.into(), body }
}

fn create(what: &'static str, path: impl Into<String>, body: Value) -> Attempt {
    Attempt { what, method: "POST", path: path.into(), body }
}

fn secrets_and_maps(namespace: &str) -> Vec<Attempt> {
    let (own, other) = (format!("/api/v1/namespaces/{SYSTEM}"), format!("/api/v1/namespaces/{namespace}"));
    let map = json!({"metadata": {"name": "new"}, "data": {"a": "b"}});
    let data = json!({"data": {"a": "c"}});
    vec![
        read("reads a Secret elsewhere", format!("{other}/secrets/other")),
        read("lists Secrets elsewhere", format!("{other}/secrets")),
        read("lists Secrets of all namespaces", "/api/v1/secrets"),
        read("lists Secrets in its own namespace", format!("{own}/secrets")),
        read("reads another Secret in its own namespace", format!("{own}/secrets/other")),
        create(
            "requests a token of its own account",
            format!("{own}/serviceaccounts/{ACCOUNT}/token"),
            json!({}),
        ),
        create("requests a token elsewhere", format!("{other}/serviceaccounts/default/token"), json!({})),
        delete("deletes its CA", format!("{own}/secrets/{CA_SECRET}")),
        create("makes a Secret elsewhere", format!("{other}/secrets"), json!({"metadata": {"name": "new"}})),
        read("reads another config map of its namespace", format!("{own}/configmaps/other")),
        read("lists config maps of its namespace", format!("{own}/configmaps")),
        read("lists config maps of all namespaces", "/api/v1/configmaps"),
        read(
            "lists config maps of a name it does not read",
            "/api/v1/configmaps?fieldSelector=metadata.name%3Dother",
        ),
        read(
            "reads config maps of an older name elsewhere",
            format!("{other}/configmaps?fieldSelector=metadata.name%3Dcapacity-scaling-config"),
        ),
        create("makes a config map in its namespace", format!("{own}/configmaps"), map.clone()),
        create("makes a config map elsewhere", format!("{other}/configmaps"), map),
        patch(
            "writes its own main map",
            format!("{own}/configmaps/wva-variantautoscaling-config"),
            data.clone(),
        ),
        patch("writes a config map elsewhere", format!("{other}/configmaps/other"), data),
    ]
}

fn doors() -> Vec<Attempt> {
    let hooks = "/apis/admissionregistration.k8s.io/v1";
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let label = json!({"metadata": {"labels": {"touched": "yes"}}});
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/variantautoscalings.llmd.ai";
    let mut attempts = vec![
        patch("changes a CRD", crd, label.clone()),
        patch("patches another APIService", format!("{services}/v1.apps"), label.clone()),
        delete("deletes its APIService", format!("{services}/{API_SERVICE}")),
        read("lists APIServices", services),
    ];
    for (kind, plural) in [
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ] {
        let path = format!("{hooks}/{plural}");
        let new = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "new"}});
        attempts.extend([
            create("makes a webhook configuration", path.clone(), new),
            delete("deletes its webhook configuration", format!("{path}/{WEBHOOKS}")),
            patch("patches another webhook configuration", format!("{path}/other"), label.clone()),
            read("lists webhook configurations", path),
        ]);
    }
    attempts
}

fn workloads(namespace: &str) -> Vec<Attempt> {
    let (core, apps) =
        (format!("/api/v1/namespaces/{namespace}"), format!("/apis/apps/v1/namespaces/{namespace}"));
    let variants = format!("/apis/llmd.ai/v1alpha1/namespaces/{namespace}/variantautoscalings");
    let hpas = format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers");
    let replicas = json!({"spec": {"replicas": 3}});
    let containers = json!({"containers": [{"name": "main", "image": "main"}]});
    let new = json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": {"name": "new"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "new"}, "modelID": "m"},
    });
    vec![
        patch("updates a Deployment", format!("{apps}/deployments/llama"), replicas.clone()),
        patch("scales a ReplicaSet", format!("{apps}/replicasets/other/scale"), replicas),
        patch(
            "changes an InferencePool",
            format!("/apis/inference.networking.k8s.io/v1/namespaces/{namespace}/inferencepools/other"),
            json!({"spec": {"endpointPickerRef": {"name": "mine"}}}),
        ),
        read("lists the Services of a namespace", format!("{core}/services")),
        patch(
            "changes the Service of a picker",
            format!("{core}/services/other"),
            json!({"spec": {"selector": {"app": "mine"}}}),
        ),
        delete("deletes a Deployment", format!("{apps}/deployments/llama")),
        create(
            "makes a pod",
            format!("{core}/pods"),
            json!({"metadata": {"name": "new"}, "spec": containers}),
        ),
        delete("deletes pods", format!("{core}/pods")),
        create("makes a variant", variants.clone(), new),
        patch(
            "changes the spec of a variant",
            format!("{variants}/llama"),
            json!({"spec": {"modelID": "other"}}),
        ),
        delete("deletes a variant", format!("{variants}/llama")),
        patch("changes an HPA", format!("{hpas}/llama"), json!({"spec": {"maxReplicas": 99}})),
        patch(
            "labels a namespace",
            format!("/api/v1/namespaces/{namespace}"),
            json!({"metadata": {"labels": {"a": "b"}}}),
        ),
    ]
}

/// What it reads of the cluster's own objects it may not change.
fn nodes_and_pods(namespace: &str) -> Vec<Attempt> {
    let (node, pod) =
        ("/api/v1/nodes/other".to_owned(), format!("/api/v1/namespaces/{namespace}/pods/other"));
    let new = json!({"metadata": {"name": "new"}});
    let free = json!({"status": {"allocatable": {"nvidia.com/gpu": "8"}}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}});
    vec![
        create("makes a node", "/api/v1/nodes", new),
        patch("cordons a node", node.clone(), json!({"spec": {"unschedulable": true}})),
        patch("changes the GPUs of a node", format!("{node}/status"), free),
        delete("deletes a node", node),
        patch("labels a pod", pod.clone(), json!({"metadata": {"labels": {"a": "b"}}})),
        create("evicts a pod", format!("{pod}/eviction"), eviction),
        delete("deletes a pod", pod),
    ]
}

fn rights() -> Vec<Attempt> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases");
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let to_admin = json!({
        "metadata": {"name": "new"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}],
    });
    let role = json!({"metadata": {"name": "new"}, "rules": everything});
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    vec![
        read("reads another Lease of its namespace", format!("{leases}/other")),
        read("lists Leases of its namespace", leases.clone()),
        patch("takes another Lease", format!("{leases}/other"), json!({"spec": {"holderIdentity": "wva"}})),
        delete("deletes the Lease", format!("{leases}/{LEASE_NAME}")),
        read("lists Leases of kube-system", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"),
        create("binds itself to cluster-admin", format!("{rbac}/clusterrolebindings"), to_admin),
        create("makes a role", format!("{rbac}/namespaces/{SYSTEM}/roles"), role.clone()),
        create("makes a cluster role", format!("{rbac}/clusterroles"), role),
        patch("widens its own role", format!("{rbac}/clusterroles/{ROLE}"), json!({"rules": everything})),
        create(
            "makes a token",
            format!("/api/v1/namespaces/{SYSTEM}/serviceaccounts/{ACCOUNT}/token"),
            token,
        ),
    ]
}

/// What the attempts are about, where the testbed has none.
fn objects(namespace: &str) -> String {
    let secret = |namespace: &str| {
        format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: other, namespace: {namespace}}}, stringData: {{a: b}}}}"
        )
    };
    let map = |namespace: &str, name: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: {namespace}}}}}")
    };
    let lease = |name: &str| {
        format!(
            "{{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {{name: {name}, namespace: {SYSTEM}}}}}"
        )
    };
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: other, namespace: {namespace}}}, spec: {{containers: [{{name: main, image: main}}]}}}}"
    );
    let template = "{metadata: {labels: {app: other}}, spec: {containers: [{name: main, image: main}]}}";
    let set = format!(
        "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: other, namespace: {namespace}}}, spec: {{replicas: 0, selector: {{matchLabels: {{app: other}}}}, template: {template}}}}}"
    );
    let hooks = |kind: &str| {
        format!(
            "{{apiVersion: admissionregistration.k8s.io/v1, kind: {kind}WebhookConfiguration, metadata: {{name: other}}}}"
        )
    };
    let ca =
        format!("{{apiVersion: v1, kind: Secret, metadata: {{name: {CA_SECRET}, namespace: {SYSTEM}}}}}");
    [
        secret(namespace),
        secret(SYSTEM),
        ca,
        map(namespace, "other"),
        map(SYSTEM, "other"),
        map(SYSTEM, "wva-variantautoscaling-config"),
        lease("other"),
        lease(LEASE_NAME),
        "{apiVersion: v1, kind: Node, metadata: {name: other}}".to_owned(),
        pod,
        set,
        pool(namespace, "other"),
        hooks("Mutating"),
        hooks("Validating"),
        VariantFixture::new(namespace, "llama").all(),
    ]
    .join("\n---\n")
}

/// Makes requests as somebody.
struct Caller<'a> {
    client: &'a reqwest::Client,
    server: String,
    token: String,
}

impl Caller<'_> {
    /// Status and text of the answer. Nothing is stored.
    async fn tries(&self, attempt: &Attempt, impersonate: bool) -> anyhow::Result<(u16, String)> {
        let method = reqwest::Method::from_bytes(attempt.method.as_bytes())?;
        let dry = if attempt.method == "GET" { "" } else { "?dryRun=All" };
        let mut request = self
            .client
            .request(method, format!("{}{}{dry}", self.server, attempt.path))
            .bearer_auth(&self.token);
        if impersonate {
            request =
                request.header("Impersonate-User", "root").header("Impersonate-Group", "system:masters");
        }
        if !attempt.body.is_null() {
            let kind =
                if attempt.method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            request = request.header("Content-Type", kind).body(attempt.body.to_string());
        }
        let answer = request.send().await.with_context(|| attempt.what.to_owned())?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
}

fn client(testbed: &Testbed) -> anyhow::Result<reqwest::Client> {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(testbed.ca())?)?;
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20));
    Ok(client.tls_certs_only([ca]).build()?)
}

async fn callers<'a>(
    testbed: &Testbed,
    client: &'a reqwest::Client,
) -> anyhow::Result<(Caller<'a>, Caller<'a>)> {
    let server = format!("https://127.0.0.1:{}", testbed.apiserver_port()?);
    let token = testbed.service_account_token(SYSTEM, ACCOUNT).await?;
    let admin = Caller { client, server: server.clone(), token: testbed.admin_token().to_owned() };
    Ok((Caller { client, server, token }, admin))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_account_may_do_nothing_beyond_its_needs() -> anyhow::Result<()> {
    let options = Options {
        name: "permissions".to_owned(),
        nodes: Vec::new(),
        with_prometheus: false,
        ..Options::default()
    };
    let testbed = Testbed::start(options).await?;
    // Doors that are shut: no program runs, and the administrator's attempts must not wait for one.
    let replicas =
        Replicas::install(&testbed, InstallOptions::quick(env!("CARGO_BIN_EXE_wva")), "others").await?;
    let namespace = replicas.namespace();
    testbed.apply(CRDS).await?;
    let served = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"];
    testbed.kubectl(&served).await?.success()?;
    testbed.apply(&objects(namespace)).await?;
    let client = client(&testbed)?;
    let (program, admin) = callers(&testbed, &client).await?;

    let own = read("reads the variants", "/apis/llmd.ai/v1alpha1/variantautoscalings");
    let (status, text) = program.tries(&own, false).await?;
    ensure!(status == 200, "the token is no good: {status} {text}");
    let (status, text) = program.tries(&own, true).await?;
    ensure!(status == 403 && text.contains("cannot impersonate"), "it may impersonate: {status} {text}");
    ensure!(admin.tries(&own, true).await?.0 == 200, "nobody may impersonate");

    let scale = format!("/apis/apps/v1/namespaces/{namespace}/deployments/llama/scale");
    let step = patch("takes a step to zero", scale, json!({"spec": {"replicas": 0}}));
    let (status, text) = program.tries(&step, false).await?;
    ensure!(status == 200, "it may not scale a Deployment: {status} {text}");

    let all: Vec<Attempt> =
        [secrets_and_maps(namespace), doors(), workloads(namespace), nodes_and_pods(namespace), rights()]
            .into_iter()
            .flatten()
            .collect();
    for attempt in &all {
        let Attempt { what, method, path, .. } = attempt;
        let (status, text) = program.tries(attempt, false).await?;
        ensure!(status == 403 && text.contains("cannot"), "it {what}: {method} {path} gave {status} {text}");
        let (status, text) = admin.tries(attempt, false).await?;
        ensure!(
            (200..300).contains(&status),
            "no proof that it may not: {what}: the administrator got {status} {text}"
        );
    }
    println!("{} attempts, all forbidden to the program and open to the administrator", all.len() + 1);
    Ok(())
}

#[test]
fn every_rule_is_named_in_full_and_says_why_it_is_there() -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/base/rbac.yaml");
    let manifest = std::fs::read_to_string(&path)?;
    ensure!(!manifest.contains('*'), "a wildcard in {}", path.display());
    let lines: Vec<&str> = manifest.lines().collect();
    let rules = lines.iter().enumerate().filter(|(_, line)| line.starts_with("- apiGroups:"));
    let mut count = 0;
    for (at, rule) in rules {
        count += 1;
        let before = at.checked_sub(1).and_then(|before| lines.get(before)).copied().unwrap_or_default();
        // One need may take two rules, since a create cannot be bound to a name: the words above the first are for both.
        let same_need =
            at >= 3 && before.trim_start().starts_with("verbs: [create") && lines[at - 3] == *rule;
        // A role of one rule says it at its head.
        let at_the_head = before == "rules:" && begins_with_comment(&lines[..at]);
        ensure!(before.starts_with('#') || same_need || at_the_head, "line {}: no word why: {rule}", at + 1);
    }
    ensure!(count > 10, "only {count} rules were found: has the layout changed?");
    Ok(())
}

/// Whether the document that these lines end in begins with a comment.
fn begins_with_comment(lines: &[&str]) -> bool {
    let begin = lines.iter().rposition(|line| *line == "---").map_or(0, |at| at + 1);
    lines.get(begin).is_some_and(|line| line.starts_with('#'))
}
