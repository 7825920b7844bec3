//! Tests of the settings of a model by layers, and of invalid and deleted layers.

use prometheus::Registry;
use serde_json::json;
use wva_rules::MapNames;
use wva_scaling::snapshot::{Model, Snapshot};

use super::*;
use crate::config::testing::{Feed, SYSTEM};
use crate::fixture::Cluster;
use crate::observe::variants::{Ownership, managed_variants};

const GLOBAL: &str = "wva/wva-saturation-scaling-config";
const LOCAL: &str = "ns/wva-saturation-scaling-config";

/// Model `m` in the namespaces `ns` and `other`, its maps, and the settings of an engine.
struct Bench {
    cluster: Cluster,
    feed: Feed,
    settings: Settings,
    proactive: bool,
    reloads: ConfigReloads,
}

impl Bench {
    fn new() -> Self {
        Self::with_feed(Feed::new())
    }

    fn with_feed(feed: Feed) -> Self {
        let mut cluster = Cluster::new();
        cluster.variant("a", "m", json!({})).variant("b", "m", json!({"metadata": {"namespace": "other"}}));
        let reloads = ConfigReloads::register(&Registry::new()).unwrap();
        Self { cluster, feed, settings: Settings::default(), proactive: false, reloads }
    }

    fn resolve(&mut self) -> FleetSettings {
        self.resolve_all().fleet
    }

    fn resolve_all(&mut self) -> ResolvedMaps {
        let watches = self.cluster.watches();
        let managed = managed_variants(&watches, &Ownership::default());
        let namespaces = watches.namespaces.as_ref();
        self.settings.resolve(&self.feed.maps(), &managed, namespaces, &self.reloads, self.proactive)
    }

    /// Settings of model `m` in a namespace, or the default.
    fn settings(&mut self, key: &str) -> ModelSettings {
        let fleet = self.resolve();
        let model = key.split_once('/').map(|(namespace, model)| ModelKey::new(namespace, model));
        model.map_or(fleet.default.clone(), |model| fleet.models[&model].clone())
    }

    /// Checks thresholds: KV, queue, spare KV, spare queue.
    #[track_caller]
    fn check(&mut self, key: &str, want: [f64; 4]) {
        let s = self.settings(key).saturation();
        let found =
            [s.kv_cache_threshold, s.queue_length_threshold, s.kv_spare_trigger, s.queue_spare_trigger];
        assert_eq!(format!("{found:?}"), format!("{want:?}"), "{key}");
    }
}

#[test]
fn more_specific_entry_wins_field_by_field() {
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
    // The local default overrides every global entry, and the local entry for the model overrides both.
    bench.feed.put(LOCAL, &[("default", "kvSpareTrigger: 0.11\nqueueSpareTrigger: 11")]);
    bench.check("ns/m", [0.7, 8.0, 0.11, 11.0]);
    bench
        .feed
        .put(LOCAL, &[("default", "kvSpareTrigger: 0.11"), ("m", "model_id: m\nqueueSpareTrigger: 12")]);
    bench.check("ns/m", [0.7, 8.0, 0.11, 12.0]);
    bench.check("other/m", [0.7, 8.0, 0.08, 8.0]);
    // Deletion of a layer uncovers the layers below at once.
    bench.feed.delete(GLOBAL);
    bench.check("ns/m", [0.8, 5.0, 0.11, 12.0]);
    bench.check("other/m", [0.8, 5.0, 0.1, 3.0]);
    bench.feed.put(GLOBAL, &global);
    bench.feed.delete(LOCAL);
    bench.check("ns/m", [0.7, 8.0, 0.09, 9.0]);
}

#[test]
fn decides_by_throughput_where_no_saturation_map_is_read() {
    use AnalyzerName::{Percentage, Throughput, Token};
    let mut bench = Bench::new();
    let check = |bench: &mut Bench, want: [AnalyzerName; 3]| {
        let found = ["ns/m", "other/m", "default"].map(|key| bench.settings(key).saturation.analyzer_name);
        assert_eq!(found, want.map(Some));
    };
    check(&mut bench, [Throughput; 3]);
    // An entry without an analyzer means percentage, and so does a map without an entry for the model.
    bench.feed.put(LOCAL, &[("default", "kvSpareTrigger: 0.11")]);
    check(&mut bench, [Percentage, Throughput, Throughput]);
    bench.feed.put(GLOBAL, &[("another", "model_id: z\nanalyzerName: throughput")]);
    check(&mut bench, [Percentage; 3]);
    bench.feed.put(GLOBAL, &[("default", "analyzerName: token")]);
    check(&mut bench, [Token; 3]);
    bench.feed.delete(GLOBAL);
    bench.feed.delete(LOCAL);
    check(&mut bench, [Throughput; 3]);
}

#[test]
fn resolves_scale_to_zero_in_the_same_layers() {
    let mut bench = Bench::new();
    let (global, local) = ("wva/wva-model-scale-to-zero-config", "ns/wva-model-scale-to-zero-config");
    let check = |bench: &mut Bench, namespace: &str, default: bool, want: (bool, u64)| {
        let found = bench.resolve().of(&ModelKey::new(namespace, "m")).scale_to_zero(default);
        assert_eq!((found.enabled, found.retention.get().as_secs()), want, "{namespace}");
    };
    assert_eq!(bench.settings("ns/m").scale_to_zero, ScaleToZeroEntry::default(), "there are no maps");
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
    // Deletion of a layer uncovers the layers below at once.
    bench.feed.delete(global);
    check(&mut bench, "ns", true, (false, 60));
    bench.feed.delete(older);
    check(&mut bench, "ns", true, (false, 600));
    check(&mut bench, "other", true, (true, 600));
}

#[test]
fn the_most_specific_entry_names_the_endpoint_picker() {
    let mut bench = Bench::new();
    let (global, local) = ("wva/wva-model-scale-to-zero-config", "ns/wva-model-scale-to-zero-config");
    let check = |bench: &mut Bench, want: &[&str]| {
        assert!(bench.resolve().all().all(|settings| settings.scale_to_zero.endpoint_picker.is_none()));
        let watches = bench.cluster.watches();
        let managed = managed_variants(&watches, &Ownership::default());
        let pickers = bench.settings.endpoint_pickers(&managed);
        let shown: Vec<String> =
            pickers.iter().map(|(m, picker)| format!("{}: {picker}", m.namespace)).collect();
        assert_eq!(shown, want);
    };
    check(&mut bench, &[]);
    bench.feed.put(global, &[("default", "endpoint_picker: epp")]);
    check(&mut bench, &["ns: epp", "other: epp"]);
    bench.feed.put(local, &[("m", "model_id: m\nendpoint_picker: https://app=epp:9443")]);
    check(&mut bench, &["ns: https://app=epp:9443", "other: epp"]);
    bench.feed.put(local, &[("m", "model_id: m\nendpoint_picker: epp.other")]);
    check(&mut bench, &["ns: https://app=epp:9443", "other: epp"]);
    bench.feed.delete(local);
    bench.feed.delete(global);
    check(&mut bench, &[]);
}

#[test]
fn reads_only_the_first_existing_global_map() {
    let names = MapNames { namespace: SYSTEM.into(), saturation: "mine".into(), ..MapNames::default() };
    let mut bench = Bench::with_feed(Feed::named(names));
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
        assert!(!bench.settings.saturation.ignored.contains(&name.to_owned()));
    }
    assert!(bench.settings.saturation.ignored.is_empty());
}

#[test]
fn uses_local_maps_of_namespaces_with_variants_or_opt_in() {
    let mut bench = Bench::new();
    let local = |bench: &mut Bench| -> Vec<String> {
        bench.resolve();
        bench.settings.saturation.local.keys().map(ToString::to_string).collect()
    };
    for namespace in ["ns", "opted-in", "opted-out", "unused", "excluded"] {
        bench.feed.put(&format!("{namespace}/wva-saturation-scaling-config"), &[("default", "")]);
    }
    let label = |value: &str| json!({"labels": {"wva.llmd.ai/config-enabled": value}});
    bench.cluster.namespace("opted-in", label("true")).namespace("opted-out", label("false"));
    let mut excluded = label("true");
    excluded["annotations"] = json!({"wva.llmd.ai/exclude": "true"});
    bench.cluster.namespace("excluded", excluded.clone());
    assert_eq!(local(&mut bench), ["ns", "opted-in"]);
    bench.cluster.namespace("ns", excluded);
    assert_eq!(local(&mut bench), ["opted-in"], "its variants are no longer managed");
    assert!(!bench.resolve().models.contains_key(&ModelKey::new("ns", "m")));
}

#[test]
fn drops_layer_that_conflicts_with_inherited_values() {
    let mut bench = Bench::new();
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: 0.5")]);
    bench.feed.put(LOCAL, &[("default", "kvSpareTrigger: 0.6\nqueueSpareTrigger: 4")]);
    bench.check("ns/m", [0.5, 5.0, 0.1, 3.0]);
    let dropped: Vec<_> = bench.settings.dropped_layers.iter().cloned().collect();
    assert!(
        dropped.len() == 1
            && dropped[0].contains("\"ns/wva-saturation-scaling-config[default]\"")
            && dropped[0].ends_with("kvSpareTrigger 0.6 is above kvCacheThreshold 0.5"),
        "{dropped:?}"
    );
    assert!(bench.settings.unusable.is_empty(), "the global default is usable");
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: 0.7")]);
    bench.check("ns/m", [0.7, 5.0, 0.6, 4.0]);
    assert!(bench.settings.dropped_layers.is_empty());
}

#[test]
fn uses_and_reports_defaults_without_a_usable_layer() {
    let unusable = |bench: &mut Bench| -> Vec<String> {
        bench.resolve();
        bench.settings.unusable.keys().cloned().collect()
    };
    let mut bench = Bench::new();
    assert!(unusable(&mut bench).is_empty(), "there are no maps");
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: high")]);
    assert_eq!(unusable(&mut bench), ["ns/m", "other/m"]);
    bench.check("ns/m", [0.8, 5.0, 0.1, 3.0]);
    bench.feed.put(LOCAL, &[("default", "queueSpareTrigger: 4")]);
    assert_eq!(unusable(&mut bench), ["other/m"]);
    bench.feed.put(LOCAL, &[("default", "kvSpareTrigger: 0.9")]);
    assert_eq!(unusable(&mut bench), ["ns/m", "other/m"]);
    let why = &bench.settings.unusable["ns/m"];
    let lost = "wva/wva-saturation-scaling-config[default] is invalid: kvCacheThreshold";
    assert!(why.contains(lost) && why.contains("0.9 is above"), "{why}");
    // After a valid value, the last valid value is used.
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: 0.95")]);
    bench.feed.put(GLOBAL, &[("default", "kvCacheThreshold: high")]);
    assert!(unusable(&mut bench).is_empty());
    bench.check("other/m", [0.95, 5.0, 0.1, 3.0]);
}

#[test]
fn snapshot_with_resolved_entries_does_not_need_the_maps() {
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
    let fleet = bench.resolve();
    let model = |(key, settings): (&ModelKey, &ModelSettings)| Model {
        model_id: key.model_id.clone(),
        namespace: key.namespace.clone(),
        settings: settings.clone(),
        ..Model::default()
    };
    let snapshot = Snapshot { models: fleet.models.iter().map(model).collect(), ..Snapshot::default() };
    assert_eq!(snapshot.models.len(), 2);
    let file = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(Snapshot::parse(&file).unwrap(), snapshot);
    let mut with_entries = serde_json::to_value(&snapshot).unwrap();
    with_entries["config"]["saturation"] =
        json!({"default": {"kvCacheThreshold": 0.5, "queueSpareTrigger": 9}});
    assert_eq!(Snapshot::read(with_entries).unwrap(), snapshot, "it inherits nothing");
}

#[test]
fn most_important_service_class_gives_the_objectives() {
    let names =
        MapNames { namespace: SYSTEM.into(), service_classes: "chart-classes".into(), ..MapNames::default() };
    let mut bench = Bench::with_feed(Feed::named(names));
    let found = |bench: &mut Bench| {
        let s = bench.settings("ns/m").saturation();
        (s.throughput.itl_slo, s.throughput.ttft_slo, s.analyzer)
    };
    bench.feed.put(GLOBAL, &[("default", "analyzerName: percentage")]);
    bench.proactive = true;
    assert_eq!(found(&mut bench), (None, None, AnalyzerName::Percentage), "no class has it");
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
    assert_eq!(
        found(&mut bench),
        (Some(60.0), Some(900.0), AnalyzerName::Percentage),
        "the class with the lowest number in both maps"
    );
    bench.feed.delete("wva/chart-classes");
    assert_eq!(found(&mut bench).0, Some(50.0));
    bench.feed.put(GLOBAL, &[("default", "itlSlo: 70")]);
    assert_eq!(found(&mut bench).0, Some(70.0), "the entry has precedence");
    bench.feed.delete("wva/serviceclass");
    assert_eq!(found(&mut bench).1, None);
}
