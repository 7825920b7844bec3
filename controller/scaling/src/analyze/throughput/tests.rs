//! Each formula by itself, on figures that can be checked by hand.

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
        running: (running, running),
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
        running: (running, running),
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
        (Room { itl: Some(0.01), ..room }, 1.0),
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

/// What a pod shows: its name, and of each scrape its age, the requests that ended, and those that run.
type Shown<'a> = (&'a str, &'a [(u64, f64, f64)]);

/// The memory of the model after a cycle, so many seconds after the one before.
fn watch(before: Option<Learned>, elapsed: u64, pods: &[Shown]) -> Learned {
    let replica = |(pod, scrapes): &Shown| {
        let work = scrapes.iter().map(|(age, completed, running)| WorkSample {
            age: GoDuration::from_secs(*age),
            completed: amount(*completed),
            running: amount(*running),
            ..WorkSample::default()
        });
        Replica {
            pod: (*pod).to_owned(),
            kv: Some(KvUsage::default()),
            work: work.collect(),
            ..Replica::default()
        }
    };
    let learned = before.into_iter().map(|l| l.after(std::time::Duration::from_secs(elapsed))).collect();
    let snapshot = of_replicas(learned, pods.iter().map(replica).collect());
    crate::decide(&snapshot).next.learned.remove(0)
}

/// A model with one variant that has these replicas.
fn of_replicas(learned: Vec<Learned>, replicas: Vec<Replica>) -> Snapshot {
    let current = u32::try_from(replicas.len()).unwrap();
    let variant = Variant { name: "a".to_owned(), current, replicas, ..Variant::default() };
    let model = Model {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        variants: vec![variant],
        ..Model::default()
    };
    let entry =
        SaturationEntry { analyzer_name: Some(AnalyzerName::Throughput), ..SaturationEntry::default() };
    Snapshot {
        config: Config { saturation: [("default".to_owned(), entry)].into(), ..Config::default() },
        learned,
        models: vec![model],
        ..Snapshot::default()
    }
}

#[track_caller]
fn counted(memory: &Learned, last: &[f64]) {
    let all = arrivals::levels(memory);
    assert_eq!(format!("{:?}", &all[all.len() - last.len()..]), format!("{last:?}"), "of {all:?}");
}

#[test]
fn arrivals_are_counted_whatever_becomes_of_scrapes_and_servers() {
    let first = || watch(None, 0, &[("p", &[(0, 100.0, 4.0), (15, 70.0, 4.0), (30, 40.0, 4.0)])]);
    counted(&first(), &[30.0, 30.0]);
    let steady = [(0, 220.0, 4.0), (15, 190.0, 4.0), (30, 160.0, 4.0), (45, 130.0, 4.0)];
    let after = |scrapes: &[(u64, f64, f64)]| watch(Some(first()), 60, &[("p", scrapes)]);
    counted(&after(&steady), &[30.0; 6]);
    // Requests that run have arrived.
    counted(&after(&[(0, 160.0, 64.0), (15, 160.0, 34.0), (30, 160.0, 4.0), (45, 130.0, 4.0)]), &[30.0; 6]);
    // A scrape was lost, then the newest one is late.
    counted(&after(&[steady[0], steady[1], steady[3]]), &[30.0; 6]);
    counted(&after(&steady[1..]), &[30.0; 6]);
    // Only the last ones are kept of a long time.
    let long = watch(Some(first()), 180, &[("p", &[(0, 460.0, 4.0), (15, 430.0, 4.0)])]);
    counted(&long, &[30.0; 14]);
    // Its server started anew, and did ten since.
    counted(&after(&[(0, 10.0, 2.0), steady[1], steady[2], steady[3]]), &[30.0, 30.0, 30.0, 12.0]);
    // Clients left: nothing came, but nothing less.
    counted(&after(&[(0, 190.0, 0.0), steady[1], steady[2], steady[3]]), &[30.0, 30.0, 30.0, 0.0]);
}

#[test]
fn engines_that_share_a_pod_are_learnt_as_one_and_counted_as_many() {
    // What a pod shows that does the same as another one with so many engines.
    let learnt = |ranks: u32| {
        let (mut learned, mut throughput) = (Vec::new(), 0.0);
        for cycle in 1..=20_u32 {
            let scrape = |ago: u32| {
                let done = f64::from(ranks * (cycle + 10 - ago)) * 149.0;
                WorkSample {
                    age: GoDuration::from_secs(u64::from(15 * ago)),
                    completed: amount(done),
                    prompt_tokens: amount(100.0 * done),
                    generated_tokens: amount(100.0 * done),
                    running: amount(37.0 * f64::from(ranks)),
                    ..WorkSample::default()
                }
            };
            let replica = Replica {
                pod: "p".to_owned(),
                kv: Some(KvUsage::default()),
                mean_input: Some(amount(100.0)),
                mean_output: Some(amount(100.0)),
                work: vec![scrape(0), scrape(1)],
                ranks: Some(ranks),
                ..Replica::default()
            };
            let snapshot = of_replicas(learned, vec![replica]);
            let outcome = crate::decide(&snapshot);
            throughput = outcome.decisions[0].steps[0].reason.flow().unwrap().throughput;
            let passed = std::time::Duration::from_secs(15);
            learned = outcome.next.learned.into_iter().map(|l| l.after(passed)).collect();
        }
        (times(&learned[0].curves[0]), throughput)
    };
    let ((one, by_one), (four, by_four)) = (learnt(1), learnt(4));
    for (one, four) in one.each().into_iter().zip(four.each()) {
        near(four, one, 1e-6);
    }
    near(by_four, 4.0 * by_one, 1e-6);
}

#[test]
fn pods_come_and_go() {
    let first = watch(None, 0, &[("p", &[(0, 100.0, 4.0), (15, 70.0, 4.0)])]);
    let steady = [(0, 160.0, 4.0), (15, 130.0, 4.0)];
    // A new one counts from 0.
    let born = watch(Some(first.clone()), 30, &[("p", &steady), ("q", &[(0, 5.0, 7.0)])]);
    counted(&born, &[30.0, 42.0]);
    // One that was out of sight for long has done more than it can have done since.
    let returned = watch(Some(first.clone()), 30, &[("p", &steady), ("q", &[(0, 9000.0, 7.0)])]);
    counted(&returned, &[30.0, 30.0 + 120.0 + 7.0]);
    // One that is gone takes nothing back of what arrived there.
    let gone = watch(Some(born), 30, &[("q", &[(0, 65.0, 7.0), (15, 35.0, 7.0)])]);
    counted(&gone, &[30.0, 42.0, 30.0, 30.0]);
    // After a long pause all is new.
    let anew = watch(Some(first), 301, &[("p", &[(0, 9000.0, 4.0), (15, 8970.0, 4.0)])]);
    assert_eq!(anew.arrivals.len(), 1);
    counted(&anew, &[30.0]);
}

/// Requests a second.
const ARRIVING: f64 = 20.0;

/// Requests that each of three pods has got until then: two share them alike, then for 45 s a router sends all to the third,
/// which is new, and after that to all alike.
fn got(pod: usize, moved: u32, until: u32) -> f64 {
    let phases = [(0, [0.5, 0.5, 0.0]), (moved, [0.0, 0.0, 1.0]), (moved + 45, [1.0 / 3.0; 3])];
    let ends = [moved, moved + 45, u32::MAX];
    let lasted = |(began, end): (u32, u32)| f64::from(end.min(until).saturating_sub(began));
    phases.iter().zip(ends).map(|((began, shares), end)| ARRIVING * shares[pod] * lasted((*began, end))).sum()
}

#[test]
fn what_a_router_moves_to_another_pod_does_not_count_twice() {
    // The moments in which the pods are scraped, whichever of them is first, and that in which the router turns.
    let moments = [[1, 6, 14], [14, 9, 0], [7, 7, 3], [0, 14, 7]];
    for (offsets, moved) in
        moments.into_iter().flat_map(|offsets| (120..135).map(move |moved| (offsets, moved)))
    {
        let mut memory = None;
        for now in (90..=300_u32).step_by(15) {
            let seen_of = |(pod, offset): (usize, &u32)| {
                let newest = now - (now - offset) % 15;
                let scrapes = (0..6).map(|ago| newest - 15 * ago).filter(|at| pod < 2 || *at > moved);
                scrapes.map(|at| (u64::from(now - at), got(pod, moved, at), 0.0)).collect::<Vec<_>>()
            };
            let scrapes: Vec<Vec<_>> = offsets.iter().enumerate().map(seen_of).collect();
            let pods = ["p", "q", "r"].into_iter().zip(scrapes.iter().map(Vec::as_slice));
            let shown: Vec<Shown> = pods.filter(|(_, scrapes)| !scrapes.is_empty()).collect();
            let after = watch(memory, 15, &shown);
            let levels = arrivals::levels(&after);
            let share = arrivals::rate(&levels, 60.0).unwrap() / ARRIVING;
            let told = format!("{share} at {now} s, moved at {moved} s, scraped at {offsets:?}: {levels:?}");
            assert!((0.85..1.06).contains(&share), "{told}");
            memory = Some(after);
        }
    }
}

#[test]
fn what_no_variant_has_any_more_is_forgotten_after_a_day() {
    let curve_of = |accelerator: &str, hours: u64| Curve {
        accelerator: accelerator.to_owned(),
        quiet: GoDuration::from_secs(3600 * hours),
        ..curve()
    };
    let curves = vec![curve_of("unresolved", 100), curve_of("A100", 23), curve_of("L40S", 25)];
    let before =
        Learned { model_id: "m".to_owned(), namespace: "ns".to_owned(), curves, ..Learned::default() };
    let after = watch(Some(before), 15, &[("p", &[(0, 1.0, 1.0)])]);
    let kept: Vec<&str> = after.curves.iter().map(|c| c.accelerator.as_str()).collect();
    assert_eq!(kept, ["unresolved", "A100"]);
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
