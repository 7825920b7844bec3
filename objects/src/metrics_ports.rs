//! Ports at which the model servers of a pod serve metrics.

use std::collections::BTreeSet;

use crate::pod::{Container, Probe};
use crate::template;

/// Names of the metrics port of a container.
pub const METRICS_PORT_NAMES: [&str; 2] = ["metrics", "http-metrics"];

/// Port of a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsPort {
    /// Port number.
    pub number: u16,
    /// The port serves HTTPS.
    pub tls: bool,
}

/// The metrics ports of a pod: one of each server container; without one, that of the first container.
#[must_use]
pub fn metrics_ports(containers: &[Container]) -> Vec<MetricsPort> {
    let first = template::find_server(containers);
    let mut all = Vec::new();
    for server in first.into_iter().chain(template::server_containers(containers)) {
        let port = MetricsPort { number: port_number(server), tls: uses_tls(server) };
        if !all.contains(&port) {
            all.push(port);
        }
    }
    all
}

/// The ports of the data-parallel ranks, if there are any. They are in the first container of `ports`.
#[must_use]
pub fn with_ranks(ports: &[MetricsPort], ranks: &BTreeSet<u16>) -> Vec<MetricsPort> {
    match ports.first() {
        Some(MetricsPort { tls, .. }) if !ranks.is_empty() => {
            ranks.iter().map(|number| MetricsPort { number: *number, tls: *tls }).collect()
        }
        _ => ports.to_vec(),
    }
}

/// The port named for metrics, else the default one of the server if the container has it, else the first.
fn port_number(server: &Container) -> u16 {
    let default = template::server_kind(server).row().port;
    let ports = || server.ports.iter().flatten();
    let named =
        METRICS_PORT_NAMES.iter().find_map(|name| ports().find(|port| port.name.as_deref() == Some(name)));
    let usual = || ports().find(|port| port.container_port == i32::from(default));
    let port = named.or_else(usual).or_else(|| ports().next());
    port.and_then(|port| u16::try_from(port.container_port).ok()).unwrap_or(default)
}

/// Derived from its probes and arguments.
fn uses_tls(server: &Container) -> bool {
    let probes = [&server.readiness_probe, &server.liveness_probe, &server.startup_probe];
    let scheme = |probe: &Probe| probe.http_get.as_ref()?.scheme.clone();
    probes.into_iter().flatten().filter_map(scheme).any(|scheme| scheme == "HTTPS")
        || template::command_line(server).any(|word| word.contains("--ssl-certfile"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_port_is_that_of_the_server() {
        let port = |args: &str, ports: &[i32]| {
            let ports: Vec<Value> = ports.iter().map(|port| json!({"containerPort": port})).collect();
            port_number(
                &serde_json::from_value(json!({"name": "s", "args": [args], "ports": ports})).unwrap(),
            )
        };
        assert_eq!(port("python -m sglang.launch_server", &[]), 30000);
        assert_eq!(port("tritonserver --model-repository=/m", &[8000, 8001, 8002]), 8002);
        assert_eq!(port("trtllm-serve m", &[9000]), 9000);
        assert_eq!(port("vllm serve m", &[5557, 8000]), 8000);
    }
}
