//! The exposition as Prometheus reads it.

mod charts;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::fixture::{self, Cluster, decision, key, published, replicas, without_target};
use crate::model::published::ScalingKey;
use crate::observe::variants::Ownership;

/// A controller with `instance`, and a cluster with variant `a` that has the instance label `label`.
struct Scope {
    cluster: Cluster,
    instance: Option<String>,
    /// Series of workloads are published.
    workload: bool,
}

impl Scope {
    fn new(label: Option<&str>, instance: Option<&str>) -> Self {
        let mut cluster = Cluster::new();
        let labels = label.map(|label| json!({"wva.llmd.ai/controller-instance": label}));
        cluster.variant("a", "m", json!({"metadata": {"uid": "u", "labels": labels}}));
        Self { cluster, instance: instance.map(str::to_owned), workload: true }
    }

    fn series(&self, reader: Reader, legacy: bool, progress: CycleProgress) -> VariantSeries {
        let ownership = Ownership { instance: self.instance.clone(), ..Ownership::default() };
        let view = self.cluster.ownership_view(ownership);
        let optional = OptionalSeries { legacy, workload: self.workload };
        VariantSeries::new(reader, view, self.cluster.watches(), optional, progress)
    }

    /// Lines of `/metrics` without comments, sorted.
    fn lines(&self, published: Published, legacy: bool) -> Vec<String> {
        let (_sender, reader) = watch::channel(Some(Arc::new(published)));
        let text = self.series(reader, legacy, CycleProgress::default()).text();
        let mut lines: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

impl VariantSeries {
    /// Empty without a page.
    pub(crate) fn text(&self) -> String {
        let pieces = self.page().unwrap().into_iter().flat_map(PackedText::pieces);
        String::from_utf8(pieces.collect::<io::Result<Vec<_>>>().unwrap().concat()).unwrap()
    }
}

/// Lines of `/metrics` without those for charts only.
fn exported_lines(published: Published, scope: &Scope, legacy: bool) -> Vec<String> {
    let mut lines = scope.lines(published, legacy);
    let is_uncounted = |line: &str| line.contains("_scaling_total{") && line.ends_with(" 0");
    lines.retain(|line| !line.starts_with("wva_variant_") && !is_uncounted(line));
    lines
}

fn publication(variants: Vec<(&str, PublishedVariant)>) -> Published {
    let scaling = ScalingKey { variant: key("a"), direction: "up", reason: "SpareBelowTarget" };
    let scalings = [(scaling, 2)].into();
    Published { scalings, ..fixture::publication(variants) }
}

fn exposed(variants: Vec<(&str, PublishedVariant)>, instance: Option<&str>, legacy: bool) -> Vec<String> {
    exported_lines(publication(variants), &Scope::new(instance, instance), legacy)
}

fn grows(mode: &str) -> PublishedVariant {
    published(decision(json!({"mode": mode, "replicas": replicas(2, 0.78, "1s")}), json!({})))
}

const COUNTER: &str = r#"wva_replica_scaling_total{direction="up",namespace="ns",reason="SpareBelowTarget",variant_name="a"} 2"#;

#[test]
fn a_variant_has_three_gauges_under_both_names() {
    let labels = r#"{accelerator_type="H100",namespace="ns",variant_name="a"}"#;
    let want = [
        format!("inferno_current_replicas{labels} 2"),
        format!("inferno_desired_ratio{labels} 1.5"),
        format!("inferno_desired_replicas{labels} 3"),
        format!("wva_current_replicas{labels} 2"),
        format!("wva_desired_ratio{labels} 1.5"),
        format!("wva_desired_replicas{labels} 3"),
        COUNTER.to_owned(),
        r#"wva_variants{reason="Ready"} 1"#.to_owned(),
    ];
    assert_eq!(exposed(vec![("a", grows("auto"))], None, true), want);
    assert_eq!(exposed(vec![("a", grows("auto"))], None, false), want[3..]);
}

#[test]
fn the_instance_is_a_label_of_all_series() {
    let lines = exposed(vec![("a", grows("auto"))], Some("x"), false);
    let labels = r#"{accelerator_type="H100",controller_instance="x",namespace="ns",variant_name="a"}"#;
    assert_eq!(lines[2], format!("wva_desired_replicas{labels} 3"));
    assert_eq!(
        lines[3],
        r#"wva_replica_scaling_total{controller_instance="x",direction="up",namespace="ns",reason="SpareBelowTarget",variant_name="a"} 2"#
    );
    assert_eq!(lines[4], r#"wva_variants{controller_instance="x",reason="Ready"} 1"#);
}

#[test]
fn without_a_published_target_there_is_no_gauge() {
    for (variant, state) in [(grows("recommend"), "RecommendOnly"), (without_target(), "DeploymentNotFound")]
    {
        let mut lines = exposed(vec![("a", variant)], None, true);
        lines.retain(|line| !line.starts_with("wva_policy_replicas{"));
        assert_eq!(lines, [COUNTER.to_owned(), format!("wva_variants{{reason=\"{state}\"}} 1")]);
    }
}

/// Policies and replicas of `wva_policy_replicas`.
fn policies(mode: &str, entry: &Value) -> Vec<String> {
    let variant = json!({"mode": mode, "max": 8, "replicas": replicas(2, 0.78, "1s")});
    let config = json!({"saturation": {"default": entry}});
    let lines = exposed(vec![("a", published(decision(variant, config)))], None, true);
    let policy = |line: &String| {
        let rest =
            line.strip_prefix(r#"wva_policy_replicas{accelerator_type="H100",namespace="ns",policy=""#)?;
        let (policy, rest) = rest.split_once('"')?;
        Some(format!("{policy} {}", rest.rsplit_once(' ')?.1))
    };
    lines.iter().filter_map(policy).collect()
}

#[test]
fn policies_are_compared_if_one_is_only_shown() {
    let tokens = json!({"shadowAnalyzer": "saturation"});
    assert_eq!(policies("auto", &json!({})), [""; 0]);
    assert_eq!(policies("auto", &json!({"shadowAnalyzer": ""})), [""; 0], "the deciding analyzer");
    assert_eq!(policies("recommend", &json!({})), ["percentage 3", "running 2"]);
    for mode in ["auto", "recommend", "paused", "fixed=7"] {
        assert_eq!(policies(mode, &tokens), ["percentage 3", "running 2", "saturation 2"], "{mode}");
    }
}

#[test]
fn the_ratio_from_zero_is_the_target() {
    for (mode, desired) in [("auto", 0), ("fixed=3", 3)] {
        let variant = published(decision(json!({"mode": mode, "current": 0}), json!({})));
        let lines = exposed(vec![("a", variant)], None, false);
        assert!(
            lines[1].starts_with("wva_desired_ratio{") && lines[1].ends_with(&format!(" {desired}")),
            "{lines:?}"
        );
    }
}

#[test]
fn without_a_publication_there_are_no_series() {
    let (_sender, reader) = watch::channel(None);
    let series = Scope::new(None, None).series(reader, true, CycleProgress::default());
    assert!(series.page().unwrap().is_none());
}

#[test]
fn variants_of_another_controller_are_not_exported() {
    for (label, instance) in [(Some("x"), None), (None, Some("x")), (Some("y"), Some("x"))] {
        let lines = Scope::new(label, instance).lines(publication(vec![("a", grows("auto"))]), true);
        assert_eq!(lines, Vec::<String>::new(), "{label:?} under {instance:?}");
    }
}

#[test]
fn a_variant_taken_over_is_counted_before_it_is_exported() {
    let hour = std::time::Duration::from_hours(1);
    let now = Instant::now();
    for (until, wanted) in [(now + hour, 1), (now, 8)] {
        let mut published = publication(vec![("a", grows("auto"))]);
        published.withheld.insert(key("a"), until);
        let lines = exported_lines(published.clone(), &Scope::new(None, None), true);
        assert_eq!(lines.len(), wanted, "{lines:?}");
        let of_charts = Scope::new(None, None).lines(published, true).len() - lines.len();
        assert_eq!(of_charts > 0, wanted > 1, "{of_charts}");
        assert_eq!(lines.last().map(String::as_str), Some(r#"wva_variants{reason="Ready"} 1"#));
    }
}

#[test]
fn figures_of_the_throughput_analyzer_are_always_exported() {
    for (mode, names) in
        [("auto", ["throughput", ""]), ("recommend", ["throughput", ""]), ("auto", ["", "throughput"])]
    {
        let work = json!([{"age": "1s", "completed": 30, "running": 2}, {"age": "16s", "running": 2}]);
        let replica =
            json!({"pod": "a-0", "kv": 0.3, "queue": 0, "meanInput": 100, "meanOutput": 50, "work": work});
        let [acting, shadow] = names;
        let entry = json!({"analyzerName": acting, "shadowAnalyzer": shadow});
        let config = json!({"saturation": {"default": entry}});
        let variant = published(decision(json!({"mode": mode, "replicas": [replica]}), config));
        let lines = exposed(vec![("a", variant)], None, false);
        let of_variant = r#"{accelerator_type="H100",namespace="ns",variant_name="a"}"#;
        let of_model = r#"{model_name="m",namespace="ns"}"#;
        let figures =
            [("arrivals", of_model, 2), ("forecast", of_model, 2), ("replica_throughput", of_variant, 0)];
        for (name, labels, value) in figures {
            let line = format!("wva_{name}_per_second{labels} {value}");
            assert!(lines.contains(&line), "{line} is not in {lines:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn series_end_when_cycles_stop() {
    let progress = CycleProgress::default();
    let _run = progress.begin(Duration::from_mins(1));
    let published = Some(Arc::new(publication(vec![("a", grows("auto"))])));
    let (_sender, reader) = watch::channel(published);
    let series = Scope::new(None, None).series(reader, false, progress.clone());
    let shown = || series.page().unwrap().is_some();
    tokio::time::advance(Duration::from_mins(5)).await;
    assert!(shown(), "the next cycle may be late");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!shown());
}

#[test]
fn a_page_is_kept_until_another_variant_or_publication_is_shown() {
    let hour = Duration::from_hours(1);
    let mut first = publication(vec![("a", grows("auto"))]);
    first.withheld.insert(key("a"), Instant::now() + hour);
    let (sender, reader) = watch::channel(Some(Arc::new(first.clone())));
    let mut scope = Scope::new(None, None);
    let series = scope.series(reader, false, CycleProgress::default());
    let withheld = series.text();
    let kept = |series: &VariantSeries| std::ptr::from_ref(series.page().unwrap().unwrap().as_ref());
    assert_eq!(kept(&series), kept(&series));
    first.withheld.clear();
    sender.send_replace(Some(Arc::new(first)));
    assert_ne!(series.text(), withheld, "a new publication");
    assert_eq!(kept(&series), kept(&series));
    scope.cluster.variant("a", "m", json!({"metadata": {"uid": "another"}}));
    assert_eq!(series.text(), "", "the object was created again, and no cycle has seen it");
}
