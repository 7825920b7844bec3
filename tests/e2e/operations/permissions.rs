//! Permissions that the program must not have. Every end-to-end test runs with the service account of
//! `config/base/rbac.yaml`, which shows that its permissions suffice. Here its token is denied requests that the
//! administrator may send.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_crds::names::MAIN_MAP_NAME;
use wva_testbed::Testbed;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{API_SERVICE, InstallOptions, SYSTEM, WEBHOOKS};
use wva_testbed::picker::{CRDS, pool};
use wva_testbed::replicas::{LEASE_NAME, Replicas};

use crate::support::{Outcome, apply_crds, repository_path, valid_spec, variant};

const ACCOUNT: &str = "workload-variant-autoscaler-controller-manager";
const ROLE: &str = "workload-variant-autoscaler-system-workload-variant-autoscaler-manager";
const CA_SECRET: &str = "workload-variant-autoscaler-webhook-service-ca";

/// A request that the program must not be allowed.
#[derive(Clone)]
struct Attempt {
    /// `GET`, `POST`, `PATCH` (a merge patch) or `DELETE`.
    method: &'static str,
    path: String,
    body: Value,
}

fn get(path: impl Into<String>) -> Attempt {
    Attempt { method: "GET", path: path.into(), body: Value::Null }
}

fn delete(path: impl Into<String>) -> Attempt {
    Attempt { method: "DELETE", path: path.into(), body: Value::Null }
}

fn patch(path: impl Into<String>, body: Value) -> Attempt {
    Attempt { method: "PATCH", path: path.into(), body }
}

fn post(path: impl Into<String>, body: Value) -> Attempt {
    Attempt { method: "POST", path: path.into(), body }
}

fn labelled() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}})
}

fn named() -> Value {
    json!({"metadata": {"name": "new"}})
}

fn secrets_and_maps(namespace: &str) -> Vec<Attempt> {
    let (own, other) = (format!("/api/v1/namespaces/{SYSTEM}"), format!("/api/v1/namespaces/{namespace}"));
    let data = json!({"data": {"a": "c"}});
    let by_name = |name: &str| format!("configmaps?fieldSelector=metadata.name%3D{name}");
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    vec![
        get("/api/v1/secrets"),
        get(format!("{other}/secrets")),
        get(format!("{other}/secrets/other")),
        get(format!("{own}/secrets")),
        get(format!("{own}/secrets/other")),
        delete(format!("{own}/secrets/{CA_SECRET}")),
        post(format!("{other}/secrets"), named()),
        post(format!("{own}/serviceaccounts/{ACCOUNT}/token"), json!({})),
        post(format!("{own}/serviceaccounts/{ACCOUNT}/token"), token),
        post(format!("{other}/serviceaccounts/default/token"), json!({})),
        get("/api/v1/configmaps"),
        get(format!("{own}/configmaps")),
        get(format!("{own}/configmaps/other")),
        get(format!("/api/v1/{}", by_name("other"))),
        // An older name, which the program reads only in its own namespace.
        get(format!("{other}/{}", by_name("capacity-scaling-config"))),
        post(format!("{own}/configmaps"), named()),
        post(format!("{other}/configmaps"), named()),
        patch(format!("{own}/configmaps/{MAIN_MAP_NAME}"), data.clone()),
        patch(format!("{other}/configmaps/other"), data),
    ]
}

fn registrations() -> Vec<Attempt> {
    let hooks = "/apis/admissionregistration.k8s.io/v1";
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/variantautoscalings.llmd.ai";
    let mut attempts = vec![
        patch(crd, labelled()),
        get(services),
        patch(format!("{services}/v1.apps"), labelled()),
        delete(format!("{services}/{API_SERVICE}")),
    ];
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let path = format!("{hooks}/{kind}");
        attempts.extend([
            post(path.clone(), named()),
            delete(format!("{path}/{WEBHOOKS}")),
            patch(format!("{path}/other"), labelled()),
            get(path),
        ]);
    }
    attempts
}

fn workloads(namespace: &str) -> Vec<Attempt> {
    let (core, apps) =
        (format!("/api/v1/namespaces/{namespace}"), format!("/apis/apps/v1/namespaces/{namespace}"));
    let variants = format!("/apis/llmd.ai/v1alpha1/namespaces/{namespace}/variantautoscalings");
    let hpas = format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers");
    let pools = format!("/apis/inference.networking.k8s.io/v1/namespaces/{namespace}/inferencepools");
    let replicas = json!({"spec": {"replicas": 3}});
    let pod =
        json!({"metadata": {"name": "new"}, "spec": {"containers": [{"name": "main", "image": "main"}]}});
    vec![
        patch(format!("{apps}/deployments/llama"), replicas.clone()),
        delete(format!("{apps}/deployments/llama")),
        patch(format!("{apps}/replicasets/other/scale"), replicas),
        patch(format!("{pools}/other"), json!({"spec": {"endpointPickerRef": {"name": "mine"}}})),
        get(format!("{core}/services")),
        patch(format!("{core}/services/other"), json!({"spec": {"selector": {"app": "mine"}}})),
        post(format!("{core}/pods"), pod),
        delete(format!("{core}/pods")),
        post(variants.clone(), variant("new", &valid_spec("new"))),
        patch(format!("{variants}/llama"), json!({"spec": {"modelID": "other"}})),
        delete(format!("{variants}/llama")),
        patch(format!("{hpas}/llama"), json!({"spec": {"maxReplicas": 99}})),
        patch(core, labelled()),
    ]
}

/// Cluster objects that the program reads and may not change.
fn nodes_and_pods(namespace: &str) -> Vec<Attempt> {
    let (node, pod) = ("/api/v1/nodes/other", format!("/api/v1/namespaces/{namespace}/pods/other"));
    let free = json!({"status": {"allocatable": {"nvidia.com/gpu": "8"}}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}});
    vec![
        post("/api/v1/nodes", named()),
        patch(node, json!({"spec": {"unschedulable": true}})),
        patch(format!("{node}/status"), free),
        delete(node),
        patch(pod.clone(), labelled()),
        post(format!("{pod}/eviction"), eviction),
        delete(pod),
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
    vec![
        get(leases.clone()),
        get(format!("{leases}/other")),
        patch(format!("{leases}/other"), json!({"spec": {"holderIdentity": "wva"}})),
        delete(format!("{leases}/{LEASE_NAME}")),
        get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"),
        post(format!("{rbac}/clusterrolebindings"), to_admin),
        post(format!("{rbac}/namespaces/{SYSTEM}/roles"), role.clone()),
        post(format!("{rbac}/clusterroles"), role),
        patch(format!("{rbac}/clusterroles/{ROLE}"), json!({"rules": everything})),
    ]
}

/// Objects of the attempts that the testbed does not have.
fn objects(namespace: &str) -> String {
    let object = |version: &str, kind: &str, namespace: &str, name: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let spec = json!({"containers": [{"name": "main", "image": "main"}]});
    let mut pod = object("v1", "Pod", namespace, "other");
    pod["spec"] = spec.clone();
    let mut set = object("apps/v1", "ReplicaSet", namespace, "other");
    let template = json!({"metadata": {"labels": {"app": "other"}}, "spec": spec});
    set["spec"] = json!({"replicas": 0, "selector": {"matchLabels": {"app": "other"}}, "template": template});
    let (lease, hooks) = ("coordination.k8s.io/v1", "admissionregistration.k8s.io/v1");
    let objects = [
        object("v1", "Secret", namespace, "other"),
        object("v1", "Secret", SYSTEM, "other"),
        object("v1", "Secret", SYSTEM, CA_SECRET),
        object("v1", "ConfigMap", namespace, "other"),
        object("v1", "ConfigMap", SYSTEM, "other"),
        object("v1", "ConfigMap", SYSTEM, MAIN_MAP_NAME),
        object(lease, "Lease", SYSTEM, "other"),
        object(lease, "Lease", SYSTEM, LEASE_NAME),
        object("v1", "Node", "", "other"),
        object(hooks, "MutatingWebhookConfiguration", "", "other"),
        object(hooks, "ValidatingWebhookConfiguration", "", "other"),
        pod,
        set,
    ];
    let mut documents: Vec<String> = objects.iter().map(ToString::to_string).collect();
    documents.extend([pool(namespace, "other"), VariantFixture::new(namespace, "llama").all()]);
    documents.join("\n---\n")
}

/// Sends requests with a token.
struct Caller {
    client: reqwest::Client,
    server: String,
    token: String,
}

impl Caller {
    /// Sends a request in a dry run. Returns status and body.
    async fn send(&self, attempt: &Attempt, impersonate: bool) -> anyhow::Result<(u16, String)> {
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
        let answer = request.send().await.with_context(|| attempt.path.clone())?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }
}

/// Clients with the tokens of the program and of the administrator.
async fn callers(testbed: &Testbed) -> anyhow::Result<(Caller, Caller)> {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(testbed.ca())?)?;
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20));
    let client = client.tls_certs_only([ca]).build()?;
    let server = format!("https://127.0.0.1:{}", testbed.apiserver_port()?);
    let of = |token: &str| Caller { client: client.clone(), server: server.clone(), token: token.to_owned() };
    Ok((of(&testbed.service_account_token(SYSTEM, ACCOUNT).await?), of(testbed.admin_token())))
}

/// Sends all attempts, as the program and as the administrator.
pub(crate) async fn permissions(testbed: &Testbed, wva: &Path) -> anyhow::Result<Outcome> {
    // The webhooks are closed: no program runs, and the requests of the administrator must not wait for one.
    let replicas = Replicas::install(testbed, InstallOptions::quick(wva), "others").await?;
    let namespace = replicas.namespace();
    apply_crds(testbed, CRDS).await?;
    testbed.apply(&objects(namespace)).await?;
    let (program, admin) = callers(testbed).await?;

    let own = get("/apis/llmd.ai/v1alpha1/variantautoscalings");
    let (status, text) = program.send(&own, false).await?;
    ensure!(status == 200, "the token is not valid: {status} {text}");
    ensure!(program.send(&own, true).await?.0 == 403, "it may impersonate");
    ensure!(admin.send(&own, true).await?.0 == 200, "the administrator may not impersonate");

    let scale = format!("/apis/apps/v1/namespaces/{namespace}/deployments/llama/scale");
    let (status, text) = program.send(&patch(scale, json!({"spec": {"replicas": 0}})), false).await?;
    ensure!(status == 200, "it may not scale a Deployment: {status} {text}");

    let all = [
        secrets_and_maps(namespace),
        registrations(),
        workloads(namespace),
        nodes_and_pods(namespace),
        rights(),
    ]
    .concat();
    for attempt in &all {
        let Attempt { method, path, .. } = attempt;
        let (status, text) = program.send(attempt, false).await?;
        ensure!(status == 403, "the program: {method} {path} gave {status} {text}");
        // The program would also be denied a path that does not exist.
        let (status, text) = admin.send(attempt, false).await?;
        ensure!((200..300).contains(&status), "the administrator: {method} {path} gave {status} {text}");
    }
    // The other experiments expect no main map.
    testbed.kubectl(&["delete", "configmap", MAIN_MAP_NAME, "-n", SYSTEM]).await?.success()?;
    let figures =
        format!("{} attempts, all refused to the program, and not to the administrator", all.len() + 1);
    Ok(Outcome { figures, ..Outcome::default() })
}

#[test]
fn rbac_rules_have_no_wildcard_and_a_reason_each() -> anyhow::Result<()> {
    let path = repository_path("config/base/rbac.yaml");
    let manifest = std::fs::read_to_string(&path)?;
    ensure!(!manifest.contains('*'), "a wildcard in {}", path.display());
    let lines: Vec<&str> = manifest.lines().collect();
    let rules = lines.iter().enumerate().filter(|(_, line)| line.starts_with("- apiGroups:"));
    let mut count = 0;
    for (at, rule) in rules {
        count += 1;
        let before = at.checked_sub(1).and_then(|before| lines.get(before)).copied().unwrap_or_default();
        // One purpose may take two rules, since a create cannot be bound to a name: the comment above the first is for
        // both.
        let is_same_purpose =
            at >= 3 && before.trim_start().starts_with("verbs: [create") && lines[at - 3] == *rule;
        // A role with one rule has the comment at its head.
        let is_at_the_head = before == "rules:" && begins_with_comment(&lines[..at]);
        ensure!(
            before.starts_with('#') || is_same_purpose || is_at_the_head,
            "line {}: no comment: {rule}",
            at + 1
        );
    }
    ensure!(count > 10, "only {count} rules were found: has the layout changed?");
    Ok(())
}

/// Whether the document at the end of these lines begins with a comment.
fn begins_with_comment(lines: &[&str]) -> bool {
    let begin = lines.iter().rposition(|line| *line == "---").map_or(0, |at| at + 1);
    lines.get(begin).is_some_and(|line| line.starts_with('#'))
}
