//! Tests of each formula on figures that can be checked by hand.

mod pods;
mod slow;

use wva_crds::GoDuration;

use super::arrivals::EngineInterval;
use super::capacity::{ConcurrencyLimits, RequestShape, concurrency, time_to_first_token, token_gap, work};
use super::learning::{Times, fitted_times, loosening, measure, new_curve};
use super::trend::forecast_arrivals;
use super::{arrivals, learning, peaks};
use crate::snapshot::{
    AnalyzerName, Curve, Model, ModelSettings, Replica, SaturationEntry, Snapshot, SpeedEstimate, StepTimes,
    ThroughputMemory, Variant, WorkSample,
};
use crate::units::{KvUsage, amount};

#[track_caller]
fn assert_near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{found}, not {expected}");
}

/// Interval of 15 s of a busy engine with these step times.
fn busy(truth: Times, running: f64, input_by_output: f64) -> EngineInterval {
    let per_token = truth.a / running + truth.b + truth.c * input_by_output;
    let generated = 15.0 * (1.0 - (-running).exp()) / per_token;
    EngineInterval {
        variant: 0,
        pod: 0,
        seconds: 15.0,
        running_before: running,
        running_after: running,
        generated,
        prompt: generated * input_by_output,
        cached: 0.0,
        prefills: 0.0,
        prefill_seconds: 0.0,
        gaps: 0.0,
        gap_seconds: 0.0,
        waiting: 0.0,
        kv: 0.0,
        is_queueing: false,
    }
}

/// Interval of 15 s of an engine with single requests.
fn calm(truth: Times, running: f64, input: f64) -> EngineInterval {
    let step = truth.a + truth.b * (1.0 + running);
    let gaps = (running * 15.0 / step).round();
    EngineInterval {
        generated: gaps,
        prompt: input,
        prefills: 1.0,
        prefill_seconds: truth.a + truth.b * running + truth.c * input,
        gaps,
        gap_seconds: gaps * step / (1.0 - truth.c * input / 15.0),
        ..busy(truth, running, 0.0)
    }
}

fn curve() -> Curve {
    new_curve("H100", &[], None)
}

const FAST: Times = Times { a: 0.005, b: 0.000_046, c: 0.000_02 };
const SLOW: Times = Times { a: 0.125, b: 0.001_15, c: 0.000_5 };
const USUAL: Times = Times { a: 0.017, b: 0.000_25, c: 0.000_06 };
const SHAPE: RequestShape = RequestShape { input: 1000.0, computed: 1000.0, output: 1000.0 };

/// Learns from intervals of healthy engines.
fn update<'a>(curve: &mut Curve, intervals: impl Iterator<Item = &'a EngineInterval>, elapsed: f64) {
    let measurements = measure(curve, intervals);
    learning::update(curve, measurements.iter(), elapsed);
}

/// Learns from one engine.
fn learn(curve: &mut Curve, interval: &EngineInterval) {
    update(curve, std::iter::once(interval), 15.0);
}

/// Asserts the work of a request by the curve.
#[track_caller]
fn assert_work(curve: &Curve, truth: Times, running: f64, tolerance: f64) {
    assert_near(work(fitted_times(curve), SHAPE, running), work(truth, SHAPE, running), tolerance);
}

#[test]
fn learns_step_times_from_any_prior() {
    for truth in [FAST, SLOW, USUAL] {
        let mut curve = curve();
        let loads = [8.0, 20.0, 60.0, 120.0];
        let intervals: Vec<EngineInterval> =
            (0..80).map(|i| busy(truth, loads[i % 4], if i % 3 == 0 { 4.0 } else { 0.5 })).collect();
        for interval in &intervals {
            learn(&mut curve, interval);
        }
        let found = fitted_times(&curve);
        assert_near(found.a, truth.a, 0.1);
        assert_near(found.b, truth.b, 0.2);
        assert_near(found.c, truth.c, 0.3);
        for (input, output, running) in
            [(1000.0, 1000.0, 100.0), (4000.0, 1000.0, 60.0), (200.0, 400.0, 20.0)]
        {
            let shape = RequestShape { input, computed: input, output };
            assert_near(work(found, shape, running), work(truth, shape, running), 0.1);
        }
        assert!(learning::is_learned(&curve));
    }
}

#[test]
fn a_faulty_engine_does_not_change_the_curve() {
    let healthy = busy(USUAL, 40.0, 1.0);
    // One of ten hangs, or has a fifteenth of the throughput; and a single engine hangs.
    for (engines, done) in [(10, 0.0), (10, 1.0 / 15.0), (1, 0.0)] {
        let faulty =
            EngineInterval { generated: done * healthy.generated, prompt: done * healthy.prompt, ..healthy };
        let mut curve = curve();
        for cycle in 0..120 {
            let interval = |i| if cycle >= 40 && i == 0 { &faulty } else { &healthy };
            update(&mut curve, (0..engines).map(interval), 15.0);
        }
        // The faulty engine is a tenth of all, and its samples have little weight.
        assert_work(&curve, USUAL, 40.0, 0.1);
    }
}

#[test]
fn learns_from_single_requests() {
    for truth in [FAST, SLOW] {
        let mut curve = curve();
        let loads = [0.5, 1.0, 2.0];
        for i in 0..60 {
            learn(&mut curve, &calm(truth, loads[i % 3], if i % 2 == 0 { 4000.0 } else { 200.0 }));
        }
        let found = fitted_times(&curve);
        assert_near(found.a, truth.a, 0.15);
        assert_near(found.c, truth.c, 0.15);
        assert_work(&curve, truth, 3.0, 0.1);
    }
}

#[test]
fn learns_token_times_with_speculative_decoding() {
    // A step generates three tokens of a request, with one observed latency. A prompt is counted when it is computed, in
    // the first of two intervals, and its time when the request ends, in the second.
    let truth = Times { a: 0.022, b: 0.000_5, c: 0.000_08 };
    let mut curve = curve();
    for i in 0..60 {
        let running = [0.5, 1.0, 2.0][i % 3];
        let whole = calm(truth, running, 1000.0);
        let interval = EngineInterval { generated: 3.0 * whole.gaps, ..whole };
        let first = EngineInterval { prefills: 0.0, prefill_seconds: 0.0, ..interval };
        let second = EngineInterval { prompt: 0.0, ..interval };
        update(&mut curve, [first, second].iter(), 15.0);
    }
    assert_near(fitted_times(&curve).a, truth.a / 3.0, 0.15);
    assert_near(fitted_times(&curve).b, truth.b / 3.0, 0.3);
}

#[test]
fn throughput_is_right_for_a_constant_mix_of_requests() {
    let mut curve = curve();
    for i in 0..80_u32 {
        learn(&mut curve, &busy(USUAL, 10.0 + f64::from(i), 1.0));
    }
    assert_work(&curve, USUAL, 100.0, 0.02);
}

#[test]
fn recovers_from_bad_measurements() {
    let good = |i: u32| busy(USUAL, 20.0 + 10.0 * f64::from(i % 8), 1.0);
    let mut curve = curve();
    let quarter = |curve: &mut Curve, factor: f64| {
        for i in 0..60 {
            let good = good(i);
            let interval =
                EngineInterval { generated: good.generated * factor, prompt: good.prompt * factor, ..good };
            learn(curve, &interval);
        }
    };
    quarter(&mut curve, 1.0);
    assert_work(&curve, USUAL, 100.0, 0.02);
    for factor in [3.0, 0.33] {
        quarter(&mut curve, factor);
        quarter(&mut curve, 1.0);
        assert_work(&curve, USUAL, 100.0, 0.25);
        quarter(&mut curve, 1.0);
        quarter(&mut curve, 1.0);
    }
    let before = fitted_times(&curve);
    learn(&mut curve, &EngineInterval { generated: 50.0 * good(0).generated, ..good(0) });
    assert_work(&curve, before, 100.0, 0.1);
}

#[test]
fn loosening_grows_without_samples_up_to_twice() {
    for (minutes, expected) in [(0, 1.0), (14, 1.0), (15, 1.1), (24, 1.1), (25, 1.21), (10_000, 2.0)] {
        let curve = Curve { quiet: GoDuration::from_secs(60 * minutes), ..curve() };
        assert_near(loosening(&curve), expected, 1e-9);
    }
}

#[test]
fn a_new_leader_starts_from_the_estimate_of_the_last_one() {
    let times_of = |a: f64, b: f64, c: f64| StepTimes { a: amount(a), b: amount(b), c: amount(c) };
    let estimate = |times| Some(SpeedEstimate { times, samples: amount(212.0) });
    let curve = new_curve("H100", &[], estimate(times_of(0.017, 0.000_25, 0.000_06)));
    assert!(learning::is_learned(&curve));
    let found = fitted_times(&curve);
    assert_near(found.a, 0.017, 1e-9);
    assert_near(found.b, 0.000_25, 1e-9);
    // Estimates out of bounds are clamped.
    assert_near(fitted_times(&new_curve("H100", &[], estimate(times_of(1e9, 0.0, 0.000_06)))).a, 0.5, 1e-9);
}

#[test]
fn concurrency_is_the_smallest_limit() {
    let times = Times { a: 0.02, b: 0.000_2, c: 0.000_1 };
    let shape = RequestShape { input: 1000.0, computed: 1000.0, output: 500.0 };
    let limits = ConcurrencyLimits { kv_tokens: Some(250_000.0), max_seqs: 256.0, itl: None };
    for (limits, expected) in [
        (limits, 160.0),
        (ConcurrencyLimits { max_seqs: 64.0, ..limits }, 64.0),
        (ConcurrencyLimits { itl: Some(0.06), ..limits }, 100.0),
        // More replicas cannot meet this objective, so the result is a step of 0.02 s and a tenth of it.
        (ConcurrencyLimits { itl: Some(0.01), ..limits }, 5.0),
        (ConcurrencyLimits { kv_tokens: None, ..limits }, 256.0),
        (ConcurrencyLimits { kv_tokens: Some(1.0), ..limits }, 1.0),
    ] {
        assert_near(concurrency(times, shape, limits), expected, 1e-9);
    }
    // 0.1 s of prompt, and 500 tokens at 0.0002 s plus a hundredth of 0.02 s.
    assert_near(work(times, shape, 100.0), 0.3, 1e-9);
    assert_near(token_gap(times, shape, 100.0), 0.06, 1e-9);
    // Half of such a step, then one with 0.02 s fixed, 0.02 s for 100 sequences and 0.1 s for the prompt.
    assert_near(time_to_first_token(times, shape, 100.0), 0.17, 1e-9);
}

#[test]
fn arrival_rate_is_of_a_minute_or_a_higher_half_minute() {
    for (steps, expected) in [
        (&[15.0; 4][..], 1.0),
        (&[15.0][..], 1.0),
        (&[0.0, 0.0, 60.0, 60.0][..], 4.0 - (4.0_f64 / 30.0).sqrt()),
        (&[60.0, 60.0, 0.0, 0.0][..], 2.0),
        (&[0.0; 4][..], 0.0),
    ] {
        let found = forecast_arrivals(steps, 150.0).unwrap().arrivals;
        assert!((found - expected).abs() < 1e-9, "{steps:?}: {found}, not {expected}");
    }
    assert_eq!(forecast_arrivals(&[], 150.0), None);
}

#[test]
fn forecast_needs_a_significant_trend_and_is_bounded() {
    let rising: Vec<f64> = (0..20).map(|i| 150.0 + 3.0 * f64::from(i)).collect();
    let found = forecast_arrivals(&rising, 150.0).unwrap();
    assert_near(found.slope, 3.0 / 15.0 / 15.0, 1e-9);
    assert_near(found.expected, found.arrivals + 150.0 * found.slope, 1e-9);
    let steep: Vec<f64> = (0..20).map(|i| 30.0 * f64::from(i)).collect();
    let found = forecast_arrivals(&steep, 1500.0).unwrap();
    assert_near(found.expected, 1.25 * found.arrivals, 1e-9);
    assert!(found.is_steep());
    for flat in [vec![15.0; 20], vec![10.0, 20.0, 9.0, 21.0, 8.0, 20.0], vec![15.0, 30.0, 60.0]] {
        let found = forecast_arrivals(&flat, 150.0).unwrap();
        assert_eq!(found.expected.to_bits(), found.arrivals.to_bits(), "{flat:?}");
    }
    let falling: Vec<f64> = rising.into_iter().rev().collect();
    let found = forecast_arrivals(&falling, 150.0).unwrap();
    assert!(found.slope < 0.0 && found.expected >= found.arrivals);
}

#[test]
fn the_greatest_need_holds_for_the_hold_time() {
    let mut memory = ThroughputMemory::default();
    let mut held = Vec::new();
    for need in [3.0, 8.0, 5.0, 4.0, 6.0, 2.0, 2.0, 2.0, 2.0] {
        held.push(peaks::record(&mut memory, need, 180.0));
        for old in &mut memory.needs {
            old.age = GoDuration::from_secs(old.age.get().as_secs() + 60);
        }
    }
    assert_eq!(format!("{held:?}"), "[3.0, 8.0, 8.0, 8.0, 8.0, 6.0, 6.0, 6.0, 2.0]");
}

#[test]
fn merging_peaks_never_lowers_the_held_need() {
    let mut memory = ThroughputMemory::default();
    for i in 0..500_u32 {
        let need = f64::from(500 - i);
        let held = peaks::record(&mut memory, need, 1e6);
        assert!(held >= need && memory.needs.len() <= 33);
    }
    assert!((memory.needs[0].replicas.get() - 500.0).abs() < 1e-9);
}

#[test]
fn a_curve_matches_one_accelerator_and_its_arguments() {
    let args = |all: &[&str]| all.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    let curve = new_curve("H100", &args(&["--a", "1"]), None);
    assert!(learning::matches(&curve, "H100", &args(&["--a", "1"])));
    for other in [&[][..], &["--a"], &["--a", "12"], &["1", "--a"], &["--a", "1", "--b"]] {
        assert!(!learning::matches(&curve, "H100", &args(other)), "{other:?}");
    }
    assert!(!learning::matches(&curve, "A100", &args(&["--a", "1"])));
    assert!(learning::matches(&new_curve("H100", &[], None), "H100", &[]));
}
