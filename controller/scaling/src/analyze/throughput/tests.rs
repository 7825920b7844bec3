//! Each formula by itself, on figures that can be checked by hand.

mod pods;

use wva_crds::GoDuration;

use super::arrivals::Span;
use super::capacity::{Room, Shape, first_token, gap, running, work};
use super::learning::{Times, begin, learn, loosened, times};
use super::trend::traffic;
use super::{arrivals, learning, peaks};
use crate::snapshot::{
    AnalyzerName, Config, Curve, Known, Learned, Model, Replica, SaturationEntry, Snapshot, StepTimes,
    Variant, WorkSample,
};
use crate::units::{KvUsage, amount};

#[track_caller]
fn near(found: f64, wanted: f64, allowed: f64) {
    assert!((found / wanted - 1.0).abs() <= allowed, "{found}, not {wanted}");
}

/// A replica that is busy for 15 s, by the form that is learnt.
fn busy(truth: Times, running: f64, input_by_output: f64) -> Span {
    let per_token = truth.a / running + truth.b + truth.c * input_by_output;
    let generated = 15.0 * (1.0 - (-running).exp()) / per_token;
    Span {
        variant: 0,
        seconds: 15.0,
        running_before: running,
        running_after: running,
        generated,
        prompt: generated * input_by_output,
        prefills: 0.0,
        prefill_seconds: 0.0,
        gaps: 0.0,
        gap_seconds: 0.0,
    }
}

/// A replica that serves single requests for 15 s.
fn calm(truth: Times, running: f64, input: f64) -> Span {
    let step = truth.a + truth.b * (1.0 + running);
    let gaps = (running * 15.0 / step).round();
    Span {
        variant: 0,
        seconds: 15.0,
        running_before: running,
        running_after: running,
        generated: gaps,
        prompt: input,
        prefills: 1.0,
        prefill_seconds: truth.a + truth.b * running + truth.c * input,
        gaps,
        gap_seconds: gaps * step / (1.0 - truth.c * input / 15.0),
    }
}

fn curve() -> Curve {
    begin("H100", &[], None)
}

const FAST: Times = Times { a: 0.005, b: 0.000_046, c: 0.000_02 };
const SLOW: Times = Times { a: 0.125, b: 0.001_15, c: 0.000_5 };

#[test]
fn what_a_step_takes_is_learnt_whatever_was_believed_before() {
    for truth in [FAST, SLOW, Times { a: 0.017, b: 0.000_25, c: 0.000_06 }] {
        let mut curve = curve();
        let loads = [8.0, 20.0, 60.0, 120.0];
        let spans: Vec<Span> =
            (0..80).map(|i| busy(truth, loads[i % 4], if i % 3 == 0 { 4.0 } else { 0.5 })).collect();
        for span in &spans {
            learn(&mut curve, std::iter::once(span), 15.0);
        }
        let found = times(&curve);
        near(found.a, truth.a, 0.1);
        near(found.b, truth.b, 0.2);
        near(found.c, truth.c, 0.3);
        for (input, output, running) in
            [(1000.0, 1000.0, 100.0), (4000.0, 1000.0, 60.0), (200.0, 400.0, 20.0)]
        {
            let shape = Shape { input, output };
            near(work(found, shape, running), work(truth, shape, running), 0.1);
        }
        assert!(learning::is_learnt(&curve));
    }
}

#[test]
fn an_engine_that_is_ill_does_not_speak_for_the_others() {
    let truth = Times { a: 0.017, b: 0.000_25, c: 0.000_06 };
    let well = busy(truth, 40.0, 1.0);
    // Of ten one that hangs, or does a fifteenth; and the only one, which hangs.
    for (engines, done) in [(10, 0.0), (10, 1.0 / 15.0), (1, 0.0)] {
        let ill = Span { generated: done * well.generated, prompt: done * well.prompt, ..well };
        let mut curve = curve();
        for cycle in 0..120 {
            let of = |i| if cycle >= 40 && i == 0 { &ill } else { &well };
            learn(&mut curve, (0..engines).map(of), 15.0);
        }
        let shape = Shape { input: 1000.0, output: 1000.0 };
        // That engine is a tenth of them all, and its samples weigh little.
        near(work(times(&curve), shape, 40.0), work(truth, shape, 40.0), 0.1);
    }
}

#[test]
fn single_requests_teach_too() {
    for truth in [FAST, SLOW] {
        let mut curve = curve();
        let loads = [0.5, 1.0, 2.0];
        for i in 0..60 {
            let span = calm(truth, loads[i % 3], if i % 2 == 0 { 4000.0 } else { 200.0 });
            learn(&mut curve, std::iter::once(&span), 15.0);
        }
        let found = times(&curve);
        near(found.a, truth.a, 0.15);
        near(found.c, truth.c, 0.15);
        let shape = Shape { input: 1000.0, output: 1000.0 };
        near(work(found, shape, 3.0), work(truth, shape, 3.0), 0.1);
    }
}

#[test]
fn with_speculation_single_requests_teach_what_a_token_takes() {
    // A step makes three tokens of a request, and one latency is seen for all of them. Prompts are counted when they are
    // computed, and what that took when their requests end: with the second of two spans.
    let truth = Times { a: 0.022, b: 0.000_5, c: 0.000_08 };
    let mut curve = curve();
    for i in 0..60 {
        let running = [0.5, 1.0, 2.0][i % 3];
        let whole = calm(truth, running, 1000.0);
        let span = Span { generated: 3.0 * whole.gaps, ..whole };
        let begun = Span { prefills: 0.0, prefill_seconds: 0.0, ..span };
        let ended = Span { prompt: 0.0, ..span };
        learn(&mut curve, [begun, ended].iter(), 15.0);
    }
    near(times(&curve).a, truth.a / 3.0, 0.15);
    near(times(&curve).b, truth.b / 3.0, 0.3);
}

#[test]
fn at_a_constant_mix_the_throughput_is_right_all_the_same() {
    let truth = Times { a: 0.017, b: 0.000_25, c: 0.000_06 };
    let mut curve = curve();
    for i in 0..80_u32 {
        learn(&mut curve, std::iter::once(&busy(truth, 10.0 + f64::from(i), 1.0)), 15.0);
    }
    let shape = Shape { input: 1000.0, output: 1000.0 };
    near(work(times(&curve), shape, 100.0), work(truth, shape, 100.0), 0.02);
}

#[test]
fn one_bad_measurement_counts_little_and_a_bad_quarter_of_an_hour_is_undone_within_another() {
    let truth = Times { a: 0.017, b: 0.000_25, c: 0.000_06 };
    let shape = Shape { input: 1000.0, output: 1000.0 };
    let right = work(truth, shape, 100.0);
    let good = |i: u32| busy(truth, 20.0 + 10.0 * f64::from(i % 8), 1.0);
    let mut curve = curve();
    let quarter = |curve: &mut Curve, factor: f64| {
        for i in 0..60 {
            let span = good(i);
            let span = Span { generated: span.generated * factor, prompt: span.prompt * factor, ..span };
            learn(curve, std::iter::once(&span), 15.0);
        }
        work(times(curve), shape, 100.0)
    };
    near(quarter(&mut curve, 1.0), right, 0.02);
    for factor in [3.0, 0.33] {
        quarter(&mut curve, factor);
        near(quarter(&mut curve, 1.0), right, 0.25);
        quarter(&mut curve, 1.0);
        quarter(&mut curve, 1.0);
    }
    let before = work(times(&curve), shape, 100.0);
    let wild = Span { generated: 50.0 * good(0).generated, ..good(0) };
    learn(&mut curve, std::iter::once(&wild), 15.0);
    near(work(times(&curve), shape, 100.0), before, 0.1);
}

#[test]
fn a_belief_without_samples_loosens_and_stays_within_twice() {
    for (minutes, wanted) in [(0, 1.0), (14, 1.0), (15, 1.1), (24, 1.1), (25, 1.21), (10_000, 2.0)] {
        let curve = Curve { quiet: GoDuration::from_secs(60 * minutes), ..curve() };
        near(loosened(&curve), wanted, 1e-9);
    }
}

#[test]
fn a_new_leader_starts_from_what_the_last_one_learnt() {
    let times_of = |a: f64, b: f64, c: f64| StepTimes { a: amount(a), b: amount(b), c: amount(c) };
    let known = |times| Some(Known { times, samples: amount(212.0) });
    let curve = begin("H100", &[], known(times_of(0.017, 0.000_25, 0.000_06)));
    assert!(learning::is_learnt(&curve));
    let found = times(&curve);
    near(found.a, 0.017, 1e-9);
    near(found.b, 0.000_25, 1e-9);
    // What is out of bounds is not believed.
    near(times(&begin("H100", &[], known(times_of(1e9, 0.0, 0.000_06)))).a, 0.5, 1e-9);
}

#[test]
fn the_sequences_at_once_are_the_least_of_cache_arguments_and_objective() {
    let times = Times { a: 0.02, b: 0.000_2, c: 0.000_1 };
    let shape = Shape { input: 1000.0, output: 500.0 };
    let room = Room { kv_tokens: Some(250_000.0), max_seqs: 256.0, itl: None };
    for (room, wanted) in [
        (room, 160.0),
        (Room { max_seqs: 64.0, ..room }, 64.0),
        (Room { itl: Some(0.06), ..room }, 100.0),
        // One that no number of replicas meets: a step of 0.02 s and a tenth of it.
        (Room { itl: Some(0.01), ..room }, 5.0),
        (Room { kv_tokens: None, ..room }, 256.0),
        (Room { kv_tokens: Some(1.0), ..room }, 1.0),
    ] {
        near(running(times, shape, room), wanted, 1e-9);
    }
    // 0.1 s of prompt, 500 tokens at 0.0002 s and a hundredth of 0.02 s.
    near(work(times, shape, 100.0), 0.3, 1e-9);
    near(gap(times, shape, 100.0), 0.06, 1e-9);
    // Half of such a step, and one of 0.02 s for itself, 0.02 s for 100 sequences and 0.1 s for the prompt.
    near(first_token(times, shape, 100.0), 0.17, 1e-9);
}

#[test]
fn arrivals_are_those_of_a_minute_or_of_a_half_that_stands_out() {
    for (steps, wanted) in [
        (&[15.0; 4][..], 1.0),
        (&[15.0][..], 1.0),
        (&[0.0, 0.0, 60.0, 60.0][..], 4.0 - (4.0_f64 / 30.0).sqrt()),
        (&[60.0, 60.0, 0.0, 0.0][..], 2.0),
        (&[0.0; 4][..], 0.0),
    ] {
        let found = traffic(steps, 150.0).unwrap().arrivals;
        assert!((found - wanted).abs() < 1e-9, "{steps:?}: {found}, not {wanted}");
    }
    assert_eq!(traffic(&[], 150.0), None);
}

#[test]
fn a_trend_counts_where_it_is_sure_and_not_beyond_half_as_much_again() {
    let rising: Vec<f64> = (0..20).map(|i| 150.0 + 3.0 * f64::from(i)).collect();
    let found = traffic(&rising, 150.0).unwrap();
    near(found.slope, 3.0 / 15.0 / 15.0, 1e-9);
    near(found.forecast, found.arrivals + 150.0 * found.slope, 1e-9);
    let steep: Vec<f64> = (0..20).map(|i| 30.0 * f64::from(i)).collect();
    let found = traffic(&steep, 1500.0).unwrap();
    near(found.forecast, 1.5 * found.arrivals, 1e-9);
    assert!(found.is_steep());
    for flat in [vec![15.0; 20], vec![10.0, 20.0, 9.0, 21.0, 8.0, 20.0], vec![15.0, 30.0, 60.0]] {
        let found = traffic(&flat, 150.0).unwrap();
        assert_eq!(found.forecast.to_bits(), found.arrivals.to_bits(), "{flat:?}");
    }
    let falling: Vec<f64> = rising.into_iter().rev().collect();
    let found = traffic(&falling, 150.0).unwrap();
    assert!(found.slope < 0.0 && found.forecast >= found.arrivals);
}

#[test]
fn the_greatest_need_is_held_until_it_is_old() {
    let mut memory = Learned::default();
    let mut seen = Vec::new();
    for need in [3.0, 8.0, 5.0, 4.0, 6.0, 2.0, 2.0, 2.0, 2.0] {
        seen.push(peaks::hold(&mut memory, need, 180.0));
        for old in &mut memory.needs {
            old.age = GoDuration::from_secs(old.age.get().as_secs() + 60);
        }
    }
    assert_eq!(format!("{seen:?}"), "[3.0, 8.0, 8.0, 8.0, 8.0, 6.0, 6.0, 6.0, 2.0]");
}

#[test]
fn few_needs_are_remembered_and_none_becomes_smaller() {
    let mut memory = Learned::default();
    for i in 0..500_u32 {
        let need = f64::from(500 - i);
        let held = peaks::hold(&mut memory, need, 1e6);
        assert!(held >= need && memory.needs.len() <= 33);
    }
    assert!((memory.needs[0].replicas.get() - 500.0).abs() < 1e-9);
}

#[test]
fn a_curve_is_of_one_accelerator_and_of_all_arguments_in_their_order() {
    let args = |all: &[&str]| all.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    let curve = begin("H100", &args(&["--a", "1"]), None);
    assert!(learning::is_of(&curve, "H100", &args(&["--a", "1"])));
    for other in [&[][..], &["--a"], &["--a", "12"], &["1", "--a"], &["--a", "1", "--b"]] {
        assert!(!learning::is_of(&curve, "H100", &args(other)), "{other:?}");
    }
    assert!(!learning::is_of(&curve, "A100", &args(&["--a", "1"])));
    assert!(learning::is_of(&begin("H100", &[], None), "H100", &[]));
}
