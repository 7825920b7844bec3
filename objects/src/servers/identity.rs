//! Which server of a pod exports a series. A pod may have several, with equal labels of engine and model.

/// Pattern of a label `instance` with a port, for a regular expression of PromQL; the port is its second group. Of the
/// labels that Prometheus sets, only the port always differs between two servers of a pod, and never between two
/// scrapes of one: two monitors differ in `job` and `endpoint`, and one of them may lack `container`.
pub const INSTANCE_PORT: &str = "([^:]+|[[].+):([0-9]+)";

/// Server in its pod: the port of the label `instance`, else the container. Empty if nothing tells it.
#[must_use]
pub fn server_in_pod<'a>(instance: &'a str, container: &'a str) -> &'a str {
    let Some((host, port)) = instance.rsplit_once(':') else { return container };
    // The address of a pod without a port, as a relabelling may write it, has colons too.
    let is_host = !host.is_empty() && (!host.contains(':') || host.starts_with('['));
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if is_host && is_port { port } else { container }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_tells_servers_of_a_pod_apart() {
        for (instance, container, server) in [
            ("10.0.0.1:8000", "a", "8000"),
            ("a-0.llama:8001", "", "8001"),
            ("[fd00::1]:8000", "a", "8000"),
            ("fd00::7", "a", "a"),
            ("a-0", "a", "a"),
            ("http://10.0.0.1:8000/metrics", "a", "a"),
            ("", "", ""),
        ] {
            assert_eq!(server_in_pod(instance, container), server, "{instance}");
        }
    }
}
