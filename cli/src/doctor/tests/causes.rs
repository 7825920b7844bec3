//! Outages around a variant: the report begins with their cause, and the checks of the variant name no other.

use serde_json::{Value, json};

use super::world::World;
use super::{VariantState, check, check_variant, cluster_checks, set_condition, text};

fn cluster_report(change: impl FnOnce(&mut World)) -> String {
    let mut world = World::new();
    change(&mut world);
    text::render(&cluster_checks::check_cluster(&world.facts()), &[], text::Style::default())
}

fn unmet(w: &mut World, reason: &str, message: &str) {
    let need = json!({"type": "NeedMet", "status": "False", "reason": reason, "message": message});
    w.variant["status"]["conditions"].as_array_mut().unwrap().push(need);
}

/// The last values of the pods still count, and some pods are new since then.
#[test]
fn prometheus_that_is_down_is_a_line_of_its_own() {
    let outage = |w: &mut World| {
        let message = "Prometheus at http://p did not answer. Using the last values of 1 replica(s) until they are too old";
        set_condition(w, 1, "False", "PrometheusError", message);
        let mut newer = w.pods[0].clone();
        newer["metadata"]["name"] = json!("a-1");
        w.pods.push(newer);
    };
    let report = cluster_report(outage);
    assert!(
        report.contains("BROKEN prometheus  gives the controller no data, so it holds the targets of 1 variant: Prometheus at http://p did not answer\n"),
        "{report}"
    );
    check(
        "",
        &["?      scrape      what the pods report is not known while Prometheus does not answer"],
        outage,
    );
    assert!(cluster_report(|_| {}).contains("ok     prometheus  answers the controller\n"));
}

#[test]
fn a_controller_at_zero_replicas_is_installed() {
    let report = cluster_report(|w| {
        w.snapshot = None;
        w.controllers[0]["spec"]["replicas"] = json!(0);
    });
    assert!(report.contains("BROKEN controller  Deployment wva/wva is at 0 replicas"), "{report}");
    assert!(report.contains("kubectl scale deployment -n wva wva --replicas=2"), "{report}");
}

/// What people stopped by kubectl, they start by kubectl, with the number of the release.
#[test]
fn a_stopped_controller_of_a_tool_names_the_tool() {
    let stopped = |annotations: Value| {
        cluster_report(move |w| {
            w.snapshot = None;
            w.controllers[0]["spec"]["replicas"] = json!(0);
            w.controllers[0]["metadata"]["annotations"] = annotations;
        })
    };
    let by_helm =
        stopped(json!({"meta.helm.sh/release-name": "wva", "meta.helm.sh/release-namespace": "wva"}));
    assert!(by_helm.contains("replicaCount of Helm release"), "{by_helm}");
    let by_git = stopped(json!({"argocd.argoproj.io/tracking-id": "apps:apps/Deployment:wva/wva"}));
    assert!(by_git.contains("in Git: application") && !by_git.contains("kubectl scale"), "{by_git}");
}

#[test]
fn a_variant_that_wva_keeps_is_changed_by_its_autoscaler() {
    let parts = ["spec.modelID", "change the annotations of HorizontalPodAutoscaler prod/a-hpa"];
    check("variant", &parts, |w| {
        w.variant["spec"]["modelID"] = json!("");
        w.variant["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "wva"});
        w.variant["metadata"]["ownerReferences"] = json!([{"apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler", "name": "a-hpa", "uid": "u", "controller": true}]);
    });
}

/// The API server refuses another instance without the annotation in the same update.
#[test]
fn the_command_for_another_instance_is_admitted() {
    let mut world = World::new();
    world.variant["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "gone"});
    world.controllers[0]["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "CONTROLLER_INSTANCE", "value": "blue"}]);
    let facts = world.facts();
    let result = check_variant(&VariantState::new(&facts, &facts.objects.variants[0]));
    let remedies: Vec<&str> = result.findings.iter().filter_map(|(_, f)| f.remedy.as_deref()).collect();
    let patch =
        remedies.iter().find_map(|text| text.split('\'').nth(1)).unwrap_or_else(|| panic!("{remedies:?}"));
    let patch: Value = serde_json::from_str(&patch.replace("INSTANCE", "blue")).unwrap();
    let stored = &facts.objects.variants[0];
    let mut changed = stored.clone();
    for map in ["labels", "annotations"] {
        changed["metadata"][map] = patch["metadata"][map].clone();
    }
    let update = |object: &Value| {
        let facts = wva_rules::Facts {
            operation: wva_rules::Operation::Update,
            old: Some(stored),
            instance: Some("blue"),
            ..wva_rules::Facts::new(object)
        };
        wva_rules::validate(&facts).violations.iter().any(|violation| violation.code == "WVA-VA-014")
    };
    assert!(!update(&changed), "{changed}");
    changed["metadata"]["annotations"] = json!({});
    assert!(update(&changed), "the rule does not see the change");
}

/// wva serves external metrics itself, so Prometheus need not have its series.
#[test]
fn an_hpa_that_reads_another_variant_is_the_broken_link() {
    check("autoscaler", &["published, according to the status"], |w| {
        w.signals.clear();
        w.external_values = Ok(Vec::new());
        w.api_service =
            Some(json!({"spec": {"service": {"namespace": "wva", "name": "wva-webhook-service"}}}));
        w.hpas[0]["spec"]["metrics"][0]["external"]["metric"]["selector"]["matchLabels"] =
            json!({"variant_name": "other", "exported_namespace": "prod"});
    });
}

#[test]
fn a_mode_that_withholds_replicas_is_a_warning() {
    check("?bounds", &["than the mode of the variant allows", "kubectl edit va -n prod a"], |w| {
        unmet(w, "Paused", "The model needs more replicas than the mode of the variant allows");
    });
}

#[test]
fn a_quota_is_named_once() {
    let quota: Value = json!("Waiting for the quota gpus");
    check("", &[], |w| unmet(w, "WaitingForQuota", quota.as_str().unwrap()));
}
