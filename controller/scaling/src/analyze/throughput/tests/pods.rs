//! Tests of counting and learning from the scrapes of pods, over several cycles.

use super::*;

/// A pod: its name, and for each scrape its age in seconds, finished requests and running requests.
type PodScrapes<'a> = (&'a str, &'a [(u64, f64, f64)]);

/// Memory of the model after a cycle, `elapsed` seconds after the one before.
fn next_memory(before: Option<ThroughputMemory>, elapsed: u64, pods: &[PodScrapes]) -> ThroughputMemory {
    let replica = |(pod, scrapes): &PodScrapes| {
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
    let learned = before.into_iter().map(|l| l.aged_by(std::time::Duration::from_secs(elapsed))).collect();
    let snapshot = model_of(learned, pods.iter().map(replica).collect());
    crate::decide(&snapshot).next.learned.remove(0)
}

/// A model with one variant with these replicas.
pub(super) fn model_of(learned: Vec<ThroughputMemory>, replicas: Vec<Replica>) -> Snapshot {
    let current = u32::try_from(replicas.len()).unwrap();
    let variant = Variant { name: "a".to_owned(), current, replicas, ..Variant::default() };
    let saturation =
        SaturationEntry { analyzer_name: Some(AnalyzerName::Throughput), ..SaturationEntry::default() };
    let model = Model {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        settings: ModelSettings { saturation, ..ModelSettings::default() },
        variants: vec![variant],
        ..Model::default()
    };
    Snapshot { learned, models: vec![model], ..Snapshot::default() }
}

#[track_caller]
fn assert_arrivals(memory: &ThroughputMemory, last: &[f64]) {
    let all = arrivals::per_step(memory);
    assert_eq!(format!("{:?}", &all[all.len() - last.len()..]), format!("{last:?}"), "all: {all:?}");
}

#[test]
fn counts_arrivals_across_lost_scrapes_and_restarts() {
    let first = || next_memory(None, 0, &[("p", &[(0, 100.0, 4.0), (15, 70.0, 4.0), (30, 40.0, 4.0)])]);
    assert_arrivals(&first(), &[30.0, 30.0]);
    let steady = [(0, 220.0, 4.0), (15, 190.0, 4.0), (30, 160.0, 4.0), (45, 130.0, 4.0)];
    let after = |scrapes: &[(u64, f64, f64)]| next_memory(Some(first()), 60, &[("p", scrapes)]);
    assert_arrivals(&after(&steady), &[30.0; 6]);
    // Running requests have arrived.
    assert_arrivals(
        &after(&[(0, 160.0, 64.0), (15, 160.0, 34.0), (30, 160.0, 4.0), (45, 130.0, 4.0)]),
        &[30.0; 6],
    );
    // A scrape is lost, then the newest one is late.
    assert_arrivals(&after(&[steady[0], steady[1], steady[3]]), &[30.0; 6]);
    assert_arrivals(&after(&steady[1..]), &[30.0; 6]);
    // A long pause: only the last steps are kept.
    let long = next_memory(Some(first()), 180, &[("p", &[(0, 460.0, 4.0), (15, 430.0, 4.0)])]);
    assert_arrivals(&long, &[30.0; 14]);
    // The server restarted, and finished ten requests since.
    assert_arrivals(&after(&[(0, 10.0, 2.0), steady[1], steady[2], steady[3]]), &[30.0, 30.0, 30.0, 12.0]);
    // Clients left: no arrivals, but not fewer than 0.
    assert_arrivals(&after(&[(0, 190.0, 0.0), steady[1], steady[2], steady[3]]), &[30.0, 30.0, 30.0, 0.0]);
}

/// Counters of a real server whose clients cancel requests, in most of which they waited for tokens. At the last scrape,
/// the prompts of three running requests are computed.
#[test]
fn cancelled_requests_arrive_too() {
    let scrapes =
        [(45, 10.0, 4.0, 14.0), (30, 20.0, 4.0, 34.0), (15, 25.0, 10.0, 60.0), (0, 35.0, 10.0, 72.0)];
    let work = |with_first_tokens: bool| {
        let sample = |(age, completed, running, first_tokens): (u64, f64, f64, f64)| WorkSample {
            age: GoDuration::from_secs(age),
            completed: amount(completed),
            first_tokens: amount(if with_first_tokens { first_tokens } else { 0.0 }),
            running: amount(running),
            ..WorkSample::default()
        };
        let work = scrapes.map(sample).into();
        let replica =
            Replica { pod: "p".to_owned(), kv: Some(KvUsage::default()), work, ..Replica::default() };
        crate::decide(&model_of(Vec::new(), vec![replica])).next.learned.remove(0)
    };
    let memory = work(true);
    // 34 - 24 are cancelled until the second scrape, 25 until the third, and 27 until the last.
    assert_arrivals(&memory, &[20.0, 26.0, 12.0]);
    assert!((memory.pods[0].cancelled.get() - 27.0).abs() < 1e-9, "{:?}", memory.pods[0]);
    // A server without the histogram.
    assert_arrivals(&work(false), &[10.0, 11.0, 10.0]);
}

#[test]
fn prompts_in_computation_are_no_cancelled_requests() {
    // Sixteen prompts start at once, each without a first token until the next scrape.
    let scrapes =
        [(45, 20.0, 0.0, 22.0), (30, 20.0, 16.0, 22.0), (15, 36.0, 0.0, 38.0), (0, 36.0, 16.0, 38.0)];
    let sample = |(age, completed, running, first_tokens): (u64, f64, f64, f64)| WorkSample {
        age: GoDuration::from_secs(age),
        completed: amount(completed),
        first_tokens: amount(first_tokens),
        running: amount(running),
        ..WorkSample::default()
    };
    let work = scrapes.map(sample).into();
    let replica = Replica { pod: "p".to_owned(), kv: Some(KvUsage::default()), work, ..Replica::default() };
    let memory = crate::decide(&model_of(Vec::new(), vec![replica])).next.learned.remove(0);
    assert_arrivals(&memory, &[16.0, 0.0, 16.0]);
}

/// Of the requests that a full queue refuses, at most as many count as it takes: clients try again.
#[test]
fn refused_requests_arrive_too() {
    let scrapes = [(45, 10.0, 0.0), (30, 20.0, 4.0), (15, 30.0, 4.0), (0, 40.0, 1000.0)];
    let sample = |(age, completed, refused): (u64, f64, f64)| WorkSample {
        age: GoDuration::from_secs(age),
        completed: amount(completed),
        refused: amount(refused),
        ..WorkSample::default()
    };
    let work = scrapes.map(sample).into();
    let replica = Replica { pod: "p".to_owned(), kv: Some(KvUsage::default()), work, ..Replica::default() };
    let memory = crate::decide(&model_of(Vec::new(), vec![replica])).next.learned.remove(0);
    assert_arrivals(&memory, &[14.0, 10.0, 20.0]);
}

/// An engine whose cache has half of each prompt is learned as one with prompts of half the length, and planned alike.
#[test]
fn prompts_of_a_cache_cost_no_time() {
    let learn = |input: f64, cached: f64| {
        let (mut learned, mut throughput) = (Vec::new(), 0.0);
        for cycle in 1..=20_u32 {
            let scrape = |ago: u32| {
                let done = 100.0 * f64::from(cycle + 10 - ago);
                WorkSample {
                    age: GoDuration::from_secs(u64::from(15 * ago)),
                    completed: amount(done),
                    prompt_tokens: amount(input * done),
                    cached_tokens: amount(cached * done),
                    generated_tokens: amount(50.0 * done),
                    running: amount(20.0),
                    ..WorkSample::default()
                }
            };
            let replica = Replica {
                pod: "p".to_owned(),
                kv: Some(KvUsage::default()),
                mean_input: Some(amount(input)),
                mean_output: Some(amount(50.0)),
                work: vec![scrape(0), scrape(1)],
                ..Replica::default()
            };
            let mut outcome = crate::decide(&model_of(learned, vec![replica]));
            throughput = outcome.decisions[0].steps[0].reason.flow().unwrap().throughput;
            let passed = std::time::Duration::from_secs(15);
            learned = outcome.next.learned.drain(..).map(|l| l.aged_by(passed)).collect();
        }
        (learned.remove(0).curves, throughput)
    };
    let (curves, throughput) = learn(400.0, 200.0);
    assert!(throughput > 0.0);
    let (short, of_short) = learn(200.0, 0.0);
    assert_eq!(curves, short);
    assert!((throughput - of_short).abs() < 1e-6, "{throughput} and {of_short} req/s");
    assert!(learn(400.0, 0.0).0 != learn(400.0, 200.0).0, "without a cache");
}

#[test]
fn engines_of_a_pod_share_one_curve_and_add_up() {
    // Curve and throughput of a pod whose engines each do the same.
    let learn = |ranks: u32| {
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
            let snapshot = model_of(learned, vec![replica]);
            let outcome = crate::decide(&snapshot);
            throughput = outcome.decisions[0].steps[0].reason.flow().unwrap().throughput;
            let passed = std::time::Duration::from_secs(15);
            learned = outcome.next.learned.into_iter().map(|l| l.aged_by(passed)).collect();
        }
        (fitted_times(&learned[0].curves[0]), throughput)
    };
    let ((one, by_one), (four, by_four)) = (learn(1), learn(4));
    for (one, four) in one.to_array().into_iter().zip(four.to_array()) {
        assert_near(four, one, 1e-6);
    }
    assert_near(by_four, 4.0 * by_one, 1e-6);
}

#[test]
fn counts_new_and_gone_pods() {
    let first = next_memory(None, 0, &[("p", &[(0, 100.0, 4.0), (15, 70.0, 4.0)])]);
    let steady = [(0, 160.0, 4.0), (15, 130.0, 4.0)];
    // A new pod counts from 0.
    let with_new = next_memory(Some(first.clone()), 30, &[("p", &steady), ("q", &[(0, 5.0, 7.0)])]);
    assert_arrivals(&with_new, &[30.0, 42.0]);
    // The counters of a pod without scrapes for long are older than the step.
    let returned = next_memory(Some(first.clone()), 30, &[("p", &steady), ("q", &[(0, 9000.0, 7.0)])]);
    assert_arrivals(&returned, &[30.0, 30.0 + 120.0]);
    // The arrivals of a gone pod stay counted.
    let gone = next_memory(Some(with_new), 30, &[("q", &[(0, 65.0, 7.0), (15, 35.0, 7.0)])]);
    assert_arrivals(&gone, &[30.0, 42.0, 30.0, 30.0]);
    // After a long pause counting starts again.
    let restarted = next_memory(Some(first), 301, &[("p", &[(0, 9000.0, 4.0), (15, 8970.0, 4.0)])]);
    assert_eq!(restarted.arrivals.len(), 1);
    assert_arrivals(&restarted, &[30.0]);
}

#[test]
fn history_is_dropped_after_a_blackout() {
    let before =
        next_memory(None, 0, &[("p", &[(0, 100.0, 4.0), (15, 70.0, 4.0)]), ("q", &[(0, 50.0, 4.0)])]);
    let without_scrapes = |memory: ThroughputMemory| {
        let mut snapshot = model_of(vec![memory.aged_by(std::time::Duration::from_secs(15))], Vec::new());
        snapshot.models[0].variants[0].current = 2;
        crate::decide(&snapshot).next.learned.remove(0)
    };
    let blackout = (0..26).fold(before, |memory, _| without_scrapes(memory));
    let pods = [("p", &[(0, 9000.0, 80.0)][..]), ("q", &[(0, 9000.0, 80.0)][..])];
    let after = next_memory(Some(blackout), 15, &pods);
    assert_eq!((after.arrivals.len(), after.watched), (0, GoDuration::default()));
}

#[test]
fn fallback_does_not_shrink_while_lost_counters_are_known() {
    let idle = |work: &[WorkSample]| {
        let replica = |pod: &str| Replica {
            pod: pod.to_owned(),
            kv: Some(KvUsage::default()),
            queue: Some(crate::units::QueueLength::default()),
            work: work.to_vec(),
            ..Replica::default()
        };
        ["p", "q", "r"].map(replica).to_vec()
    };
    let sample = WorkSample { completed: amount(9.0), ..WorkSample::default() };
    let mut learned = Vec::new();
    let mut targets = Vec::new();
    // Counters in one cycle, then none for six minutes.
    for cycle in 0..25 {
        let work = if cycle == 0 { vec![sample] } else { Vec::new() };
        let outcome = crate::decide(&model_of(learned, idle(&work)));
        targets.push(outcome.decisions[0].target());
        let passed = std::time::Duration::from_secs(15);
        learned = outcome.next.learned.into_iter().map(|l| l.aged_by(passed)).collect();
    }
    assert_eq!((&targets[..20], targets[24]), (&[3; 20][..], 2), "{targets:?}");
}

/// Arrival rate, requests per second.
const ARRIVAL_RATE: f64 = 20.0;

/// Requests that a pod has received until then: two pods share them, then for 45 s a router sends all to a new third pod,
/// and after that to all three.
fn received(pod: usize, moved: u32, until: u32) -> f64 {
    let phases = [(0, [0.5, 0.5, 0.0]), (moved, [0.0, 0.0, 1.0]), (moved + 45, [1.0 / 3.0; 3])];
    let ends = [moved, moved + 45, u32::MAX];
    let lasted = |(began, end): (u32, u32)| f64::from(end.min(until).saturating_sub(began));
    phases
        .iter()
        .zip(ends)
        .map(|((began, shares), end)| ARRIVAL_RATE * shares[pod] * lasted((*began, end)))
        .sum()
}

#[test]
fn requests_moved_to_another_pod_do_not_count_twice() {
    // Scrape times of the pods in every order, and every time of the router's change within a step.
    let scrape_offsets = [[1, 6, 14], [14, 9, 0], [7, 7, 3], [0, 14, 7]];
    for (offsets, moved) in
        scrape_offsets.into_iter().flat_map(|offsets| (120..135).map(move |moved| (offsets, moved)))
    {
        let mut memory = None;
        for now in (90..=300_u32).step_by(15) {
            let scrapes_of = |(pod, offset): (usize, &u32)| {
                let newest = now - (now - offset) % 15;
                let scrapes = (0..6).map(|ago| newest - 15 * ago).filter(|at| pod < 2 || *at > moved);
                scrapes.map(|at| (u64::from(now - at), received(pod, moved, at), 0.0)).collect::<Vec<_>>()
            };
            let scrapes: Vec<Vec<_>> = offsets.iter().enumerate().map(scrapes_of).collect();
            let pods = ["p", "q", "r"].into_iter().zip(scrapes.iter().map(Vec::as_slice));
            let pods: Vec<PodScrapes> = pods.filter(|(_, scrapes)| !scrapes.is_empty()).collect();
            let after = next_memory(memory, 15, &pods);
            let steps = arrivals::per_step(&after);
            let share = arrivals::rate(&steps, 60.0).unwrap() / ARRIVAL_RATE;
            let context =
                format!("{share} at {now} s, moved at {moved} s, scraped at {offsets:?}: {steps:?}");
            assert!((0.85..1.06).contains(&share), "{context}");
            memory = Some(after);
        }
    }
}

#[test]
fn curves_without_a_variant_expire_after_a_day() {
    let curve_of = |accelerator: &str, hours: u64| Curve {
        accelerator: accelerator.into(),
        quiet: GoDuration::from_secs(3600 * hours),
        ..curve()
    };
    let curves = vec![curve_of("unresolved", 100), curve_of("A100", 23), curve_of("L40S", 25)];
    let before = ThroughputMemory {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        curves,
        ..ThroughputMemory::default()
    };
    let after = next_memory(Some(before), 15, &[("p", &[(0, 1.0, 1.0)])]);
    let accelerators: Vec<&str> = after.curves.iter().map(|c| &*c.accelerator).collect();
    assert_eq!(accelerators, ["unresolved", "A100"]);
}
