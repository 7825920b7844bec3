//! A dashboard in Grafana's JSON, for Grafana 10 and later.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::source::{Dashboard, Panel, PanelKind, Source, Variable, VariableKind};

/// Grafana 10.0 migrates nothing of this version.
const SCHEMA_VERSION: u32 = 38;

/// Opens the other dashboards with the same time range and variables.
const TAG: &str = "workload-variant-autoscaler";

fn datasource() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

pub(super) fn dashboard(source: &Source, board: &Dashboard) -> Value {
    let variables = board.variables.iter().map(|shown| {
        let (name, variable) = source.variable(shown);
        template_variable(source, name, &variable)
    });
    let runbook = source.expand("@docs/operations/runbook.md");
    json!({
        "uid": board.uid,
        "title": board.title,
        "description": source.expand(&board.about),
        "tags": [TAG, "llm-d", "autoscaling"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "",
        "time": {"from": board.time, "to": "now"},
        "links": [
            {
                "type": "dashboards", "title": "Dashboards", "tags": [TAG], "asDropdown": false, "icon": "external link",
                "includeVars": true, "keepTime": true, "targetBlank": false, "tooltip": "", "url": "",
            },
            {
                "type": "link", "title": "Runbook", "url": runbook, "icon": "doc", "asDropdown": false,
                "includeVars": false, "keepTime": false, "tags": [], "targetBlank": true, "tooltip": "",
            },
        ],
        "templating": {"list": variables.collect::<Value>()},
        "annotations": {"list": annotations(source, board)},
        "panels": panels(source, board),
    })
}

fn template_variable(source: &Source, name: &str, variable: &Variable) -> Value {
    let hide = if variable.label.is_some() { 0 } else { 2 };
    let mut out = json!({"name": name, "label": variable.label, "hide": hide});
    let more = match variable.kind {
        VariableKind::Datasource => json!({"type": "datasource", "query": variable.query, "regex": ""}),
        VariableKind::Adhoc => json!({"type": "adhoc", "datasource": datasource()}),
        VariableKind::Query => {
            let query = source.expand(&variable.query);
            let mut query = json!({
                "type": "query", "datasource": datasource(), "definition": query,
                "query": {"query": query, "refId": name}, "regex": variable.regex,
                // Again for each time range.
                "refresh": 2, "sort": 1, "multi": variable.all, "includeAll": variable.all,
            });
            if variable.all {
                query["current"] = json!({"selected": true, "text": ["All"], "value": ["$__all"]});
            }
            query
        }
    };
    merge(&mut out, more);
    out
}

fn annotations(source: &Source, board: &Dashboard) -> Value {
    let own = json!({
        "builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": true, "hide": true,
        "iconColor": "rgba(0, 211, 255, 1)", "name": "Annotations & Alerts", "type": "dashboard",
    });
    let ours = board.annotations.iter().map(|annotation| {
        json!({
            "name": annotation.name, "datasource": datasource(), "enable": true, "hide": false,
            "iconColor": annotation.color, "expr": source.expand(&annotation.expr), "step": "60s",
            "titleFormat": annotation.title, "textFormat": annotation.text, "tagKeys": "direction,reason",
            "useValueForTime": false,
        })
    });
    std::iter::once(own).chain(ours).collect()
}

/// Rows and their panels, from left to right and from top to bottom.
fn panels(source: &Source, board: &Dashboard) -> Vec<Value> {
    let mut out = Vec::new();
    let mut top = 0;
    for row in &board.rows {
        let place = json!({"h": 1, "w": 24, "x": 0, "y": top});
        out.push(json!({"id": out.len() + 1, "type": "row", "title": row.title, "collapsed": false, "gridPos": place, "panels": []}));
        let (mut left, mut line) = (0, 0);
        top += 1;
        for (width, height, panel) in row.sized() {
            if left + width > 24 {
                (left, top) = (0, top + line);
                line = 0;
            }
            let mut object = json!({
                "id": out.len() + 1, "gridPos": {"h": height, "w": width, "x": left, "y": top},
            });
            merge(&mut object, self::panel(source, panel));
            out.push(object);
            left += width;
            line = line.max(height);
        }
        top += line;
    }
    out
}

fn panel(source: &Source, panel: &Panel) -> Value {
    let (kind, more) = match panel.kind {
        PanelKind::Timeseries => ("timeseries", timeseries(panel)),
        PanelKind::Stat => ("stat", stat(panel)),
        PanelKind::Table => ("table", table(source, panel)),
    };
    let mut out = json!({
        "type": kind, "title": panel.title, "description": source.expand(&panel.about),
        "datasource": datasource(), "targets": targets(source, panel),
    });
    merge(&mut out, more);
    out
}

fn targets(source: &Source, panel: &Panel) -> Vec<Value> {
    let target = |(letter, query): (u8, &super::source::Query)| {
        let instant = panel.kind != PanelKind::Timeseries;
        json!({
            "refId": char::from(letter).to_string(), "datasource": datasource(), "expr": source.expand(&query.expr),
            "legendFormat": source.expand(&query.legend), "instant": instant, "range": !instant,
            "format": if panel.kind == PanelKind::Table { "table" } else { "time_series" },
        })
    };
    (b'A'..=b'Z').zip(&panel.queries).map(target).collect()
}

/// Unit and colours.
fn defaults(panel: &Panel) -> Map<String, Value> {
    let mut defaults = Map::new();
    defaults.insert("unit".to_owned(), panel.unit.as_str().into());
    if let Some(decimals) = panel.decimals {
        defaults.insert("decimals".to_owned(), decimals.into());
    }
    if let Some(max) = panel.max {
        defaults.insert("max".to_owned(), max.into());
    }
    if !panel.thresholds.is_empty() {
        let steps = panel.thresholds.iter().map(|(value, color)| json!({"color": color, "value": value}));
        let thresholds = json!({"mode": "absolute", "steps": steps.collect::<Value>()});
        defaults.insert("thresholds".to_owned(), thresholds);
    }
    defaults
}

fn timeseries(panel: &Panel) -> Value {
    let mut defaults = defaults(panel);
    defaults.insert("min".to_owned(), 0.into());
    defaults.insert("color".to_owned(), json!({"mode": "palette-classic"}));
    let fill = if panel.stacked || panel.bars { 40 } else { 5 };
    let custom = json!({
        "drawStyle": if panel.bars { "bars" } else { "line" },
        "lineInterpolation": if panel.steps { "stepAfter" } else { "linear" },
        "lineWidth": 1, "fillOpacity": fill, "showPoints": "auto", "spanNulls": false,
        "stacking": {"mode": if panel.stacked { "normal" } else { "none" }, "group": "A"},
        "thresholdsStyle": {"mode": if panel.thresholds.is_empty() { "off" } else { "dashed" }},
    });
    defaults.insert("custom".to_owned(), custom);
    json!({
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    })
}

fn stat(panel: &Panel) -> Value {
    let mut defaults = defaults(panel);
    let has_colors = !panel.thresholds.is_empty();
    let color = if has_colors {
        json!({"mode": "thresholds"})
    } else {
        json!({"mode": "fixed", "fixedColor": "text"})
    };
    defaults.insert("color".to_owned(), color);
    json!({
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "colorMode": if has_colors { "background" } else { "none" },
            "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "auto", "wideLayout": true,
            "showPercentChange": false, "percentChangeColorMode": "standard",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
        },
    })
}

/// One row for each value of the labels that all queries have. Columns that the source does not list are hidden.
fn table(source: &Source, panel: &Panel) -> Value {
    let (mut titles, mut order, mut overrides) = (Map::new(), Map::new(), Vec::new());
    for (i, column) in panel.columns.iter().enumerate() {
        let (field, title) = (column[0].as_str(), column[1].as_str());
        let fields: &[&str] =
            if field == "namespace" { &["exported_namespace", "namespace"] } else { &[field] };
        for &field in fields {
            titles.insert(field.to_owned(), title.into());
            order.insert(field.to_owned(), i.into());
        }
        if let Some(board) = column.get(2) {
            overrides.push(link_to(source, board, title));
        }
    }
    let values = match panel.queries.len() {
        1 => vec!["Value".to_owned()],
        more => (b'A'..=b'Z').take(more).map(|letter| format!("Value #{}", char::from(letter))).collect(),
    };
    let hidden: Map<_, _> = std::iter::once("Time".to_owned())
        .chain(values.into_iter().filter(|value| !titles.contains_key(value)))
        .map(|field| (field, true.into()))
        .collect();
    let mut defaults = defaults(panel);
    defaults.insert("custom".to_owned(), json!({"align": "auto", "filterable": true, "inspect": false}));
    json!({
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": {"showHeader": true, "cellHeight": "sm", "frameIndex": 0},
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden, "indexByName": order, "renameByName": titles}},
        ],
    })
}

/// A click on a cell of this column opens a dashboard about the row.
fn link_to(source: &Source, board: &str, column: &str) -> Value {
    let board = source.dashboards.iter().find(|b| b.file == board).unwrap();
    let url = format!(
        "/d/{}?${{datasource:queryparam}}&${{job:queryparam}}&${{release_namespace:queryparam}}\
         &var-namespace=${{__data.fields.Namespace:percentencode}}&var-model=${{__data.fields.Model:percentencode}}\
         &${{__url_time_range}}",
        board.uid
    );
    let links = json!([{"title": board.title, "url": url, "targetBlank": false}]);
    json!({"matcher": {"id": "byName", "options": column}, "properties": [{"id": "links", "value": links}]})
}

fn merge(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// JSON with one line for each panel, variable and annotation: small, and a change shows where it is.
pub(super) fn text(dashboard: &Value) -> String {
    let mut out = "{\n".to_owned();
    let fields = dashboard.as_object().unwrap();
    for (i, (name, value)) in fields.iter().enumerate() {
        let list = |list: &[Value]| {
            let lines: Vec<String> = list.iter().map(|one| format!("    {one}")).collect();
            format!("[\n{}\n  ]", lines.join(",\n"))
        };
        let value = match (name.as_str(), value) {
            ("templating" | "annotations", value) => {
                format!("{{\"list\": {}}}", list(value["list"].as_array().unwrap()))
            }
            ("panels" | "links", Value::Array(all)) => list(all),
            (_, value) => value.to_string(),
        };
        let comma = if i + 1 < fields.len() { "," } else { "" };
        let _ = writeln!(out, "  \"{name}\": {value}{comma}");
    }
    out + "}\n"
}
