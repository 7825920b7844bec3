//! Instant queries to a Prometheus that can be reached from here, for commands that look at series. Time and size are
//! bounded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::Value;
use wva_crds::settings::Kind;

/// For one query.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest answer that is read.
const LIMIT: usize = 64 << 20;

/// One series with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Series {
    /// A label, empty where there is none, which is the same to Prometheus.
    pub(super) fn label(&self, key: &str) -> &str {
        self.labels.get(key).map(String::as_str).unwrap_or_default()
    }
}

/// Adds the options that say where Prometheus is.
pub(super) fn options(command: Command) -> Command {
    let file = |name: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).value_name("FILE").requires("prometheus");
        arg.value_parser(value_parser!(PathBuf)).help(help)
    };
    command
        .arg(
            Arg::new("prometheus").long("prometheus").value_name("URL").help(
                "Prometheus as it is reached from here, such as http://localhost:9090 of a port-forward",
            ),
        )
        .arg(file("prometheus-token-file", "File with a bearer token for it"))
        .arg(file("prometheus-ca-file", "CA certificates (PEM) to trust for it, besides the system's"))
}

/// Asks one Prometheus.
pub(super) struct Prometheus {
    client: reqwest::Client,
    url: String,
    token: Option<String>,
}

impl Prometheus {
    /// As the options say; `None` where they name none.
    pub(super) fn of(arguments: &ArgMatches) -> anyhow::Result<Option<Self>> {
        let Some(url) = arguments.get_one::<String>("prometheus") else { return Ok(None) };
        Kind::Url.parse(url).context("--prometheus")?;
        let read = |name: &str| {
            let path = arguments.get_one::<PathBuf>(name);
            let read = |path: &PathBuf| {
                std::fs::read(path).with_context(|| format!("--{name} {}: cannot be read", path.display()))
            };
            path.map(read).transpose()
        };
        let mut builder = reqwest::Client::builder().timeout(PATIENCE).no_proxy();
        if let Some(bundle) = read("prometheus-ca-file")? {
            let roots = reqwest::Certificate::from_pem_bundle(&bundle);
            let roots = roots
                .context("--prometheus-ca-file: found no PEM certificates: name a file such as ca.crt")?;
            builder = builder.tls_certs_merge(roots);
        }
        let token = read("prometheus-token-file")?.map(String::from_utf8).transpose();
        let token = token
            .context("--prometheus-token-file: found bytes that are no text: name the file with the token")?;
        Ok(Some(Self {
            client: builder.build().context("cannot make the client for Prometheus")?,
            url: format!("{}/api/v1/query", url.trim_end_matches('/')),
            token: token.map(|token| token.trim().to_owned()),
        }))
    }

    /// The series of an instant vector.
    pub(super) async fn series(&self, expression: &str) -> anyhow::Result<Vec<Series>> {
        let mut request = self.client.get(&self.url).query(&[("query", expression)]);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut response = request.send().await.context("Prometheus did not answer: check --prometheus")?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.context("the answer of Prometheus broke off")? {
            anyhow::ensure!(
                body.len() + chunk.len() <= LIMIT,
                "Prometheus answered with more than {LIMIT} bytes"
            );
            body.extend_from_slice(&chunk);
        }
        anyhow::ensure!(status.is_success(), "Prometheus answered {status}: check --prometheus");
        let answer = serde_json::from_slice(&body)
            .context("the answer of Prometheus is no JSON: check --prometheus")?;
        read(&answer).context("Prometheus did not answer with a vector")
    }
}

/// The series of an answer; `None` where it is none.
fn read(answer: &Value) -> Option<Vec<Series>> {
    let result = answer.pointer("/data/result").filter(|_| answer["status"] == "success")?;
    let one = |element: &Value| {
        let labels = serde_json::from_value(element.get("metric")?.clone()).ok()?;
        // Prometheus writes NaN, +Inf and -Inf, all of which Rust reads.
        Some(Series { labels, value: element.pointer("/value/1")?.as_str()?.parse().ok()? })
    };
    result.as_array()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_url_that_is_none_is_refused_without_its_password() {
        let of = |url: &str| {
            let command = options(Command::new("doctor"));
            Prometheus::of(&command.get_matches_from(["doctor", "--prometheus", url]))
        };
        for url in ["ftp://user:pass@prometheus", "prometheus:9090", "http://"] {
            let said = of(url).err().map(|error| format!("{error:#}")).unwrap();
            assert!(said.starts_with("--prometheus: found") && said.contains("http://"), "{said}");
            assert!(!said.contains("pass@"), "{said}");
        }
    }

    #[test]
    fn an_answer_is_read_whole_or_not_at_all() {
        let answer = json!({"status": "success", "data": {"resultType": "vector", "result": [
            {"metric": {"pod": "a"}, "value": [1, "2.5"]}]}});
        let series = read(&answer).unwrap();
        assert_eq!((series[0].label("pod"), series[0].label("no"), series[0].value), ("a", "", 2.5));
        assert_eq!(read(&json!({"status": "error", "data": {"result": []}})), None);
        assert_eq!(read(&json!({"status": "success", "data": {"result": [{"value": [1, "x"]}]}})), None);
    }
}
