//! What Grafana does with a dashboard until it sends queries: it asks Prometheus for the values of the variables, chooses
//! the first or all, and replaces variables in queries. Only what the chart's dashboards use.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use wva_testbed::Testbed;

/// Grafana's interval of a graph, and its `$__rate_interval` for the scrape interval of the testbed, 1 s.
const STEP: &str = "2";
const RATE_INTERVAL: &str = "4s";

/// A query of a panel or an annotation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Query {
    file: String,
    /// Order in the dashboard.
    number: usize,
    title: String,
    pub(super) expr: String,
    instant: bool,
}

impl Query {
    /// Dashboard and title.
    pub(super) fn panel(&self) -> String {
        format!("{}: {}", self.file, self.title)
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | `{}`", self.file, self.title, self.expr)
    }
}

/// Queries of panels, then of annotations.
pub(super) fn queries(file: &str, dashboard: &Value) -> Vec<Query> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let of_panels = panels.flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (&panel["title"], target))
    });
    let annotations = dashboard["annotations"]["list"].as_array().into_iter().flatten();
    let all = of_panels.chain(annotations.map(|annotation| (&annotation["name"], annotation)));
    let with_query = all.enumerate().filter_map(|(number, (title, target))| {
        Some(Query {
            file: file.to_owned(),
            number,
            title: title.as_str()?.to_owned(),
            expr: target["expr"].as_str()?.to_owned(),
            instant: target["instant"] == true,
        })
    });
    with_query.collect()
}

/// An open dashboard.
#[derive(Debug)]
pub(super) struct FakeGrafana {
    prometheus: String,
    client: reqwest::Client,
    /// Text that replaces a variable.
    variables: BTreeMap<String, String>,
    /// Time range, in seconds of Unix time.
    from: f64,
    to: f64,
}

impl FakeGrafana {
    /// Opens a dashboard for a release and the time since `from`.
    pub(super) async fn open(
        testbed: &Testbed,
        dashboard: &Value,
        job: &str,
        from: SystemTime,
    ) -> anyhow::Result<Self> {
        let seconds =
            |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        let (from, to) = (seconds(from), seconds(SystemTime::now()));
        let range = format!("{}s", (to - from).ceil());
        let builtin = [("__range", range.as_str()), ("__rate_interval", RATE_INTERVAL)];
        let mut grafana = Self {
            prometheus: testbed.prometheus_url()?,
            client: reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?,
            variables: builtin.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
            from,
            to,
        };
        for variable in dashboard["templating"]["list"].as_array().context("no variables")? {
            let name = variable["name"].as_str().context("a variable without a name")?;
            if variable["type"] == "query" {
                let values = grafana.values(variable).await.with_context(|| format!("variable {name}"))?;
                ensure!(
                    name != "job" || values.iter().any(|value| value == job),
                    "{job} is not in {values:?}"
                );
                let text = match values.first() {
                    _ if name == "job" => job.to_owned(),
                    _ if variable["multi"] == true => all_of(&values),
                    first => first.cloned().unwrap_or_default(),
                };
                grafana.set(name, &text);
            }
        }
        Ok(grafana)
    }

    /// Sets the text of a variable.
    pub(super) fn set(&mut self, name: &str, text: &str) {
        self.variables.insert(name.to_owned(), text.to_owned());
    }

    /// Text of a variable.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Values of a variable, sorted.
    async fn values(&self, variable: &Value) -> anyhow::Result<Vec<String>> {
        let query = self.replace(variable["query"]["query"].as_str().context("no query")?)?;
        let inner = |function: &str| query.strip_prefix(function).and_then(|rest| rest.strip_suffix(')'));
        let mut values = if let Some(arguments) = inner("label_values(") {
            let (series, label) = arguments.rsplit_once(", ").context("no label")?;
            self.label_values(series, label).await?
        } else if let Some(expr) = inner("query_result(") {
            let regex = variable["regex"].as_str().unwrap_or_default();
            let label = regex.strip_prefix('/').and_then(|r| r.strip_suffix("=\"([^\"]*)\"/"));
            let label = label.with_context(|| format!("this Grafana does not know the regex {regex}"))?;
            let vector = self.ask("query", &[("query", expr), ("time", &self.to.to_string())]).await?;
            let all = vector["result"].as_array().context("no vector")?.iter();
            all.filter_map(|one| one["metric"][label].as_str().map(str::to_owned)).collect()
        } else {
            bail!("this Grafana does not know {query}");
        };
        values.sort();
        Ok(values)
    }

    async fn label_values(&self, series: &str, label: &str) -> anyhow::Result<Vec<String>> {
        let (from, to) = (self.from.to_string(), self.to.to_string());
        let range = [("match[]", series), ("start", &from), ("end", &to)];
        let values = self.ask(&format!("label/{label}/values"), &range).await?;
        Ok(serde_json::from_value(values)?)
    }

    /// Replaces `$name` and `${name}`.
    fn replace(&self, text: &str) -> anyhow::Result<String> {
        let mut parts = text.split('$');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let bare = part.strip_prefix('{').unwrap_or(part);
            let end = bare.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(bare.len());
            let (name, rest) = bare.split_at(end);
            out += self.value(name).with_context(|| format!("${name} is not defined: {text}"))?;
            out += if bare.len() < part.len() { rest.strip_prefix('}').context("no }")? } else { rest };
        }
        Ok(out)
    }

    /// Samples of a query that are numbers.
    pub(super) async fn samples(&self, query: &Query) -> anyhow::Result<usize> {
        let expr = self.replace(&query.expr)?;
        let (from, to) = (self.from.to_string(), self.to.to_string());
        let answer = if query.instant {
            self.ask("query", &[("query", expr.as_str()), ("time", &to)]).await
        } else {
            let range = [("query", expr.as_str()), ("start", &from), ("end", &to), ("step", STEP)];
            self.ask("query_range", &range).await
        };
        let answer = answer.with_context(|| query.to_string())?;
        let series = answer["result"].as_array().context("no result")?.iter();
        let values = series.flat_map(|one| match &one["values"] {
            Value::Array(values) => values.iter().collect(),
            _ => vec![&one["value"]],
        });
        Ok(values.filter(|value| value[1].as_str().is_some_and(|number| number != "NaN")).count())
    }

    async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> anyhow::Result<Value> {
        let url = format!("{}/api/v1/{path}", self.prometheus);
        let answer = self.client.get(url).query(parameters).send().await?;
        let mut body: Value = answer.json().await.context("Prometheus did not answer with JSON")?;
        ensure!(body["status"] == "success", "Prometheus refuses {parameters:?}: {body}");
        Ok(body["data"].take())
    }
}

/// A regular expression for all values, in a string of PromQL.
fn all_of(values: &[String]) -> String {
    let escape = |value: &String| {
        value
            .chars()
            .map(|c| if r"\^$*+?.()|[]{}".contains(c) { format!(r"\\{c}") } else { c.to_string() })
            .collect()
    };
    let escaped: Vec<String> = values.iter().map(escape).collect();
    format!("({})", escaped.join("|"))
}
