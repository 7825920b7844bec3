//! `wva doctor --pre`: checks of a cluster before the install.

use std::collections::BTreeMap;

use serde_json::Value;
use wva_objects::hardware::{is_gpu_resource, normalize_accelerator, product_labels};

use super::chain::Finding;
use super::cluster_checks;
use super::facts::{MetricsServer, metrics_server};
use super::pre_facts::{PreFacts, Right};
use crate::cluster::{entry, id, items, text};
use crate::output::{count, first_names};

/// Names of policy engines whose webhooks review every object of a release.
const POLICY_ENGINES: [&str; 4] = ["kyverno", "gatekeeper", "kubewarden", "jspolicy"];

/// Findings in the order in which an install needs them.
pub(super) fn check(facts: &PreFacts) -> Vec<(&'static str, Finding)> {
    let mut findings = vec![
        ("kubernetes", cluster_checks::kubernetes(facts.kubernetes)),
        ("rights", rights(facts)),
        ("controller", controller(facts)),
        ("metrics API", metrics_api(facts)),
        ("autoscaler", autoscaler(facts)),
        ("prometheus", prometheus(facts)),
        ("monitors", monitors(facts)),
        ("gpus", gpus(&facts.nodes)),
    ];
    findings.extend(policies(facts).map(|finding| ("policies", finding)));
    findings.extend(network(facts).map(|finding| ("network", finding)));
    findings.extend(proxy(facts).map(|finding| ("proxy", finding)));
    findings
}

fn rights(facts: &PreFacts) -> Finding {
    let missing: &[Right] = match &facts.missing_rights {
        Ok(missing) => missing,
        Err(reason) => return Finding::unknown(reason.as_str()),
    };
    let names: Vec<&str> = missing.iter().map(|right| right.plural).collect();
    if let Some(inside) = missing.iter().find(|right| right.is_namespaced) {
        return Finding::broken(
            format!("you may not create {} in namespace {}", inside.plural, facts.namespace),
            "ask for the role admin in the namespace, or name another with -n",
        );
    }
    if names.is_empty() {
        return Finding::fine(format!(
            "you may create what the chart has, here and in namespace {}",
            facts.namespace
        ));
    }
    Finding::warning(
        format!("you may not create {}", names.join(", ")),
        "let an administrator install wva, or install it for your namespace alone: helm install -f \
         values-namespace.yaml (docs/getting-started/install.md)",
    )
}

fn controller(facts: &PreFacts) -> Finding {
    let installed = match &facts.controllers {
        Ok(installed) => installed,
        Err(reason) => return Finding::unknown(reason.as_str()),
    };
    if let Some(other) = installed.running.iter().find(|c| c.is_llm_d_wva) {
        return Finding::warning(
            format!("llm-d WVA runs: {}", other.describe()),
            "move its variants, and never let both scale the same one (docs/guides/migrate-from-llm-d.md)",
        );
    }
    let all: Vec<String> = installed.running.iter().map(super::controllers::Controller::describe).collect();
    if all.is_empty() {
        return Finding::fine("none is installed");
    }
    Finding::warning(
        format!("wva is already installed: {}", all.join(", ")),
        "upgrade it with helm upgrade, or give a second one its own wva.controllerInstance \
         (docs/concepts/multiple-controllers.md)",
    )
}

fn metrics_api(facts: &PreFacts) -> Finding {
    match &facts.api_service {
        Err(reason) => Finding::unknown(reason.as_str()),
        Ok(None) => Finding::fine(
            "free: wva can serve external metrics to HPAs (--set wva.externalMetrics.enabled=true)",
        ),
        Ok(Some(service)) => {
            let MetricsServer { text, is_available } = metrics_server(service);
            if is_available {
                return Finding::fine(format!(
                    "{text}: leave wva.externalMetrics.enabled off, and let it read wva_desired_replicas"
                ));
            }
            Finding::broken(
                format!("{text}; no namespace can be deleted meanwhile"),
                super::facts::DESCRIBE_API_SERVICE,
            )
        }
    }
}

fn autoscaler(facts: &PreFacts) -> Finding {
    match facts.has_keda {
        Err(ref reason) => Finding::unknown(reason.as_str()),
        Ok(true) => Finding::fine("KEDA is installed: a ScaledObject or an HPA can follow wva"),
        Ok(false) => Finding::fine("HPAs of Kubernetes can follow wva; KEDA is not installed"),
    }
}

fn prometheus(facts: &PreFacts) -> Finding {
    let series = match &facts.series {
        None => {
            let services = &facts.prometheus_services;
            let Some(first) = services.first() else {
                let seen = "no Service of its usual names is visible";
                return Finding::unknown(format!("not asked; {seen}: pass --prometheus URL"));
            };
            let remedy = forward(first).map(|command| {
                format!("{command}, and in another terminal pass --prometheus http://localhost:9090")
            });
            let names = first_names(services.iter().map(String::as_str));
            return Finding { remedy, ..Finding::unknown(format!("not asked; {names} may be it")) };
        }
        Some(Err(error)) => {
            return Finding::broken(
                error.as_str(),
                "--prometheus is its URL as seen from here, such as that of a port-forward; it may also need --prometheus-token-file or --prometheus-ca-file",
            );
        }
        Some(Ok(series)) => series,
    };
    if series.is_empty() {
        return Finding::warning(
            "it answers, but has no series of a model server",
            "let it scrape the pods of vLLM or SGLang (docs/guides/prometheus.md)",
        );
    }
    let mut by_namespace: BTreeMap<&str, f64> = BTreeMap::new();
    for one in series {
        *by_namespace.entry(one.labels.get("namespace").map_or("", String::as_str)).or_default() += one.value;
    }
    if let Some(pods) = by_namespace.get("") {
        return Finding::warning(
            format!("{pods} series of model servers have no label namespace"),
            "keep the target labels namespace and pod in the scrape (docs/guides/prometheus.md)",
        );
    }
    let names: Vec<String> =
        by_namespace.iter().map(|(namespace, pods)| format!("{namespace} ({pods})")).collect();
    Finding::fine(format!(
        "it answers; pods of model servers by namespace: {}",
        first_names(names.iter().map(String::as_str))
    ))
}

fn monitors(facts: &PreFacts) -> Finding {
    match facts.has_monitors {
        Err(ref reason) => Finding::unknown(reason.as_str()),
        Ok(true) => Finding::fine("ServiceMonitors are served: the chart's own scrapes wva"),
        Ok(false) => Finding::fine(
            "ServiceMonitors are not served: let Prometheus scrape wva another way (docs/guides/prometheus.md)",
        ),
    }
}

fn has_gpus(node: &Value) -> bool {
    let allocatable = node.pointer("/status/allocatable").and_then(Value::as_object);
    allocatable
        .into_iter()
        .flatten()
        .any(|(resource, n)| is_gpu_resource(resource) && n.as_str() != Some("0"))
}

/// `None`: no label tells.
fn gpu_product(node: &Value) -> Option<String> {
    product_labels().find_map(|label| entry(node, "/metadata/labels", label)).map(normalize_accelerator)
}

fn gpus(nodes: &Result<Vec<Value>, String>) -> Finding {
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(reason) => return Finding::unknown(reason.as_str()),
    };
    let mut products: BTreeMap<String, usize> = BTreeMap::new();
    let mut unlabelled = Vec::new();
    for node in nodes.iter().filter(|node| has_gpus(node)) {
        match gpu_product(node) {
            Some(product) => *products.entry(product).or_default() += 1,
            None => unlabelled.push(id(node).name),
        }
    }
    if !unlabelled.is_empty() {
        return Finding::warning(
            format!("no label names the GPUs of {}", first_names(unlabelled.iter().map(String::as_str))),
            "run the GPU feature discovery of the vendor, or state spec.accelerator of each variant",
        );
    }
    if products.is_empty() {
        return Finding::fine("no node has GPUs now");
    }
    let list: Vec<String> =
        products.iter().map(|(product, n)| format!("{product} on {}", count(*n, "node"))).collect();
    Finding::fine(list.join(", "))
}

/// Engines that may refuse objects of the chart.
fn policies(facts: &PreFacts) -> Option<Finding> {
    let is_engine = |name: &&String| POLICY_ENGINES.iter().any(|engine| name.contains(engine));
    let engines: Vec<&String> = facts.webhooks.iter().filter(is_engine).collect();
    (!engines.is_empty()).then(|| {
        Finding::warning(
            format!(
                "{} may refuse objects of the chart",
                first_names(engines.iter().map(|name| name.as_str()))
            ),
            format!(
                "helm template workload-variant-autoscaler CHART -n {} | kubectl apply --dry-run=server -f -",
                facts.namespace
            ),
        )
    })
}

/// Policies that select every pod of the namespace.
fn network(facts: &PreFacts) -> Option<Finding> {
    let selects_all = |policy: &&Value| {
        let selector = &policy["spec"]["podSelector"];
        selector.as_object().is_none_or(serde_json::Map::is_empty)
    };
    let names: Vec<String> = facts.network_policies.iter().filter(selects_all).map(|p| id(p).name).collect();
    (!names.is_empty()).then(|| {
        Finding::warning(
            format!("{} in namespace {} select every pod", first_names(names.iter().map(String::as_str)), facts.namespace),
            "allow the API server to reach ports 9443 and 6443, Prometheus port 8443, and wva to reach the API server, \
             Prometheus and endpoint pickers (docs/getting-started/platforms.md)",
        )
    })
}

/// Notes a proxy of this shell, which only the commands use.
fn proxy(facts: &PreFacts) -> Option<Finding> {
    facts.proxy.as_ref().map(|name| {
        Finding::fine(format!(
            "{name} is set here; pods of wva do not get it (docs/getting-started/platforms.md)"
        ))
    })
}

/// The command that makes a Service `NAMESPACE/NAME:PORT` answer here.
fn forward(service: &str) -> Option<String> {
    let (namespace, rest) = service.split_once('/')?;
    let (name, port) = rest.split_once(':')?;
    Some(format!("kubectl port-forward -n {namespace} svc/{name} 9090:{port}"))
}

/// Name of each Service that looks like a Prometheus, as `NAMESPACE/NAME:PORT`.
pub(super) fn prometheus_services(services: &[Value]) -> Vec<String> {
    const PORTS: [u64; 2] = [9090, 9091];
    let of = |service: &Value| {
        let name = id(service);
        // The chart prometheus-community/prometheus serves on 80.
        let is_known =
            |port: &u64| PORTS.contains(port) || *port == 80 && name.name.ends_with("prometheus-server");
        let port = items(service, "/spec/ports").find_map(|p| p["port"].as_u64().filter(is_known))?;
        let is_alike =
            ["prometheus", "thanos", "mimir", "vmsingle"].iter().any(|word| name.name.contains(word));
        let is_headless = text(service, "/spec/clusterIP") == "None";
        (is_alike && !is_headless).then(|| format!("{}/{}:{port}", name.namespace, name.name))
    };
    services.iter().filter_map(of).collect()
}
