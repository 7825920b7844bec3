//! The proxy on the way to the API server, chosen as kubectl does. kube's own choice compares `NO_PROXY` with the proxy in
//! place of the API server.

use std::net::IpAddr;

use axum::http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Kubeconfig;

/// Proxy for this API server. `file`: kubeconfig, if one was read.
pub(super) fn for_server(server: &Uri, file: Option<Kubeconfig>, context: Option<&str>) -> Option<Uri> {
    let cluster = file.and_then(|file| cluster(file, context))?;
    // Otherwise the service account of the pod is in use: no proxy leads from a pod to its API server.
    if cluster.server.as_ref()?.parse::<Uri>().ok()? != *server {
        return None;
    }
    let stated = cluster.proxy_url.filter(|url| !url.is_empty());
    stated.map_or_else(
        || from_environment(server, &Matcher::from_env(), |name| std::env::var(name).ok()),
        |url| parse(&url),
    )
}

fn cluster(file: Kubeconfig, context: Option<&str>) -> Option<kube::config::Cluster> {
    let context = context.map(str::to_owned).or(file.current_context)?;
    let context = file.contexts.into_iter().find(|named| named.name == context)?.context?;
    file.clusters.into_iter().find(|named| named.name == context.cluster)?.cluster
}

/// Proxy that the environment names. As in Go, a loopback address has none.
fn from_environment(
    server: &Uri,
    matcher: &Matcher,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Uri> {
    // The matcher applies `*` to names only.
    let is_off = ["NO_PROXY", "no_proxy"].iter().any(|name| variable(name).is_some_and(|v| v.trim() == "*"));
    if is_loopback(server.host()?) || is_off || matcher.intercept(server).is_none() {
        return None;
    }
    // The matcher separates the password from the URL, and kube expects it there.
    let names = match server.scheme_str() {
        Some("http") => ["HTTP_PROXY", "http_proxy"],
        _ => ["HTTPS_PROXY", "https_proxy"],
    };
    let set = names
        .iter()
        .chain(&["ALL_PROXY", "all_proxy"])
        .find_map(|name| variable(name).filter(|v| !v.is_empty()));
    parse(&set?)
}

/// Whether a host of a URL is this machine.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn parse(url: &str) -> Option<Uri> {
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    url.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(server: &str, proxies: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| proxies.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let matcher = Matcher::builder()
            .https(variable("HTTPS_PROXY").unwrap_or_default())
            .http(variable("HTTP_PROXY").unwrap_or_default())
            .all(variable("ALL_PROXY").unwrap_or_default())
            .no(variable("NO_PROXY").unwrap_or_default())
            .build();
        from_environment(&server.parse().unwrap(), &matcher, variable).map(|uri| uri.to_string())
    }

    #[test]
    fn no_proxy_is_compared_with_the_api_server() {
        let proxy = ("HTTPS_PROXY", "http://user:pass@proxy:3128");
        let by = Some("http://user:pass@proxy:3128/".to_owned());
        assert_eq!(chosen("https://10.1.2.3:6443", &[proxy]), by);
        assert_eq!(chosen("https://10.1.2.3:6443", &[proxy, ("NO_PROXY", "proxy")]), by);
        for no_proxy in ["10.1.2.3", "10.0.0.0/8", "a.example,10.1.0.0/16", "*"] {
            assert_eq!(chosen("https://10.1.2.3:6443", &[proxy, ("NO_PROXY", no_proxy)]), None, "{no_proxy}");
        }
        for no_proxy in [".example.com", "example.com", "k8s.example.com"] {
            let found = chosen("https://k8s.example.com", &[proxy, ("NO_PROXY", no_proxy)]);
            assert_eq!(found, None, "{no_proxy}");
        }
        for local in ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"] {
            assert_eq!(chosen(local, &[proxy]), None, "{local}");
        }
    }

    #[test]
    fn the_scheme_of_the_server_chooses_the_variable() {
        let proxies = [("HTTPS_PROXY", "https-proxy:1"), ("HTTP_PROXY", "http-proxy:2")];
        assert_eq!(chosen("https://k8s", &proxies).as_deref(), Some("http://https-proxy:1/"));
        assert_eq!(chosen("http://k8s", &proxies).as_deref(), Some("http://http-proxy:2/"));
        assert_eq!(
            chosen("https://k8s", &[("ALL_PROXY", "socks5://all:3")]).as_deref(),
            Some("socks5://all:3/")
        );
        assert_eq!(chosen("https://k8s", &[]), None);
    }

    #[test]
    fn the_kubeconfig_names_the_proxy_of_its_cluster() {
        let file = || -> Kubeconfig {
            serde_json::from_value(serde_json::json!({
                "current-context": "a",
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "u"}},
                    {"name": "b", "context": {"cluster": "b", "user": "u"}}],
                "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1", "proxy-url": "http://p:3"}},
                    {"name": "b", "cluster": {"server": "https://127.0.0.1:2", "proxy-url": "socks5://q:4"}}],
            }))
            .unwrap()
        };
        let proxy = |server: &str, context| for_server(&server.parse().unwrap(), Some(file()), context);
        assert_eq!(proxy("https://127.0.0.1:1", None).unwrap(), "http://p:3/");
        assert_eq!(proxy("https://127.0.0.1:2", Some("b")).unwrap(), "socks5://q:4/");
        assert_eq!(proxy("https://10.0.0.1", None), None, "the service account of a pod");
    }
}
