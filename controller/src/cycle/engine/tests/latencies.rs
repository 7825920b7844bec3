//! Latencies of models with an objective: their queries, and their way into the snapshot and the metrics.

use super::*;
use crate::publish::gauges::{OptionalSeries, VariantSeries};

const OBJECTIVES: &str = "{analyzerName: percentage, ttftSlo: 500, itlSlo: 30}";

/// Histograms of `m`: 80 of 200 first tokens within 0.5 s; the old name of the time between tokens.
fn histograms() -> FakeReply {
    FakeReply::by(|query| {
        let counts: &[(&str, &str)] = if query.contains("vllm:time_to_first_token_seconds_bucket") {
            &[("0.4", "60"), ("0.6", "100"), ("+Inf", "200")]
        } else if query.contains("vllm:time_per_output_token_seconds_bucket") {
            &[("0.025", "900"), ("0.05", "1000"), ("+Inf", "1000")]
        } else {
            return busy();
        };
        let row = |(le, count): &(&str, &'static str)| {
            (json!({"namespace": "ns", "model_name": "m", "le": le}), *count)
        };
        FakeReply::series(counts.iter().map(row))
    })
}

/// Runs the due queries for latencies. Returns their number.
async fn measure(bench: &mut Bench) -> usize {
    let before = bench.fake.queries();
    if let Some(round) =
        bench.state.sampler.due_latencies(bench.engine.inputs(), &bench.state.decider.control_loop.attainment)
    {
        bench.state.sampler.latencies.add(round.await, &mut bench.state.decider.control_loop.attainment);
    }
    bench.fake.queries() - before
}

async fn with_objectives(answers: FakeReply, entry: &str) -> (Bench, Feed) {
    let mut bench = Bench::new(cluster(json!({})), answers).await;
    let mut feed = Feed::new();
    feed.put(GLOBAL, &[("default", entry)]);
    bench.engine.sources.maps = feed.maps();
    (bench, feed)
}

fn attainment_series(bench: &Bench) -> Vec<String> {
    let reader = bench.engine.published.subscribe();
    let scope = bench.cluster.ownership_view(Ownership::default());
    let optional = OptionalSeries { legacy: false, workload: true };
    let series =
        VariantSeries::new(reader, scope, bench.cluster.watches(), optional, CycleProgress::default());
    series
        .text()
        .lines()
        .filter(|line| line.starts_with("wva_slo_attainment_ratio{"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn measured_latencies_reach_snapshot_and_gauge() {
    let (mut bench, _feed) = with_objectives(histograms(), OBJECTIVES).await;
    assert_eq!(measure(&mut bench).await, 0, "the objectives are not known before the first cycle");
    bench.turn().await;
    assert_eq!(bench.published().snapshot.models[0].lateness, None);
    assert_eq!(measure(&mut bench).await, 2);
    assert_eq!(measure(&mut bench).await, 0, "not in every round");
    bench.turn().await;
    let model = bench.published().snapshot.models[0].clone();
    let lateness = model.lateness.unwrap();
    assert!((lateness.requests.get() - 200.0).abs() < 0.1, "{lateness:?}");
    assert!((lateness.share().unwrap() - 0.6).abs() < 1e-6, "{lateness:?}");
    let wanted = [("itl", 0.92), ("ttft", 0.4)].map(|(objective, share)| {
        ["1d", "1h", "5m"].map(|window| {
            let labels =
                format!(r#"model_name="m",namespace="ns",objective="{objective}",window="{window}""#);
            (labels, share)
        })
    });
    let mut found = attainment_series(&bench);
    found.sort();
    for (line, (labels, share)) in found.iter().zip(wanted.as_flattened()) {
        let value = line.strip_prefix(&format!("wva_slo_attainment_ratio{{{labels}}} "));
        let value: f64 = value.unwrap_or_else(|| panic!("{line} has not {labels}")).parse().unwrap();
        assert!((value - share).abs() < 1e-6, "{line}");
    }
    assert_eq!(found.len(), 6);
    // Offline, the snapshot leads to the same text.
    let again = wva_scaling::decide(&model_file(&bench)).decisions;
    assert_eq!(bench.variant().decision.as_ref(), again.first());
    let text = wva_scaling::trace::Trace(&again[0]).to_string();
    assert!(text.contains("  ttft objective met: 40.0 % (5m), 40.0 % (1h), 40.0 % (1d)\n"), "{text}");
}

/// The snapshot as `wva explain --snapshot` writes it.
fn model_file(bench: &Bench) -> wva_scaling::Snapshot {
    let text = serde_json::to_string(bench.published().snapshot.as_ref()).unwrap();
    wva_scaling::Snapshot::parse(&text).unwrap()
}

#[tokio::test]
async fn only_objectives_cause_queries() {
    for (entry, wanted) in [
        ("{analyzerName: throughput}", [false, false]),
        ("{analyzerName: percentage, ttftSlo: 500}", [true, false]),
        ("{analyzerName: throughput, itlSlo: 30}", [false, true]),
    ] {
        let (mut bench, _feed) = with_objectives(busy(), entry).await;
        bench.turn().await;
        let before = bench.fake.queries();
        measure(&mut bench).await;
        let asked = bench.fake.expressions().split_off(before);
        let of = |name: &str| asked.iter().any(|expression| expression.contains(name));
        assert_eq!([of("first_token"), of("inter_token")], wanted, "{entry}: {asked:?}");
        assert!(asked.iter().all(|expression| expression.contains(r#"{namespace="ns"}"#)), "{asked:?}");
    }
}

#[tokio::test]
async fn failing_histograms_affect_no_decision() {
    for answers in [on("_bucket", down(), busy()), on("_bucket", FakeReply::no_series(), busy())] {
        let (mut bench, _feed) = with_objectives(answers, OBJECTIVES).await;
        bench.turn().await;
        measure(&mut bench).await;
        let variant = bench.turn().await;
        assert_eq!(
            (variant.signal(), reasons(&variant)),
            (Some(3), ["Ready", "MetricsFound", "SaturationOnlyMode"])
        );
        assert_eq!(bench.published().snapshot.models[0].lateness, None);
        assert_eq!(attainment_series(&bench), [""; 0]);
    }
}

#[tokio::test]
async fn running_engine_measures_in_rounds_of_its_own() {
    let (mut bench, _feed) = with_objectives(on("_bucket", FakeReply::Hang, busy()), OBJECTIVES).await;
    bench.configure(|c| {
        let often = Duration::from_millis(20);
        (c.fetch_interval, c.cache_ttl, c.interval) = (often, often, often);
    });
    let mut running = bench.run();
    running.until_asked(|fake| fake.hanging() == 2).await;
    // Loads and cycles do not wait for the histograms.
    running.cycles(5).await;
    assert_eq!(running.fake.hanging(), 2);
    running.end().await;
}
