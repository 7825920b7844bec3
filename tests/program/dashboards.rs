//! What Grafana needs of a dashboard, and what its users rely on.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

const FOLDER: &str = "charts/workload-variant-autoscaler/dashboards";

/// All dashboards of the chart, with their file names.
fn dashboards() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let read = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).unwrap();
        (entry.file_name().into_string().unwrap(), serde_json::from_str(&text).unwrap())
    };
    fs::read_dir(folder).unwrap().map(|entry| read(entry.unwrap())).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Every text of a query: of panels, annotations and variables.
fn queries(dashboard: &Value) -> Vec<&str> {
    let panels = list(&dashboard["panels"]).iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let annotations = list(&dashboard["annotations"]["list"]).iter();
    let variables = list(&dashboard["templating"]["list"]).iter();
    let queries = targets.chain(annotations).filter_map(|query| query["expr"].as_str());
    queries.chain(variables.filter_map(|variable| variable["definition"].as_str())).collect()
}

#[test]
fn ids_are_unique_and_panels_do_not_overlap() {
    let mut uids = BTreeSet::new();
    for (file, dashboard) in dashboards() {
        let uid = dashboard["uid"].as_str().unwrap();
        assert!(uid.len() <= 40 && uids.insert(uid.to_owned()), "{file}: {uid}");
        assert!(number(&dashboard["schemaVersion"]) >= 38, "{file} is older than Grafana 10");
        let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for panel in list(&dashboard["panels"]) {
            assert!(ids.insert(number(&panel["id"])), "{file}: id {}", panel["id"]);
            let [h, w, x, y] = ["h", "w", "x", "y"].map(|side| number(&panel["gridPos"][side]));
            assert!(h > 0 && w > 0 && x + w <= 24, "{file}: {}", panel["gridPos"]);
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{file}: {} overlaps another panel", panel["title"]);
            }
        }
    }
    // Bookmarks and links to the first dashboard still open one.
    assert!(uids.contains("workload-variant-autoscaler"), "{uids:?}");
    assert_eq!(uids.len(), 3);
}

const SCRAPED: &str = r#"{job="$job",instance=~"$instance""#;
const RECORDED: &str = r#"{job="$job",namespace="$release_namespace""#;

/// Whether the selectors of wva's own series in a query select one release.
fn selects_one_release(query: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut rest = query;
    while let Some(at) = rest.find("wva_").into_iter().chain(rest.find("process_")).min() {
        rest = &rest[at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        // A recorded series has the namespace of its release, and no instance.
        let is_recorded = rest[..end].contains(':');
        rest = &rest[end..];
        if !rest.starts_with(if is_recorded { RECORDED } else { SCRAPED }) {
            return false;
        }
    }
    true
}

#[test]
fn every_query_selects_one_release() {
    assert!(!selects_one_release(r#"sum(wva_leader{job="$job",instance=~"$instance"}) - sum(wva_leader)"#));
    for (file, dashboard) in dashboards() {
        let queries = queries(&dashboard);
        assert!(queries.len() > 15, "{file}: {queries:?}");
        // These find the releases.
        let chosen = queries.iter().filter(|query| !query.starts_with("label_values(wva_build_info"));
        for query in chosen {
            assert!(selects_one_release(query), "{file}: {query}");
        }
    }
}

#[test]
fn variables_are_defined_before_they_are_used() {
    for (file, dashboard) in dashboards() {
        let mut known = BTreeSet::from(["__range".to_owned(), "__rate_interval".to_owned()]);
        let check = |query: &str, known: &BTreeSet<String>| {
            for after in query.split('$').skip(1) {
                let name: String =
                    after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                assert!(known.contains(&name), "{file}: ${name} in {query}");
            }
        };
        for variable in list(&dashboard["templating"]["list"]) {
            check(variable["definition"].as_str().unwrap_or_default(), &known);
            known.insert(variable["name"].as_str().unwrap().to_owned());
        }
        for query in queries(&dashboard) {
            check(query, &known);
        }
    }
}

#[test]
fn graphs_have_legends_and_stats_have_units() {
    for (file, dashboard) in dashboards() {
        for panel in list(&dashboard["panels"]) {
            let title = &panel["title"];
            match panel["type"].as_str().unwrap() {
                "timeseries" => {
                    for target in list(&panel["targets"]) {
                        assert_ne!(target["legendFormat"], "", "{file}: {title}");
                    }
                    assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{file}: {title}");
                }
                "table" => assert!(panel["transformations"][1]["options"]["renameByName"].is_object()),
                "stat" => assert_eq!(list(&panel["targets"]).len(), 1, "{file}: {title}"),
                kind => assert_eq!(kind, "row", "{file}: {title}"),
            }
        }
    }
}

/// Helm keeps chart and render in a Secret of at most 1 MiB, compressed.
#[test]
fn dashboards_are_small() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let sizes = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    let size: u64 = sizes.sum();
    assert!(size < 150_000, "{size} bytes");
}
