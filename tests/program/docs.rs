//! Markdown of the repository: every link has a target, the summary of the site has every page, and every name in
//! the pages exists: of a rule, alert, metric, setting, chart value, make target or file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

/// Folders without sources.
const SKIPPED: [&str; 3] = ["target", ".git", ".cargo"];
/// Upper-case names in the pages that no source has, each with its origin.
const OTHER_NAMES: [&str; 4] = [
    "MALLOC_",         // the variables of glibc that begin so
    "MALLOC_TOP_PAD_", // of glibc; a page explains why wva does not set it
    "WVA_IMAGE",       // a variable of an example for CI
    "WVA_RELEASE",     // in the README of llm-d WVA
];
const CHART: &str = "charts/workload-variant-autoscaler";

/// Text files of the repository by path.
type Files = BTreeMap<String, String>;

static FILES: LazyLock<Files> = LazyLock::new(|| {
    let mut files = Files::new();
    read_folder(root(), "", &mut files);
    files
});

#[test]
fn every_link_has_a_target() {
    let (mut dead, mut checked) = (Vec::new(), 0);
    for (path, text) in FILES.iter().filter(|(path, _)| extension(path) == "md") {
        for link in links(text) {
            checked += 1;
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if target.is_empty() { path.clone() } else { resolve(path, target) };
            if !root().join(&target).exists() {
                dead.push(format!("{path}: {link}"));
            } else if !anchor.is_empty() && FILES.get(&target).is_some_and(|t| !anchors(t).contains(anchor)) {
                dead.push(format!("{path}: no heading for {link}"));
            }
        }
    }
    println!("{checked} links checked");
    assert!(dead.is_empty(), "links without a target:\n{}", dead.join("\n"));
}

/// By its heading, so that a reader of the sidebar recognizes the page.
#[test]
fn summary_has_every_page_once() {
    let summary = &FILES["docs/SUMMARY.md"];
    let pages: Vec<_> = pages().collect();
    assert!(pages.len() > 100, "{} pages", pages.len());
    for (path, text) in pages {
        let (heading, path) = (text.lines().next().unwrap(), path.trim_start_matches("docs/"));
        let times = summary.matches(&format!("({path})")).count();
        assert_eq!(times, 1, "{path} is {times} times in docs/SUMMARY.md");
        let entry = format!("[{}]({path})", heading.trim_start_matches("# "));
        assert!(summary.contains(&entry), "docs/SUMMARY.md does not have {entry}");
    }
}

#[test]
fn every_docs_path_in_a_source_exists() {
    let of_path = |c: char| c.is_ascii_alphanumeric() || "/_.{}-".contains(c);
    let mut missing = BTreeSet::new();
    for (path, text) in FILES.iter() {
        for token in text.split(|c| !of_path(c)) {
            let is_page = token.starts_with("docs/") && ["md", "svg"].contains(&extension(token));
            if is_page && !token.contains('{') && !root().join(token).exists() {
                missing.insert(format!("{path}: {token}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_metric_and_setting_in_the_pages_exists() {
    let known = product_words();
    let mut missing = BTreeSet::new();
    for (path, text) in pages() {
        let metrics = words(text).filter(|word| word.starts_with("wva_") || word.starts_with("inferno_"));
        for metric in metrics.filter(|word| !word.ends_with('_')) {
            let ends = ["_bucket", "_sum", "_count"];
            let name = ends.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
            if !known.contains(metric) && !known.contains(name) {
                missing.insert(format!("{path}: {metric}"));
            }
        }
        let names = code_spans(text).flat_map(words).filter(|word| is_setting(word));
        missing.extend(
            names
                .filter(|name| !known.contains(name) && !OTHER_NAMES.contains(name))
                .map(|name| format!("{path}: {name}")),
        );
    }
    assert!(known.contains("wva_desired_replicas") && known.contains("PROMETHEUS_BASE_URL"));
    assert!(missing.is_empty(), "no source has {missing:#?}");
}

#[test]
fn every_alert_and_rule_in_the_pages_exists() {
    let templates = FILES.iter().filter(|(path, _)| path.starts_with(CHART) && extension(path) == "yaml");
    let lines = templates.flat_map(|(_, text)| text.lines());
    // A template's own line has no name.
    let alerts = lines.filter_map(|line| line.trim().strip_prefix("- alert: ")).filter(|name| is_alert(name));
    let alerts: BTreeSet<&str> = alerts.collect();
    assert!(alerts.contains("WVANoLeader"), "{alerts:?}");
    let mut missing = BTreeSet::new();
    for (path, text) in pages() {
        for alert in words(text).filter(|word| is_alert(word) && !alerts.contains(word)) {
            missing.insert(format!("{path}: {alert}"));
        }
        let codes = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let is_code = |code: &&str| code.starts_with("WVA-") && code.ends_with(|c: char| c.is_ascii_digit());
        for code in codes.filter(is_code) {
            if !FILES.contains_key(&format!("docs/reference/rules/{code}.md")) {
                missing.insert(format!("{path}: {code}"));
            }
        }
    }
    let runbook = FILES.get("docs/operations/runbook.md").map(String::as_str).unwrap_or_default();
    // The anchor of `runbook_url`.
    let sections = anchors(runbook);
    for alert in &alerts {
        let anchor = alert.to_lowercase();
        if !sections.contains(&anchor) || !runbook.contains(&format!("| [{alert}](#{anchor}) | ")) {
            missing.insert(format!("no section, or no row of the table, of the runbook: {alert}"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_chart_value_in_the_pages_exists() {
    let schema: Value = serde_json::from_str(&FILES[&format!("{CHART}/values.schema.json")]).unwrap();
    let mut missing = BTreeSet::new();
    let mut found = 0;
    for (path, text) in pages() {
        for span in code_spans(text) {
            let key = span.split(['=', ':', ' ']).next().unwrap_or_default();
            let first = key.split('.').next().unwrap_or_default();
            let is_key = key.chars().all(|c| c.is_ascii_alphabetic() || c == '.')
                && key.contains('.')
                && !["yaml", "json", "md", "rs"].contains(&extension(key))
                && schema["properties"].get(first).is_some();
            if is_key {
                found += 1;
                if !has_value(&schema, key) {
                    missing.insert(format!("{path}: {key}"));
                }
            }
        }
    }
    assert!(found > 20, "{found} chart values");
    assert!(missing.is_empty(), "not in values.schema.json: {missing:#?}");
}

/// The chart's README says that any other key fails the install.
#[test]
fn every_chart_value_is_in_its_table() {
    let schema: Value = serde_json::from_str(&FILES[&format!("{CHART}/values.schema.json")]).unwrap();
    let mut undocumented = Vec::new();
    collect_undocumented("", &schema, &FILES[&format!("{CHART}/README.md")], &mut undocumented);
    // Without effect, as the README says.
    assert_eq!(undocumented, ["enabled", "wva.capacityScaling.default.optimizer"]);
}

/// Keys of the schema that are neither in the table nor old names.
fn collect_undocumented(path: &str, schema: &Value, readme: &str, undocumented: &mut Vec<String>) {
    let is_old = schema["description"].as_str().is_some_and(|text| text.contains("older values files"));
    if is_old || (!path.is_empty() && readme.contains(&format!("\n| {path} |"))) {
        return;
    }
    let Some(properties) = schema["properties"].as_object() else {
        undocumented.push(path.to_owned());
        return;
    };
    for (key, inner) in properties {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        collect_undocumented(&path, inner, readme, undocumented);
    }
}

#[test]
fn every_make_target_and_file_in_the_pages_exists() {
    let before = |text: &'static str, end| text.split_once(end).map(|(start, _)| start);
    let targets: BTreeSet<&str> = FILES["Makefile"].lines().filter_map(|line| before(line, ':')).collect();
    let folders: BTreeSet<&str> = FILES.keys().filter_map(|path| before(path, '/')).collect();
    let mut missing = BTreeSet::new();
    for (path, text) in pages() {
        for span in code_spans(text) {
            if let Some(rest) = span.strip_prefix("make ") {
                let target = rest.split(char::is_whitespace).next().unwrap_or_default();
                if !targets.contains(target) {
                    missing.insert(format!("{path}: make {target}"));
                }
            }
            let of_path = |c: char| c.is_ascii_alphanumeric() || "/_.-".contains(c);
            let tokens = span.split(|c| !of_path(c)).map(|token| token.trim_end_matches(['/', '.']));
            let is_path = |token: &&str| {
                token.split_once('/').is_some_and(|(top, _)| folders.contains(top))
                    && !token.contains("NAME")
                    && !span.starts_with("kubectl")
            };
            for token in tokens.filter(is_path) {
                // Some pages name files of the controller by their path below `controller/src`.
                let places = [token.to_owned(), format!("{token}.rs"), format!("controller/src/{token}")];
                if !places.iter().any(|place| root().join(place).exists()) {
                    missing.insert(format!("{path}: {token}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The page of queries has every value of the label `query`.
#[test]
fn every_query_is_documented() {
    let names = FILES["controller/src/collect/signals.rs"].split_once("fn name(self)").unwrap().1;
    let names = names.split_once("fn expression").unwrap().0.split('"').skip(1).step_by(2);
    let queries: Vec<&str> = names.chain(["completed"]).collect();
    assert!(queries.contains(&"kv_usage") && queries.len() > 10, "{queries:?}");
    let page = &FILES["docs/reference/queries.md"];
    let missing: Vec<_> = queries.iter().filter(|query| !page.contains(&format!("`{query}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/queries.md lacks {missing:?}");
}

/// `-o wide` shows more only if the CRD has columns of a lower priority.
#[test]
fn wide_output_is_advised_only_with_wide_columns() {
    let has_wide_columns = FILES["crds/llmd.ai_variantautoscalings.yaml"].contains("priority: 1");
    for (path, text) in pages() {
        let advised = text.lines().any(|line| line.contains("get va") && line.contains("-o wide"));
        assert!(has_wide_columns || !advised, "{path} advises -o wide");
    }
}

#[test]
fn finds_links_anchors_and_code_spans() {
    let block = "```sh\n# no heading\n[n](m)\n```";
    let text = &format!("# A `b` c.d!\n\n[x](y.md#z) `[not](a)` [w](https://w)\n\n{block}\n\n# A b cd\n");
    assert_eq!(links(text).collect::<Vec<_>>(), ["y.md#z"]);
    assert_eq!(anchors(text), BTreeSet::from(["a-b-cd".to_owned(), "a-b-cd-1".to_owned()]));
    assert_eq!(code_spans(text).collect::<Vec<_>>(), ["b", "[not](a)"]);
    assert_eq!(resolve("a/b/c.md", "../../c/d.md"), "c/d.md");
    assert!(is_alert("WVANoLeader") && is_alert("WvaX1y") && !is_alert("WVA") && !is_alert("WVA_X"));
    assert!(is_setting("LOG_LEVEL") && !is_setting("H100") && !is_setting("A_b"));
}

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Reads the text files of a folder. `prefix` is its path with a final slash.
fn read_folder(folder: &Path, prefix: &str, files: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        if entry.file_type().unwrap().is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                read_folder(&entry.path(), &format!("{path}/"), files);
            }
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.insert(path, text);
        }
    }
}

/// Pages of the site.
pub(super) fn pages() -> impl Iterator<Item = (&'static String, &'static String)> {
    FILES.iter().filter(|(path, _)| {
        path.starts_with("docs/") && extension(path) == "md" && *path != "docs/SUMMARY.md"
    })
}

fn extension(path: &str) -> &str {
    Path::new(path).extension().and_then(OsStr::to_str).unwrap_or_default()
}

/// Words of all sources except Markdown, traces and this test.
fn product_words() -> BTreeSet<&'static str> {
    let is_source = |path: &str| {
        let other = ["docs/", "tests/traces/", "tests/program/docs.rs"];
        extension(path) != "md" && !other.iter().any(|start| path.starts_with(start))
    };
    FILES.iter().filter(|(path, _)| is_source(path)).flat_map(|(_, text)| words(text)).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// An upper-case name with an underscore, such as `LOG_LEVEL`.
fn is_setting(word: &str) -> bool {
    word.contains('_')
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// `WVA` or `Wva`, then words in camel case.
fn is_alert(word: &str) -> bool {
    let Some(rest) = word.strip_prefix("WVA").or_else(|| word.strip_prefix("Wva")) else { return false };
    rest.starts_with(|c: char| c.is_ascii_uppercase()) && rest.contains(|c: char| c.is_ascii_lowercase())
}

/// Whether the schema of values has this key. Below an object without listed keys, every key is allowed.
fn has_value(schema: &Value, key: &str) -> bool {
    let mut at = schema;
    for part in key.split('.') {
        at = at["allOf"].get(0).unwrap_or(at);
        if let Some(definition) = at["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
            at = schema.pointer(definition).unwrap();
        }
        let Some(properties) = at.get("properties") else { return at["type"] == "object" };
        let Some(next) = properties.get(part) else { return false };
        at = next;
    }
    true
}

/// Paragraphs outside code blocks.
fn paragraphs(text: &str) -> impl Iterator<Item = &str> {
    // Every second part is a block; it starts with the name of its language.
    text.split("```").step_by(2).flat_map(|part| part.split("\n\n"))
}

fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    paragraphs(text).flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2))
}

/// Targets of links to files and headings of the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = paragraphs(text).flat_map(|paragraph| paragraph.split('`').step_by(2));
    let targets = prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// Anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let headings = text.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    for heading in headings {
        let heading = heading.trim_start_matches('#').trim();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let numbered = (1..).map(|n| format!("{anchor}-{n}"));
        let unique = std::iter::once(anchor.clone()).chain(numbered).find(|name| !all.contains(name));
        all.extend(unique);
    }
    all
}

/// The path of a link in a file.
fn resolve(file: &str, link: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}
