//! Counters of engines over rounds, restarts and several engines.

use super::*;

fn key() -> PodModel {
    PodModel { namespace: "ns".into(), pod: "a-0".into(), model_name: "m".into() }
}

fn rows_of(engine: &str, age: f64, completed: f64) -> Vec<WorkRow> {
    let value = |counter| match counter {
        Counter::Age => age,
        Counter::Completed => completed,
        _ => 1.0,
    };
    let engine = EngineKey { pod: key(), engine: engine.into() };
    let all = Counter::GAUGES.into_iter().chain(Counter::COUNTERS).chain([Counter::Age]);
    let row =
        |counter| WorkRow { counter, rank: 0, is_part: false, engine: engine.clone(), value: value(counter) };
    all.map(row).collect()
}

fn rows(age: f64, completed: f64) -> Vec<WorkRow> {
    rows_of("0", age, completed)
}

fn samples(history: &CounterHistory, now: Instant) -> Vec<(u64, f64)> {
    let (all, _) = history.samples_of(&[&key()], None, now);
    all.iter().map(|s| (s.age.get().as_secs(), s.completed.get())).collect()
}

#[test]
fn keeps_scrapes_once_and_in_order() {
    let mut history = CounterHistory::default();
    let began = Instant::now();
    history.add(began, rows(3.0, 20.0));
    history.add(began, rows(18.0, 10.0));
    // The next round repeats the newest scrape of the last one.
    let later = began + Duration::from_secs(15);
    history.add(later, rows(18.2, 20.0));
    history.add(later, rows(3.2, 30.0));
    assert_eq!(samples(&history, later), [(33, 10.0), (18, 20.0), (3, 30.0)]);
    for i in 0..10_u32 {
        history.add(later + Duration::from_secs(15) * (i + 1), rows(3.0, 40.0));
    }
    assert_eq!(history.0[&key()].engines["0"].samples.len(), MAX_SCRAPES);
}

#[test]
fn of_two_names_the_current_one_counts() {
    let mut history = CounterHistory::default();
    let began = Instant::now();
    let older = |value| {
        let row = rows(3.0, value).into_iter().find(|row| row.counter == Counter::Completed);
        row.map(|row| WorkRow { rank: 1, ..row })
    };
    history.add(began, rows(18.0, 10.0).into_iter().chain(older(7.0)).collect());
    history.add(began, older(8.0).into_iter().chain(rows(3.0, 11.0)).collect());
    assert_eq!(samples(&history, began), [(18, 10.0), (3, 11.0)]);
}

#[test]
fn sums_engines_and_survives_restarts() {
    let mut history = CounterHistory::default();
    let began = Instant::now();
    let at = |step: u32| began + Duration::from_secs(15) * step;
    // The engines are scraped at different times, and the second appears a step later.
    let rounds =
        [(100.0, None), (110.0, Some(50.0)), (120.0, Some(60.0)), (130.0, Some(2.0)), (140.0, Some(12.0))];
    for (step, (first, second)) in (0..).zip(rounds) {
        history.add(at(step), rows_of("0", 3.0, first));
        if let Some(second) = second {
            history.add(at(step), rows_of("1", 7.0, second));
        }
    }
    let counts =
        |history: &CounterHistory, now| samples(history, now).into_iter().map(|(_, n)| n).collect::<Vec<_>>();
    assert_eq!(
        counts(&history, at(4)),
        [160.0, 180.0, 192.0, 212.0],
        "110 + 50, 120 + 60, 130 + 62, 140 + 72"
    );
    let (samples, engines) = history.samples_of(&[&key()], None, at(4));
    assert_eq!((samples[0].running.get(), samples[0].generated_tokens.get(), engines), (2.0, 2.0, 2));
    // The counts from before the restart of the second engine remain.
    for step in 5..20 {
        history.add(at(step), rows_of("0", 3.0, 140.0));
        history.add(at(step), rows_of("1", 7.0, 12.0));
    }
    assert_eq!(counts(&history, at(19)), [212.0; MAX_SCRAPES]);
    // An engine that is no longer scraped keeps its last counts.
    for step in 20..40 {
        history.add(at(step), rows_of("0", 3.0, 150.0));
        history.remove_expired(at(step), |_| Duration::from_mins(1));
    }
    assert_eq!(counts(&history, at(39)), [222.0; MAX_SCRAPES]);
    let (samples, engines) = history.samples_of(&[&key()], Some(at(37)), at(39));
    assert_eq!((samples.len(), samples[0].completed.get(), engines), (2, 222.0, 1), "a new pod");
}

#[test]
fn parts_of_a_gauge_are_added() {
    let mut history = CounterHistory::default();
    let began = Instant::now();
    let part = |row: &WorkRow| WorkRow { is_part: true, value: 7.0, ..row.clone() };
    let own = rows(3.0, 10.0);
    let parts: Vec<WorkRow> = own.iter().filter(|row| row.counter == Counter::Waiting).map(part).collect();
    history.add(began, parts.into_iter().chain(own).collect());
    let (all, _) = history.samples_of(&[&key()], None, began);
    assert_eq!((all[0].waiting.get(), all[0].running.get()), (8.0, 1.0));
}

#[test]
fn single_engine_shows_its_restart() {
    let mut history = CounterHistory::default();
    let began = Instant::now();
    history.add(began, rows(18.0, 100.0));
    history.add(began, rows(3.0, 5.0));
    assert_eq!(samples(&history, began), [(18, 100.0), (3, 5.0)]);
}

#[test]
fn skips_pod_without_counts_and_removes_expired_pod() {
    let mut history = CounterHistory::default();
    let began = Instant::now();
    let without = |counter| rows(3.0, 1.0).into_iter().filter(|r| r.counter != counter).collect::<Vec<_>>();
    history.add(began, without(Counter::GeneratedTokens));
    history.add(began, without(Counter::Age));
    assert_eq!(samples(&history, began), []);
    history.add(began, without(Counter::Gaps));
    assert_eq!(samples(&history, began).len(), 1);
    history.remove_expired(began + Duration::from_secs(100), |_| Duration::from_mins(1));
    assert!(history.0.is_empty());
}

#[test]
fn engines_that_are_gone_are_dropped_and_their_counts_stay() {
    let mut history = CounterHistory::default();
    let began = Instant::now();
    let at = |step: u32| began + Duration::from_secs(15) * step;
    for step in 0..2 {
        history.add(at(step), rows_of("0", 3.0, 100.0 + f64::from(step)));
        history.add(at(step), rows_of("1", 3.0, 50.0 + f64::from(step)));
    }
    for step in 2..9 {
        history.add(at(step), rows_of("0", 3.0, 100.0 + f64::from(step)));
    }
    let before = samples(&history, at(8));
    assert_eq!(before.last(), Some(&(3, 159.0)), "108 + 51");
    history.remove_expired(at(8), |_| Duration::from_mins(1));
    assert_eq!((history.0[&key()].engines.len(), samples(&history, at(8))), (1, before));
    history.remove_expired(at(20), |_| Duration::from_mins(1));
    assert!(history.0.is_empty());
}

#[test]
fn engines_that_change_their_names_are_a_bounded_number() {
    let mut history = CounterHistory::default();
    let began = Instant::now();
    for round in 0..1000_u32 {
        for engine in 0..70 {
            let name = format!("{round}-{engine}");
            history.add(began + Duration::from_secs(15) * round, rows_of(&name, 3.0, 1.0));
        }
    }
    assert!(history.0[&key()].engines.len() <= MAX_ENGINES, "{}", history.0[&key()].engines.len());
}
