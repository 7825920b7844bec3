//! Client for the Prometheus that `--prometheus` names.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{ArgAction, ArgMatches, Command};
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use wva_crds::settings::{Kind, without_password};
pub(super) use wva_runtime::prometheus::Series;
use wva_runtime::prometheus::{ClientError, PrometheusConfig, Query, QueryError, RangeSink};
use wva_runtime::tls::TlsFault;

use crate::arguments::{file_option, option, path_value, value, values};
use crate::output::{UnreadableFile, WrongOption};

const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn options(command: Command) -> Command {
    let file = |name, help| file_option(name, help).requires("prometheus");
    command
        .arg(option(
            "prometheus",
            "URL",
            "URL of Prometheus as seen from here, such as http://localhost:9090 of a port-forward",
        ))
        .arg(file("prometheus-token-file", "File with a bearer token for Prometheus"))
        .arg(file(
            "prometheus-ca-file",
            "CA certificates (PEM) to trust for Prometheus, in addition to the system's",
        ))
        .arg(
            option("header", "NAME=VALUE", "Header of each query, such as X-Scope-OrgID=team of a tenant")
                .action(ArgAction::Append)
                .requires("prometheus"),
        )
}

/// Headers of `--header`. Their values may be secret, so no error shows one.
fn parse_headers(texts: &[&str], has_token: bool) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for text in texts {
        let Some((name, value)) = text.split_once('=') else {
            bail!("--header: no = after the name: give one such as X-Scope-OrgID=team");
        };
        let parsed = name.trim().parse::<HeaderName>();
        let parsed = parsed.with_context(|| format!("--header: {name:?} is not a name of a header"))?;
        ensure!(
            !(has_token && parsed == AUTHORIZATION),
            "--header names a credential, and --prometheus-token-file a token: use one of them"
        );
        let value = HeaderValue::from_str(value.trim());
        let mut value = value.map_err(|_| {
            anyhow::anyhow!(
                "--header: the value of {parsed} has characters that a header cannot have: use ASCII"
            )
        })?;
        value.set_sensitive(true);
        headers.append(parsed, value);
    }
    Ok(headers)
}

pub(super) struct Prometheus(wva_runtime::prometheus::Prometheus);

impl Prometheus {
    /// # Errors
    /// [`WrongOption`].
    pub(super) fn from_options(arguments: &ArgMatches) -> anyhow::Result<Option<Self>> {
        Ok(Self::of(arguments).map_err(WrongOption)?)
    }

    fn of(arguments: &ArgMatches) -> anyhow::Result<Option<Self>> {
        let Some(url) = value(arguments, "prometheus") else { return Ok(None) };
        Kind::Url.parse(url).context("--prometheus")?;
        let read = |name: &str| {
            let Some(path) = path_value(arguments, name) else { return Ok(None) };
            let read = std::fs::read(path).map(Some).map_err(|error| UnreadableFile::new(path, error));
            read.with_context(|| format!("--{name}"))
        };
        // The client accepts a CA file that does not exist yet.
        read("prometheus-ca-file")?;
        let token = read("prometheus-token-file")?.map(String::from_utf8).transpose();
        let token =
            token.context("--prometheus-token-file: not a text file; name the file with the token")?;
        let headers = parse_headers(&values(arguments, "header"), token.is_some())?;
        let ca_path = path_value(arguments, "prometheus-ca-file");
        let client = wva_runtime::prometheus::Prometheus::new(PrometheusConfig {
            base_url: url.to_owned(),
            shown_url: without_password(url),
            ca_path: ca_path.map(|path| path.to_string_lossy().into_owned()),
            bearer_token: token.map(|token| token.trim().to_owned()),
            is_interactive: true,
            ..PrometheusConfig::default()
        });
        let client = client.map_err(|error| match error {
            ClientError::Ca { problem, .. } => anyhow::anyhow!(
                "--prometheus-ca-file: no PEM certificates found; name a file such as ca.crt: {problem}"
            ),
            ClientError::Credentials { url, .. } => anyhow::anyhow!(
                "--prometheus {url} has a user, and --prometheus-token-file names a token: use one of them"
            ),
            other => anyhow::Error::new(other).context("cannot create the Prometheus client"),
        })?;
        Ok(Some(Self(client.with_timeout(TIMEOUT).with_headers(headers))))
    }

    pub(super) async fn series(&self, expression: &str) -> Result<Vec<Series>, String> {
        self.0.query(expression).await.map_err(|error| describe(&error))
    }

    /// Series at the time of the query.
    pub(super) async fn series_at(&self, query: &Query<'_>) -> Result<Vec<Series>, QueryError> {
        self.0.query_at(query).await
    }

    /// Samples over time, and the warning if some may be missing.
    pub(super) async fn samples<S: RangeSink>(
        &self,
        query: &Query<'_>,
        sink: impl Fn() -> S,
    ) -> Result<(S, Option<String>), QueryError> {
        self.0.samples_into(query, sink).await
    }

    /// Sets the timeout, for queries that take longer than those of other commands.
    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        Self(self.0.with_timeout(timeout))
    }
}

/// Error of a query, with what to do.
pub(super) fn describe(error: &QueryError) -> String {
    match error {
        QueryError::Unreachable { cause, fault, has_begun: false, .. } => {
            format!("Prometheus did not answer: {}: {cause}", remedy(fault.as_ref()))
        }
        QueryError::TimedOut { after, .. } => {
            format!("Prometheus did not answer: check --prometheus: it timed out after {after:?}")
        }
        QueryError::Unreachable { cause, .. } => {
            format!("the connection to Prometheus broke during its answer: {cause}")
        }
        QueryError::Refused { status, .. } => {
            let status = StatusCode::from_u16(*status).map_or(status.to_string(), |s| s.to_string());
            format!("Prometheus answered {status}: check --prometheus")
        }
        QueryError::Unreadable { is_json: true, .. } => "the answer of Prometheus is not a vector".to_owned(),
        QueryError::Unreadable { problem, .. } => {
            format!("the answer of Prometheus is not JSON: check --prometheus: {problem}")
        }
        QueryError::TooLong { limit, .. } => {
            format!("the answer of Prometheus has more than {limit} bytes")
        }
        QueryError::Token { .. } => error.to_string(),
    }
}

/// What to do about a Prometheus that does not answer.
fn remedy(fault: Option<&TlsFault>) -> String {
    let text = match fault {
        Some(TlsFault::UnknownIssuer) => {
            "name the CA of its certificate, or that certificate itself, with --prometheus-ca-file"
        }
        Some(TlsFault::OtherName(names)) if !names.is_empty() => {
            return format!("use a name of its certificate in --prometheus, one of {}", names.join(", "));
        }
        Some(TlsFault::OtherName(_)) => "its certificate has no subject alternative name",
        Some(TlsFault::Dates) => "renew its certificate, and compare its dates with this machine's clock",
        Some(TlsFault::NotTls) => "the port does not speak TLS: use http:// in --prometheus",
        _ => "check --prometheus",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::{HeaderMap, Method, Uri};
    use axum::response::{IntoResponse, Redirect, Response};

    use super::*;

    fn client(url: &str) -> anyhow::Result<Option<Prometheus>> {
        let command = options(Command::new("doctor"));
        let header = ["--header", "X-Scope-OrgID=team"];
        let all = [&["doctor", "--prometheus", url][..], &header].concat();
        Prometheus::from_options(&command.get_matches_from(all))
    }

    #[test]
    fn refuses_an_invalid_url_without_printing_its_password() {
        for url in ["ftp://user:pass@prometheus", "prometheus:9090", "http://"] {
            let error = client(url).err().map(|error| format!("{error:#}")).unwrap();
            assert!(error.starts_with("--prometheus: \"") && error.contains("http://"), "{error}");
            assert!(!error.contains("pass@"), "{error}");
        }
    }

    #[test]
    fn names_an_unusable_file() {
        let error = |option: &str, path: &str| {
            let command = options(Command::new("doctor"));
            let url = ["doctor", "--prometheus", "http://localhost:1", option, path];
            let client = Prometheus::from_options(&command.get_matches_from(url));
            client.err().map(|error| format!("{error:#}")).unwrap()
        };
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let unreadable = error("--prometheus-ca-file", "/absent");
        assert!(unreadable.starts_with("--prometheus-ca-file: cannot read /absent: "), "{unreadable}");
        let unreadable = error("--prometheus-token-file", "/absent");
        assert!(unreadable.starts_with("--prometheus-token-file: cannot read /absent: "), "{unreadable}");
        let command = options(Command::new("doctor"));
        let both = ["doctor", "--prometheus", "http://u:hunter2@p", "--prometheus-token-file", own];
        let both = Prometheus::from_options(&command.get_matches_from(both)).err().unwrap().to_string();
        assert_eq!(
            both,
            "--prometheus http://u:***@p has a user, and --prometheus-token-file names a token: use one of them"
        );
        let no_certificate = error("--prometheus-ca-file", own);
        assert!(no_certificate.starts_with("--prometheus-ca-file: no PEM"), "{no_certificate}");
    }

    #[test]
    fn errors_of_headers_show_no_value() {
        let error = |header: &str, more: &[&str]| {
            let all = [&["doctor", "--prometheus", "http://p", "--header", header], more].concat();
            let client = Prometheus::from_options(&options(Command::new("doctor")).get_matches_from(all));
            client.err().map(|error| format!("{error:#}")).unwrap()
        };
        assert!(error("hunter2", &[]).starts_with("--header: no = after the name"));
        assert!(error("a b=hunter2", &[]).starts_with("--header: \"a b\" is not a name"));
        let value = error("X-Key=hun\nter2", &[]);
        assert!(value.contains("the value of x-key") && !value.contains("hun"), "{value}");
        let token = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let both = error("Authorization=Basic x", &["--prometheus-token-file", token]);
        assert!(both.contains("use one of them"), "{both}");
    }

    /// Answers each expression with another kind of response.
    async fn answer(method: Method, uri: Uri, headers: HeaderMap) -> Response {
        assert_eq!(method, Method::GET);
        assert!(headers.get("authorization").is_none());
        assert_eq!(headers.get("x-scope-orgid").unwrap(), "team");
        let query = uri.query().unwrap_or_default();
        let vector = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"pod":"a","odd":"b"},"value":[1,"2.5"]}]}}"#;
        match query.trim_start_matches("query=") {
            "vector" => vector.into_response(),
            "moved" => Redirect::temporary("/elsewhere?query=vector").into_response(),
            "error" => (StatusCode::BAD_REQUEST, "{}").into_response(),
            "failed" => r#"{"status":"error","data":{"result":[]}}"#.into_response(),
            "text" => vector.replace("2.5", "x").into_response(),
            _ => "<html>".into_response(),
        }
    }

    #[tokio::test]
    async fn reads_vectors_and_names_the_option_in_errors() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        let client = client(&url).unwrap().unwrap();
        for expression in ["vector", "moved"] {
            let series = client.series(expression).await.unwrap();
            assert_eq!((series[0].label("pod"), series[0].label("no"), series[0].value), ("a", "", 2.5));
        }
        let no_vector = "the answer of Prometheus is not a vector";
        for (expression, text) in [
            ("error", "Prometheus answered 400 Bad Request: check --prometheus"),
            ("failed", no_vector),
            ("text", no_vector),
            ("html", "the answer of Prometheus is not JSON: check --prometheus: expected value at line 1"),
        ] {
            let error = client.series(expression).await.unwrap_err();
            assert!(error.starts_with(text), "{error}");
        }
        let refused = self::client("http://127.0.0.1:1").unwrap().unwrap().series("x").await.unwrap_err();
        assert!(refused.starts_with("Prometheus did not answer: check --prometheus: "), "{refused}");
    }
}
