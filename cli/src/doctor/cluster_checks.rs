//! Checks of the cluster: version, CRD, controllers, leader, namespaces and external metrics API.

use serde_json::Value;
use wva_crds::names::INSTANCE_LABEL;
use wva_crds::{ConditionReason, ConditionType};
use wva_rules::{KubernetesVersion, OLDEST_KUBERNETES, Owner, Violation};

use super::annotations::check_annotations;
use super::chain::Finding;
use super::config_maps::MapProblem;
use super::controllers::Controller;
use super::facts::{DESCRIBE_API_SERVICE, Facts, MetricsServer, is_served_by_wva, metrics_server};
use super::unread_maps::check_unread_maps;
use crate::cluster::{ObjectId, condition, entry, id, text};
use crate::output::count;

const UNREVIEWED: &str = "kube-system";

pub(super) fn check_cluster(facts: &Facts) -> Vec<(&'static str, Finding)> {
    let mut findings = vec![
        ("kubernetes", kubernetes(facts.install.kubernetes)),
        ("crd", crd(facts)),
        ("controller", controller(facts)),
        ("leader", leader(facts)),
    ];
    findings.extend(prometheus(facts).map(|f| ("prometheus", f)));
    findings
        .extend(unreviewed_controllers(facts).chain(orphaned_namespaces(facts)).map(|f| ("namespace", f)));
    findings.extend(check_unread_maps(facts).into_iter().map(|f| ("unread maps", f)));
    findings.extend(check_annotations(facts).into_iter().map(|f| ("annotations", f)));
    findings.extend(ignored_map_parts(facts).map(|f| ("config maps", f)));
    findings.push(("metrics API", metrics_api(facts)));
    findings.extend(unread_quotas(facts).map(|f| ("quotas", f)));
    let unreadable = facts.unreadable.iter().filter(|u| !["controllers", "apiservices"].contains(&u.plural));
    findings.extend(unreadable.map(|u| ("permissions", Finding::unknown(u.reason.as_str()))));
    findings
}

pub(super) fn kubernetes(version: Option<KubernetesVersion>) -> Finding {
    let Some(version) = version else {
        return Finding::unknown("the API server names no version");
    };
    if version < OLDEST_KUBERNETES {
        return Finding::warning(
            format!("{version} is not supported: webhooks and policies need {OLDEST_KUBERNETES} or later"),
            "upgrade the cluster (docs/reference/compatibility.md)",
        );
    }
    let limits = version.limits().map(|(since, limit)| format!("; before {since} {limit}"));
    Finding::fine(format!("{version}{}", limits.collect::<String>()))
}

fn crd(facts: &Facts) -> Finding {
    match &facts.install.missing_crd_fields {
        Ok(missing) if missing.is_empty() => Finding::fine("up to date"),
        Ok(missing) => Finding::warning(
            format!("older than this release; it drops {}", missing.join(", ")),
            facts.install.crd_update.as_str(),
        ),
        Err(reason) => Finding::unknown(reason.as_str()),
    }
}

fn controller(facts: &Facts) -> Finding {
    let Some(all) = &facts.install.controllers else {
        return Finding::unknown(facts.unreadable_reason("controllers").unwrap_or("cannot list Deployments"));
    };
    let names: Vec<String> = all.iter().map(Controller::describe).collect();
    let list = names.join(", ");
    if all.iter().any(|c| c.is_llm_d_wva) && all.iter().any(|c| !c.is_llm_d_wva) {
        return Finding::warning(
            format!("installed next to llm-d WVA: {list}"),
            "keep variants that both manage in mode recommend until llm-d WVA is stopped \
             (docs/guides/migrate-from-llm-d.md)",
        );
    }
    let has_leader = !facts.leader.leaders.received.is_empty();
    if !has_leader && let Some(one) = all.iter().find(|c| !c.is_llm_d_wva && c.ready == 0) {
        return Finding::broken(
            format!("no replica of {} is ready", one.describe()),
            format!("kubectl get pods -n {}, then check their logs", one.namespace),
        );
    }
    match all.as_slice() {
        [] if !has_leader && !facts.install.stopped_controllers.is_empty() => {
            let stopped = &facts.install.stopped_controllers[0];
            let ObjectId { namespace, name } = id(stopped);
            Finding::broken(
                format!("Deployment {namespace}/{name} is at 0 replicas, so the targets stay as they are"),
                start_command(stopped),
            )
        }
        [] if !has_leader => Finding::broken(
            "not installed: no Deployment has its labels and settings",
            "install it (docs/getting-started/install.md); if it runs outside the cluster, pass --address HOST:PORT",
        ),
        [] => Finding::fine("no Deployment, but a controller answers"),
        [one] if one.is_llm_d_wva => Finding::broken(
            format!("only llm-d WVA is installed: {list}"),
            "see docs/guides/migrate-from-llm-d.md; if wva is installed, choose it with --controller-namespace and \
             --controller-selector",
        ),
        _ => Finding::fine(list),
    }
}

/// Helm changes only what its values change, so a Deployment that people stopped stays stopped until they start it.
fn start_command(deployment: &Value) -> String {
    let ObjectId { namespace, name } = id(deployment);
    let command = format!("kubectl scale deployment -n {namespace} {name} --replicas=2");
    match Owner::of(deployment) {
        None => command,
        Some(owner @ Owner::Helm(_)) => {
            format!(
                "{command}; if replicaCount of {owner} is another number, that one: its next upgrade fails else"
            )
        }
        Some(owner) => format!("deployment {namespace}/{name}: {}", owner.advice()),
    }
}

fn leader(facts: &Facts) -> Finding {
    match facts.leader.leaders.missing_reason() {
        None => {
            let leaders = facts.leader.leaders.received.iter().map(|leader| leader.controller.as_str());
            Finding::fine(format!(
                "snapshot of the last cycle from {}",
                leaders.collect::<Vec<_>>().join(", ")
            ))
        }
        Some(reason) => Finding::warning(
            format!("no snapshot of the last cycle, so the checks below use only the cluster: {reason}"),
            "kubectl get lease -A, then check the logs of the lease holder",
        ),
    }
}

/// Whether Prometheus answers the controllers, by the conditions of their variants. `None` if no condition tells.
fn prometheus(facts: &Facts) -> Option<Finding> {
    let found =
        facts.objects.variants.iter().filter_map(|v| condition(v, ConditionType::MetricsAvailable.as_str()));
    let failing: Vec<&Value> = found.clone().filter(|c| is_prometheus_error(c)).collect();
    if let Some(first) = failing.first() {
        let (error, _) =
            text(first, "/message").split_once(". Using").unwrap_or((text(first, "/message"), ""));
        return Some(Finding::broken(
            format!(
                "gives the controller no data, so it holds the targets of {}: {error}",
                count(failing.len(), "variant")
            ),
            "check that Prometheus runs, and address, CA and credentials of the controller for it \
             (docs/operations/outages.md)",
        ));
    }
    let answers = found.filter(|c| text(c, "/status") == "True").count();
    (answers > 0).then(|| Finding::fine("answers the controller"))
}

/// Whether a condition `MetricsAvailable` says that Prometheus does not answer.
pub(super) fn is_prometheus_error(condition: &Value) -> bool {
    text(condition, "/reason") == ConditionReason::PrometheusError.as_str()
}

/// Controllers in the namespace that admission review excludes.
fn unreviewed_controllers(facts: &Facts) -> impl Iterator<Item = Finding> {
    let is_unreviewed = |c: &&Controller| !c.is_llm_d_wva && c.namespace == UNREVIEWED;
    facts.install.controllers.iter().flatten().filter(is_unreviewed).map(|c| {
        Finding::warning(
            format!("{} is in {UNREVIEWED}, where admission review is off", c.describe()),
            "install the release in its own namespace (docs/getting-started/install.md)",
        )
    })
}

/// Admission denies them, but an older map may have them.
fn ignored_map_parts(facts: &Facts) -> impl Iterator<Item = Finding> {
    facts.install.config_maps.problems.iter().map(|MapProblem { map, violation }| {
        let Violation { code, field, message, .. } = violation;
        Finding::warning(
            format!("{}/{}: {field}: {message} [{code}]", map.namespace, map.name),
            format!("correct it; wva ignores this part of the map until then (wva rule {code})"),
        )
    })
}

/// Namespaces with the label of an instance that no controller has.
fn orphaned_namespaces(facts: &Facts) -> Vec<Finding> {
    let Some(controllers) = facts.install.controllers.as_ref().filter(|all| !all.is_empty()) else {
        return Vec::new();
    };
    let orphaned = facts.objects.namespaces.iter().filter_map(|namespace| {
        let instance =
            entry(namespace, "/metadata/labels", INSTANCE_LABEL).filter(|label| !label.is_empty())?;
        let is_installed = controllers.iter().any(|c| c.instance.as_deref() == Some(instance));
        let name = text(namespace, "/metadata/name");
        (!is_installed).then(|| {
            Finding::warning(
                format!("{name} is labelled for instance {instance}, which is not installed"),
                format!("kubectl label namespace {name} {INSTANCE_LABEL}-"),
            )
        })
    });
    orphaned.collect()
}

/// The limiter is on, and its controller may not read ResourceQuotas.
fn unread_quotas(facts: &Facts) -> impl Iterator<Item = Finding> {
    let unread = facts.leader.leaders.received.iter().filter(|leader| leader.answer.config.quotas_forbidden);
    unread.map(|leader| {
        Finding::warning(
            format!("{} may not read ResourceQuotas, so they do not limit its scale-ups", leader.controller),
            "grant its service account get, list and watch on resourcequotas (docs/guides/limit-gpus.md)",
        )
    })
}

fn metrics_api(facts: &Facts) -> Finding {
    let Some(service) = &facts.autoscaling.api_service else {
        if let Some(reason) = facts.unreadable_reason("apiservices") {
            return Finding::unknown(reason);
        }
        return Finding::fine("not registered: HPAs cannot read external metrics, ScaledObjects need KEDA");
    };
    let MetricsServer { text: server, is_available } = metrics_server(service);
    if is_available {
        return Finding::fine(server);
    }
    let namespace = text(service, "/spec/service/namespace");
    let is_installed = |all: &Vec<Controller>| all.iter().any(|c| c.namespace == namespace);
    // `None`: the controllers cannot be listed.
    let is_removed = facts.install.controllers.as_ref().is_some_and(|all| !is_installed(all));
    let remedy = if is_removed && is_served_by_wva(service) {
        "wva was removed and left it: kubectl delete apiservice v1beta1.external.metrics.k8s.io"
    } else {
        DESCRIBE_API_SERVICE
    };
    Finding::broken(format!("{server}; until then no namespace of the cluster can be deleted"), remedy)
}
