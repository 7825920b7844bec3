//! Which settings hold for a model, layer by layer, and what is left when a layer is wrong or goes.

use prometheus::Registry;
use serde_json::json;
use wva_crds::entries::{Millis, Saturation};
use wva_rules::MapNames;
use wva_scaling::resolve::Entries;
use wva_scaling::snapshot::{Model, Snapshot};

use super::*;
use crate::config::testing::{Feed, SYSTEM};
use crate::fixture::Cluster;
use crate::observe::variants::{Ownership, managed};

const GLOBAL: &str = "wva/wva-saturation-scaling-config";
const LOCAL: &str = "ns/wva-saturation-scaling-config";

/// Model `m` in the namespaces `ns` and `other`, its maps, and what an engine makes of them.
struct Bench {
    cluster: Cluster,
    feed: Feed,
    settings: Settings,
    proactive: bool,
    reloads: ConfigReloads,
}

impl Bench {
    fn new() -> Self {
        Self::fed(Feed::new())
    }

    fn fed(feed: Feed) -> Self {
        let mut cluster = Cluster::new();
        cluster.variant("a", "m", json!({})).variant("b", "m", json!({"metadata": {"namespace": "other"}}));
        let reloads = ConfigReloads::register(&Registry::new()).unwrap();
        Self { cluster, feed, settings: Settings::default(), proactive: false, reloads }
    }

    fn resolve(&mut self) -> BTreeMap<String, SaturationEntry> {
        self.config().saturation
    }

    fn config(&mut self) -> RulesConfig {
        let watches = self.cluster.watches();
        let managed = managed(&watches, &Ownership::default());
        let namespaces = watches.namespaces.as_ref();
        self.settings.resolve(&self.feed.maps(), &managed, namespaces, &self.reloads, self.proactive)
    }

    /// The thresholds of an entry: KV, queue, spare KV, spare queue.
    #[track_caller]
    fn check(&mut self, key: &str, want: [f64; 4]) {
        let s = Saturation::of(&self.resolve()[key]);
        let found =
            [s.kv_cache_threshold, s.queue_length_threshold, s.kv_spare_trigger, s.queue_spare_trigger];
        assert_eq!(format!("{found:?}"), format!("{want:?}"), "{key}");
    }
}

#[test]
fn the_more_specific_entry_wins_field_by_field() {
    let mut bench = Bench::new();
    bench.check("ns/m", [0.8, 5.0, 0.1, 3.0]);
    let global = [
        (
            "default",
            "{kvCacheThreshold: 0.7, queueLengthThreshold: 7, kvSpareTrigger: 0.07, queueSpareTrigger: 7}",
        ),
        ("wide", "model_id: m\nqueueLengthThreshold: 8\nkvSpareTrigger: 0.08\nqueueSpareTrigger: 8"),
        ("narrow", "model_id: m\nnamespace: ns\nkvSpareTrigger: 0.09\nqueueSpareTrigger: 9"),
        ("another", "model_id: z\nkvCacheThreshold: 0.1"),
    ];
    bench.feed.put(GLOBAL, &global);
    bench.check("ns/m", [0.7, 8.0, 0.09, 9.0]);
    bench.check("other/m", [0.7, 8.0, 0.08, 8.0]);
    bench.check("default", [0.7, 7.0, 0.07, 7.0]);
    // The namespace's own default is over every global entry, and its entry for the model over that.
    bench.feed.put(LOCAL, &[("default", "kvSpareTrigger: 0.11\nqueueSpareTrigger: 11")]);
    bench.check("ns/m", [0.7, 8.0, 0.11, 11.0]);
    bench
        .feed
        .put(LOCAL, &[("default", "kvSpareTrigger: 0.11"), ("m", "model_id: m\nqueueSpareTrigger: 12")]);
    bench.check("ns/m", [0.7, 8.0, 0.11, 12.0]);
    bench.check("other/m", [0.7, 8.0, 0.08, 8.0]);
    // What goes leaves what is below it, at once.
    bench.feed.delete(GLOBAL);
    bench.check("ns/m", [0.8, 5.0, 0.11, 12.0]);
    bench.check("other/m", [0.8, 5.0, 0.1, 3.0]);
    bench.feed.put(GLOBAL, &global);
    bench.feed.delete(LOCAL);
    bench.check("ns/m", [0.7, 8.0, 0.09, 9.0]);
}

#[test]
fn decides_by_throughput_where_no_saturation_map_is_read() {
    use AnalyzerName::{Percentage, Throughput, Tokens};
    let mut bench = Bench::new();
    let check = |bench: &mut Bench, want: [AnalyzerName; 3]| {
        let entries = bench.resolve();
        let found = ["ns/m", "other/m", "default"].map(|key| entries[key].analyzer_name);
        assert_eq!(found, want.map(Some));
    };
    check(&mut bench, [Throughput; 3]);
    // An entry that names no analyzer means percentages, and so does a map without an entry for the model.
    bench.feed.put(LOCAL, &[("default", "kvSpareTrigger: 0.11")]);
    check(&mut bench, [Percentage, Throughput, Throughput]);
    bench.feed.put(GLOBAL, &[("another", "model_id: z\nanalyzerName: throughput")]);
    check(&mut bench, [Percentage; 3]);
    bench.feed.put(GLOBAL, &[("default", "analyzerName: token")]);
    check(&mut bench, [Tokens; 3]);
    bench.feed.delete(GLOBAL);
    bench.feed.delete(LOCAL);
    check(&mut bench, [Throughput; 3]);
}

#[test]
fn scale_to_zero_is_resolved_in_the_same_layers() {
    let mut bench = Bench::new();
    let (global, local) = ("wva/wva-model-scale-to-zero-config", "ns/wva-model-scale-to-zero-config");
    let check = |bench: &mut Bench, namespace: &str, unless_said: bool, want: (bool, u64)| {
        let config = RulesConfig { scale_to_zero_default: unless_said, ..bench.config() };
        let found = Entries::of(&config).scale_to_zero(namespace, "m");
        assert_eq!((found.enabled, found.retention.get().as_secs()), want, "{namespace}");
    };
    assert!(bench.config().scale_to_zero.is_empty(), "nobody wrote anything");
    check(&mut bench, "ns", true, (true, 600));
    let older = "wva/model-scale-to-zero-config";
    bench.feed.put(older, &[("default", "enable_scale_to_zero: true\nretention_period: 1m")]);
    check(&mut bench, "ns", false, (true, 60));
    let entries = [
        ("default", "enable_scale_to_zero: true\nretention_period: 2m"),
        ("narrow", "model_id: m\nnamespace: other\nretention_period: 3m"),
    ];
    bench.feed.put(global, &entries);
    check(&mut bench, "ns", false, (true, 120));
    check(&mut bench, "other", false, (true, 180));
    check(&mut bench, "elsewhere", false, (true, 120));
    bench.feed.put(local, &[("m", "model_id: m\nenable_scale_to_zero: false")]);
    check(&mut bench, "ns", true, (false, 120));
    check(&mut bench, "other", false, (true, 180));
    // What goes leaves what is below it, at once.
    bench.feed.delete(global);
    check(&mut bench, "ns", true, (false, 60));
    bench.feed.delete(older);
    check(&mut bench, "ns", true, (false, 600));
    check(&mut bench, "other", true, (true, 600));
    assert_eq!(bench.config().scale_to_zero.len(), 1);
}

#[test]
fn of_the_global_names_the_first_that_exists_is_read_alone() {
    let names = MapNames { namespace: SYSTEM.into(), saturation: "mine".into(), ..MapNames::default() };
    let mut bench = Bench::fed(Feed::named(names));
    let entry = |n: u32| format!("queueSpareTrigger: {n}");
    let names =
        ["capacity-scaling-config", "saturation-scaling-config", "wva-saturation-scaling-config", "mine"];
    for (n, name) in (10..).zip(names) {
        bench.feed.put(&format!("wva/{name}"), &[("default", &entry(n))]);
        bench.check("ns/m", [0.8, 5.0, 0.1, f64::from(n)]);
    }
    for (n, name) in (10..13).zip(names).rev() {
        bench.feed.delete(&format!("wva/{}", names[usize::try_from(n - 10).unwrap() + 1]));
        bench.check("ns/m", [0.8, 5.0, 0.1, f64::from(n)]);
        assert!(!bench.settings.saturation.behind.contains(&name.to_owned()));
    }
    assert!(bench.settings.saturation.behind.is_empty());
}

#[test]
fn a_namespace_has_a_map_of_its_own_where_it_has_variants_or_the_label_and_is_not_excluded() {
    let mut bench = Bench::new();
    let local = |bench: &mut Bench| -> Vec<String> {
        bench.resolve();
        bench.settings.saturation.local.keys().map(ToString::to_string).collect()
    };
    for namespace in ["ns", "opted-in", "opted-out", "nobody", "excluded"] {
        bench.feed.put(&format!("{namespace}/wva-saturation-scaling-config"), &[("default", "")]);
    }
    let label = |value: &str| json!({"labels": {"wva.llmd.ai/config-enabled": value}});
    bench.cluster.namespace("opted-in", label("true")).namespace("opted-out", label("false"));
    let mut excluded = label("true");
    excluded["annotations"] = json!({"wva.llmd.ai/exclude": "true"});
    bench.cluster.namespace("excluded", excluded.clone());
    assert_eq!(local(&mut bench), ["ns", "opted-in"]);
    bench.cluster.namespace("ns", excluded);
    assert_eq!(local(&mut bench), ["opted-in"], "its variants are not managed any more");
    assert!(!bench.resolve().contains_key("ns/m"));
}

#[test]
fn a_layer_that_contradicts_what_it_inherits_is_left_out_for_those_it_concerns() {
    let mut bench = Bench::new();
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: 0.5")]);
    bench.feed.put(LOCAL, &[("default", "kvSpareTrigger: 0.6\nqueueSpareTrigger: 4")]);
    bench.check("ns/m", [0.5, 5.0, 0.1, 3.0]);
    let told: Vec<_> = bench.settings.left_out.iter().cloned().collect();
    let want = "the saturation entry \"ns/wva-saturation-scaling-config[default]\" is left out: kvSpareTrigger 0.6 is above kvCacheThreshold 0.5";
    assert_eq!(told, [want]);
    assert!(bench.settings.unusable.is_empty(), "the global default is left");
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: 0.7")]);
    bench.check("ns/m", [0.7, 5.0, 0.6, 4.0]);
    assert!(bench.settings.left_out.is_empty());
}

#[test]
fn where_nothing_written_can_be_used_the_defaults_hold_and_it_is_said() {
    let unusable = |bench: &mut Bench| -> Vec<String> {
        bench.resolve();
        bench.settings.unusable.keys().cloned().collect()
    };
    let mut bench = Bench::new();
    assert!(unusable(&mut bench).is_empty(), "nobody wrote anything");
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: high")]);
    assert_eq!(unusable(&mut bench), ["ns/m", "other/m"]);
    bench.check("ns/m", [0.8, 5.0, 0.1, 3.0]);
    bench.feed.put(LOCAL, &[("default", "queueSpareTrigger: 4")]);
    assert_eq!(unusable(&mut bench), ["other/m"]);
    bench.feed.put(LOCAL, &[("default", "kvSpareTrigger: 0.9")]);
    assert_eq!(unusable(&mut bench), ["ns/m", "other/m"]);
    let why = &bench.settings.unusable["ns/m"];
    let lost = "wva/wva-saturation-scaling-config[default] cannot be used: kvCacheThreshold";
    assert!(why.contains(lost) && why.contains("0.9 is above"), "{why}");
    // Once it was good, its last good value is.
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: 0.95")]);
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: high")]);
    assert!(unusable(&mut bench).is_empty());
    bench.check("other/m", [0.95, 5.0, 0.1, 3.0]);
}

#[test]
fn a_snapshot_with_these_entries_means_the_same_without_the_maps() {
    let mut bench = Bench::new();
    bench.feed.put(
        GLOBAL,
        &[
            ("default", "analyzerName: saturation\nenableLimiter: true\nhold: 7m\nkvCacheThreshold: 0.6"),
            ("m", "model_id: m\nnamespace: ns\nanalyzerName: ''\nkvSpareTrigger: 0.3"),
        ],
    );
    bench
        .feed
        .put(LOCAL, &[("default", "kvCacheThreshold: 0.2"), ("x", "model_id: m\nqueueSpareTrigger: 1")]);
    let saturation = bench.resolve();
    let model =
        |namespace: &str| Model { model_id: "m".into(), namespace: namespace.into(), ..Model::default() };
    let config = RulesConfig { saturation: saturation.clone(), ..RulesConfig::default() };
    let snapshot = Snapshot { config, models: vec![model("ns"), model("other")], ..Snapshot::default() };
    let file = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(Snapshot::parse(&file).unwrap(), snapshot);
    for (key, entry) in saturation.iter().filter(|(key, _)| *key != DEFAULT_ENTRY) {
        let namespace = key.split_once('/').unwrap().0;
        let found = Entries::of(&snapshot.config).saturation(namespace, "m");
        assert_eq!(found, (Saturation::of(entry), vec![]), "{key}");
    }
    // A model without an entry of its own, as one that a person adds to the file, has the global default.
    let (added, _) = Entries::of(&snapshot.config).saturation("ns", "added");
    assert_eq!(added, Saturation::of(&saturation[DEFAULT_ENTRY]));
}

#[test]
fn the_most_important_service_class_gives_the_objectives() {
    let names =
        MapNames { namespace: SYSTEM.into(), service_classes: "chart-classes".into(), ..MapNames::default() };
    let mut bench = Bench::fed(Feed::named(names));
    let found = |bench: &mut Bench| {
        let s = bench.resolve()["ns/m"].clone();
        let ms = |slo: Option<Millis>| slo.map(Millis::get);
        (ms(s.itl_slo), ms(s.ttft_slo), Saturation::of(&s).analyzer)
    };
    bench.feed.put(GLOBAL, &[("default", "analyzerName: percentage")]);
    bench.proactive = true;
    assert_eq!(found(&mut bench), (None, None, AnalyzerName::Percentage), "no class names it");
    let classes = [
        ("premium.yaml", "name: Premium\npriority: 1\ndata:\n- {model: m, slo-tpot: 50, slo-ttft: 500}"),
        ("free.yaml", "name: Free\npriority: 9\ndata: [{model: m, slo-tpot: 40}, {model: z, slo-tpot: 1}]"),
    ];
    bench.feed.put("wva/serviceclass", &classes);
    assert_eq!(found(&mut bench), (Some(50.0), Some(500.0), AnalyzerName::Throughput));
    bench.proactive = false;
    assert_eq!(found(&mut bench), (Some(50.0), Some(500.0), AnalyzerName::Percentage));
    bench
        .feed
        .put("wva/serviceclass", &[(classes[0].0, &classes[0].1.replace("priority: 1", "priority: 2"))]);
    let chart = "- {name: Chart, model: m, priority: 1, slo-itl: 60, slo-ttw: 900}";
    bench.feed.put("wva/chart-classes", &[("serviceClasses", chart)]);
    assert_eq!(found(&mut bench), (Some(60.0), Some(900.0), AnalyzerName::Percentage), "of both maps");
    bench.feed.delete("wva/chart-classes");
    assert_eq!(found(&mut bench).0, Some(50.0));
    bench.feed.put(GLOBAL, &[("default", "itlSlo: 70")]);
    assert_eq!(found(&mut bench).0, Some(70.0), "the entry says it");
    bench.feed.delete("wva/serviceclass");
    assert_eq!(found(&mut bench).1, None);
}
