//! What is counted and learnt of pods as their scrapes show them, from cycle to cycle.

use super::*;

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
    counted(&returned, &[30.0, 30.0 + 120.0]);
    // One that is gone takes nothing back of what arrived there.
    let gone = watch(Some(born), 30, &[("q", &[(0, 65.0, 7.0), (15, 35.0, 7.0)])]);
    counted(&gone, &[30.0, 42.0, 30.0, 30.0]);
    // After a long pause all is new.
    let anew = watch(Some(first), 301, &[("p", &[(0, 9000.0, 4.0), (15, 8970.0, 4.0)])]);
    assert_eq!(anew.arrivals.len(), 1);
    counted(&anew, &[30.0]);
}

#[test]
fn after_a_blackout_nothing_is_known_of_the_time_before() {
    let before = watch(None, 0, &[("p", &[(0, 100.0, 4.0), (15, 70.0, 4.0)]), ("q", &[(0, 50.0, 4.0)])]);
    let unseen = |memory: Learned| {
        let mut snapshot = of_replicas(vec![memory.after(std::time::Duration::from_secs(15))], Vec::new());
        snapshot.models[0].variants[0].current = 2;
        crate::decide(&snapshot).next.learned.remove(0)
    };
    let blackout = (0..26).fold(before, |memory, _| unseen(memory));
    let shown = [("p", &[(0, 9000.0, 80.0)][..]), ("q", &[(0, 9000.0, 80.0)][..])];
    let after = watch(Some(blackout), 15, &shown);
    assert_eq!((after.arrivals.len(), after.watched), (0, GoDuration::default()));
}

#[test]
fn while_lost_counters_are_remembered_percentages_take_nothing() {
    let idle = |work: &[WorkSample]| {
        let of = |pod: &str| Replica {
            pod: pod.to_owned(),
            kv: Some(KvUsage::default()),
            work: work.to_vec(),
            ..Replica::default()
        };
        ["p", "q", "r"].map(of).to_vec()
    };
    let sample = WorkSample { completed: amount(9.0), ..WorkSample::default() };
    let mut learned = Vec::new();
    let mut targets = Vec::new();
    // Counters once, and then none for six minutes.
    for cycle in 0..25 {
        let shown = if cycle == 0 { vec![sample] } else { Vec::new() };
        let outcome = crate::decide(&of_replicas(learned, idle(&shown)));
        targets.push(outcome.decisions[0].target());
        let passed = std::time::Duration::from_secs(15);
        learned = outcome.next.learned.into_iter().map(|l| l.after(passed)).collect();
    }
    assert_eq!((&targets[..20], targets[24]), (&[3; 20][..], 2), "{targets:?}");
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
