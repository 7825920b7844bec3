//! Fields of `charts/dashboards.yaml`.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    /// Text by the word for it, such as `@release`.
    words: BTreeMap<String, String>,
    pub(super) variables: BTreeMap<String, Variable>,
    pub(super) dashboards: Vec<Dashboard>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    /// A variable without one is hidden.
    pub(super) label: Option<String>,
    #[serde(rename = "type", default)]
    pub(super) kind: VariableKind,
    #[serde(default)]
    pub(super) query: String,
    /// Regular expression whose first group is the value.
    #[serde(default)]
    pub(super) regex: String,
    /// Several values may be selected, at first all.
    #[serde(default)]
    pub(super) all: bool,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum VariableKind {
    #[default]
    Query,
    Datasource,
    Adhoc,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dashboard {
    /// File name without extension.
    pub(super) file: String,
    pub(super) uid: String,
    pub(super) title: String,
    pub(super) about: String,
    /// Start of the time range, such as `now-3h`.
    pub(super) time: String,
    pub(super) variables: Vec<VariableUse>,
    #[serde(default)]
    pub(super) annotations: Vec<Annotation>,
    pub(super) rows: Vec<Row>,
}

/// A variable as a dashboard shows it.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum VariableUse {
    Plain(String),
    Changed {
        name: String,
        #[serde(default)]
        hidden: bool,
        #[serde(default)]
        all: bool,
    },
}

/// Marks in all graphs of a dashboard while the expression is above 0.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Annotation {
    pub(super) name: String,
    pub(super) color: String,
    pub(super) expr: String,
    pub(super) title: String,
    pub(super) text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) kind: PanelKind,
    #[serde(default)]
    pub(super) about: String,
    /// Columns of the grid, up to 24.
    pub(super) width: Option<u32>,
    #[serde(default = "short")]
    pub(super) unit: String,
    pub(super) decimals: Option<u32>,
    /// Top of the axis.
    pub(super) max: Option<f64>,
    /// Colours from these values up; the first has no value.
    #[serde(default)]
    pub(super) thresholds: Vec<(Option<f64>, String)>,
    #[serde(default)]
    pub(super) stacked: bool,
    /// Values hold until the next one: no slopes.
    #[serde(default)]
    pub(super) steps: bool,
    #[serde(default)]
    pub(super) bars: bool,
    /// Field, title, and optionally the dashboard that a click opens.
    #[serde(default)]
    pub(super) columns: Vec<Vec<String>>,
    pub(super) queries: Vec<Query>,
    /// Why the end-to-end test finds no data.
    #[serde(default)]
    #[expect(dead_code, reason = "the end-to-end test reads it")]
    empty: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum PanelKind {
    Timeseries,
    Stat,
    Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    pub(super) expr: String,
    /// Empty for stats and tables.
    #[serde(default)]
    pub(super) legend: String,
}

fn short() -> String {
    "short".to_owned()
}

impl Source {
    pub(super) fn read() -> Self {
        serde_saphyr::from_str(include_str!("../../../charts/dashboards.yaml")).unwrap()
    }

    /// The text with all words replaced.
    pub(super) fn expand(&self, text: &str) -> String {
        replace(text, &|word| match self.words.get(word) {
            Some(meaning) => self.expand(meaning),
            None if word == "@docs" => concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs").to_owned(),
            None => panic!("charts/dashboards.yaml has no word {word}: {text}"),
        })
    }

    /// The text as the page shows it: `{...}` in place of the usual matchers, and parts by their words.
    pub(super) fn abbreviate(&self, text: &str) -> String {
        let short = |word: &str| match self.words.get(word) {
            _ if word == "@key" => "namespace, variant_name".to_owned(),
            Some(meaning) if !is_part(meaning) => "...".to_owned(),
            _ => word.to_owned(),
        };
        replace(text, &short).replace("$namespace_label", "namespace")
    }

    /// Parts of queries by their words, as the page shows them.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&str, String)> {
        let parts = self.words.iter().filter(|(_, meaning)| is_part(meaning));
        parts.map(|(word, meaning)| (word.as_str(), self.abbreviate(meaning)))
    }

    /// A variable as this dashboard shows it, with its name.
    pub(super) fn variable<'a>(&'a self, shown: &'a VariableUse) -> (&'a str, Variable) {
        let (name, hidden, all) = match shown {
            VariableUse::Plain(name) => (name, false, false),
            VariableUse::Changed { name, hidden, all } => (name, *hidden, *all),
        };
        let mut variable = self.variables[name].clone();
        variable.label = variable.label.filter(|_| !hidden);
        variable.all |= all;
        (name, variable)
    }
}

/// Replaces words such as `@release`.
fn replace(text: &str, meaning: &dyn Fn(&str) -> String) -> String {
    let Some((before, rest)) = text.split_once('@') else { return text.to_owned() };
    let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
    let (word, rest) = rest.split_at(end);
    format!("{before}{}{}", meaning(&format!("@{word}")), replace(rest, meaning))
}

/// Whether the text for a word is an expression, not only matchers, labels or a legend.
fn is_part(meaning: &str) -> bool {
    meaning.contains('(') || meaning.contains("{__name__")
}

impl Row {
    /// Width, height and panel, in order.
    pub(super) fn sized(&self) -> impl Iterator<Item = (u32, u32, &Panel)> {
        let count = |kind| self.panels.iter().filter(|panel| panel.kind == kind).count();
        let stats = u32::try_from(count(PanelKind::Stat)).unwrap().max(1);
        // At most six stats, and two or three graphs, in a line.
        let stat_width = 24 / if stats > 6 { stats.div_ceil(2) } else { stats };
        let graph_width = if count(PanelKind::Timeseries).is_multiple_of(3) { 8 } else { 12 };
        self.panels.iter().map(move |panel| {
            let (width, height) = match panel.kind {
                PanelKind::Stat => (stat_width, 4),
                PanelKind::Timeseries => (graph_width, 8),
                PanelKind::Table => (24, 8),
            };
            (panel.width.unwrap_or(width), height, panel)
        })
    }
}
