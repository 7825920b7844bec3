//! Where a pod of an endpoint picker serves its metrics.

use std::net::SocketAddr;

use wva_crds::entries::EndpointPicker;
use wva_crds::text::go_flag;
use wva_runtime::cache::Projection;

use wva_objects::metrics_ports::METRICS_PORT_NAMES;
use wva_objects::pod::Container;
use wva_objects::template::command_line;

use crate::model::serving_pod::ServingPod;

/// Used if neither the pod nor an entry names a port.
const DEFAULT_PORT: u16 = 9090;
/// Arguments of the picker with the port, and with the folder of a certificate.
const PORT_ARGUMENTS: [&str; 2] = ["metrics-port", "metricsPort"];
const CERTIFICATE_ARGUMENT: &str = "metrics-cert-dir";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PickerPod {
    pub(super) address: SocketAddr,
    /// Serves HTTPS.
    pub(super) tls: bool,
}

impl PickerPod {
    pub(super) fn projection() -> Projection<ServingPod, Option<Self>> {
        Projection { read: Self::from_pod, is_same: None }
    }

    /// `None` before it has an IP address and after it has finished.
    fn from_pod(pod: &ServingPod) -> Option<Self> {
        let has_ended = matches!(pod.phase(), Some("Succeeded" | "Failed"));
        let containers = || pod.containers().iter();
        let ports = || containers().flat_map(|c| c.ports.iter().flatten());
        let named = |name: &&str| ports().find(|port| port.name.as_deref() == Some(*name));
        let named = METRICS_PORT_NAMES
            .iter()
            .find_map(named)
            .and_then(|port| u16::try_from(port.container_port).ok());
        let given = || containers().find_map(|c| PORT_ARGUMENTS.iter().find_map(|name| argument(c, name)));
        let port = named.or_else(|| given()?.parse().ok()).unwrap_or(DEFAULT_PORT);
        let tls =
            containers().any(|c| argument(c, CERTIFICATE_ARGUMENT).is_some_and(|folder| !folder.is_empty()));
        let ip = pod.ip().filter(|_| !has_ended)?;
        Some(Self { address: SocketAddr::new(ip, port), tls })
    }

    pub(super) fn url(&self) -> String {
        format!("http{}://{}/metrics", if self.tls { "s" } else { "" }, self.address)
    }

    /// What an entry says has priority.
    pub(super) fn named(mut self, picker: &EndpointPicker) -> Self {
        if let Some(port) = picker.port {
            self.address.set_port(port);
        }
        Self { tls: picker.tls.unwrap_or(self.tls), ..self }
    }
}

fn argument<'c>(container: &'c Container, name: &str) -> Option<&'c str> {
    go_flag(command_line(container), name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(containers: &Value, status: &Value) -> Option<String> {
        let pod =
            json!({"metadata": {"name": "epp-0"}, "spec": {"containers": containers}, "status": status});
        PickerPod::from_pod(&serde_json::from_value(pod).unwrap())
            .map(|pod| format!("{}{}", if pod.tls { "https " } else { "" }, pod.address))
    }

    #[test]
    fn uses_the_port_named_for_metrics() {
        let running = json!({"phase": "Running", "podIP": "10.1.2.3"});
        let port = |name: &str, port: u16| json!({"name": name, "containerPort": port});
        let of = |ports: Value| read(&json!([{"name": "sidecar"}, {"ports": ports}]), &running);
        assert_eq!(of(json!([port("grpc", 9002), port("metrics", 9191)])).as_deref(), Some("10.1.2.3:9191"));
        assert_eq!(of(json!([port("http-metrics", 8081)])).as_deref(), Some("10.1.2.3:8081"));
        let both = json!([port("http-metrics", 8081), port("metrics", 9191)]);
        assert_eq!(of(both).as_deref(), Some("10.1.2.3:9191"));
        assert_eq!(of(json!([{"containerPort": 8000}])).as_deref(), Some("10.1.2.3:9090"));
        let six = json!({"podIP": "fd00::7"});
        assert_eq!(read(&json!([{}]), &six).as_deref(), Some("[fd00::7]:9090"));
    }

    #[test]
    fn arguments_of_the_picker_name_port_and_tls() {
        let running = json!({"phase": "Running", "podIP": "10.1.2.3"});
        let of = |args: Value| read(&json!([{"name": "epp", "args": args}]), &running).unwrap();
        assert_eq!(of(json!(["--metrics-port=9191"])), "10.1.2.3:9191");
        assert_eq!(of(json!(["-metricsPort", "9191"])), "10.1.2.3:9191");
        assert_eq!(of(json!(["--metrics-port-x=9191", "--metrics-port=no"])), "10.1.2.3:9090");
        assert_eq!(of(json!(["--metrics-cert-dir=/certs"])), "https 10.1.2.3:9090");
        assert_eq!(of(json!(["--metrics-cert-dir", "/certs"])), "https 10.1.2.3:9090");
        assert_eq!(of(json!(["--metrics-cert-dir="])), "10.1.2.3:9090");
        assert_eq!(of(json!(["--cert-path=/certs", "--secure-serving=true"])), "10.1.2.3:9090");
    }

    #[test]
    fn an_entry_has_priority() {
        let pod = PickerPod { address: "10.1.2.3:9090".parse().unwrap(), tls: true };
        let named = |picker: &str| pod.named(&picker.parse().unwrap());
        assert_eq!(named("epp"), pod);
        let other = PickerPod { address: "10.1.2.3:9443".parse().unwrap(), tls: false };
        assert_eq!(named("http://app=epp:9443"), other);
    }

    #[test]
    fn skips_pods_without_address_and_finished_pods() {
        assert_eq!(read(&json!([]), &json!({"phase": "Pending"})), None);
        for phase in ["Succeeded", "Failed"] {
            assert_eq!(read(&json!([]), &json!({"phase": phase, "podIP": "10.1.2.3"})), None);
        }
    }
}
