//! Groups of pods, and GPUs of a replica.

use serde_json::json;

use super::check;
use super::world::World;

#[test]
fn describes_the_groups_of_a_leader_worker_set() {
    let groups = |w: &mut World, serving: &str| {
        let kind =
            json!({"kind": "LeaderWorkerSet", "apiVersion": "leaderworkerset.x-k8s.io/v1", "name": "a"});
        w.variant["spec"]["scaleTargetRef"] = kind.clone();
        w.hpas[0]["spec"]["scaleTargetRef"] = kind.clone();
        w.deployment["kind"] = kind["kind"].clone();
        w.deployment["apiVersion"] = kind["apiVersion"].clone();
        let pod = |name: &str, index: &str| {
            let mut pod = w.pods[0].clone();
            pod["metadata"]["name"] = json!(name);
            pod["metadata"]["labels"] = json!({"leaderworkerset.sigs.k8s.io/name": "a",
                "leaderworkerset.sigs.k8s.io/worker-index": index});
            pod
        };
        w.pods = vec![pod("a-0", "0"), pod("a-0-1", "1")];
        let group = format!("gpusPerReplica: 16, group: {{pods: 2, serving: {serving}}}, max: 10");
        w.snapshot = w.snapshot.take().map(|snapshot| snapshot.replace("max: 10", &group));
    };
    for (serving, text) in [("every", "all serve"), ("leader", "its leader serves")] {
        let row = format!("1 of 1 replicas ready; a replica is a group of 2 pods, {text}, 16 GPUs");
        check("", &[&row, "1 group reporting"], |w| groups(w, serving));
    }
}

#[test]
fn checks_the_gpus_of_claims() {
    let template = || {
        json!({"metadata": {"name": "two", "namespace": "prod"}, "spec": {"spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]}}}})
    };
    let with_claim = |w: &mut World, snapshot: &str, limited: bool| {
        let claim = json!([{"name": "gpu", "resourceClaimTemplateName": "two"}]);
        w.deployment["spec"]["template"] = json!({"spec": {"containers": [], "resourceClaims": claim}});
        let config = if limited { "config: {inventory: {H100: {limit: 4, used: 3}}}\n" } else { "" };
        w.snapshot = w.snapshot.take().map(|s| format!("{config}{}", s.replace("{name: a,", snapshot)));
    };
    let h100 = "{name: a, accelerator: H100, gpusPerReplica: 2,";
    check("", &["a replica requests no GPUs"], |_| {});
    check("", &["2 GPUs of H100 per replica: 2 by claim template two"], |w| {
        with_claim(w, h100, false);
        w.claim_templates.push(template());
    });
    check("", &["claim template two; the cluster offers 4, of which 3 are used"], |w| {
        with_claim(w, h100, true);
        w.claim_templates.push(template());
    });
    check(
        "?gpus",
        &["their accelerator is unknown", "\"accelerator\":\"NAME\"", "of the cluster: H100"],
        |w| {
            with_claim(w, "{name: a, gpusPerReplica: 2,", true);
            w.claim_templates.push(template());
        },
    );
    check("?gpus", &["no node offers them"], |w| {
        with_claim(w, "{name: a, accelerator: L4, gpusPerReplica: 2,", true);
        w.claim_templates.push(template());
    });
    check("?gpus", &["counts 0 per replica, but the pods request 2 GPUs", "watch on resourceslices"], |w| {
        with_claim(w, "{name: a, accelerator: H100, gpusPerReplica: 0,", true);
        w.claim_templates.push(template());
    });
    check("?gpus", &["no ResourceClaimTemplate two", "kubectl get resourceclaimtemplates -n prod"], |w| {
        with_claim(w, h100, true);
    });
    check("", &["2 GPUs per replica: 2 by claim template two"], |w| {
        with_claim(w, h100, true);
        w.claim_templates.push(template());
        w.snapshot = None;
    });
}
