//! Log lines of cycles.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use wva_runtime::repeats::RepeatCounters;
use wva_scaling::Warning;

use super::*;
use crate::cycle::engine::decider::log_warnings;

thread_local! {
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes to the log lines of the current thread.
struct ThreadLines;

impl io::Write for ThreadLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| io::Write::write(lines, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts to record the log lines of this thread, at `info` and above, as `message field=value`.
///
/// The subscriber is global. With one subscriber per test, `tracing` may cache a call site as disabled if another
/// test reaches it first.
fn record_lines() {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        let lines = tracing_subscriber::fmt().with_writer(|| ThreadLines).with_ansi(false);
        let lines = lines.with_level(false).with_target(false).without_time().finish();
        tracing::subscriber::set_global_default(lines).unwrap();
    });
    LINES.take();
}

/// Removes and returns this thread's lines that contain `text`, without the span of their cycle.
fn take_lines(text: &str) -> Vec<String> {
    let all = String::from_utf8(LINES.take()).unwrap();
    let (with, others): (Vec<_>, Vec<_>) = all.lines().partition(|line| line.contains(text));
    LINES.set(others.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect());
    let message = |line: &str| match line.strip_prefix("cycle{").and_then(|line| line.split_once("}: ")) {
        Some((_, message)) => message.to_owned(),
        None => line.to_owned(),
    };
    with.into_iter().map(message).collect()
}

#[tokio::test]
async fn each_cycle_logs_its_two_runbook_lines_once() {
    record_lines();
    let mut bench = Bench::busy().await;
    for _ in 0..3 {
        bench.turn().await;
        let emitted = take_lines("Emitted optimization signals for external autoscaler consumption");
        assert_eq!(emitted.len(), 1, "{emitted:?}");
        let completed = take_lines("Reconciliation completed");
        assert_eq!(completed, ["Reconciliation completed variants_processed=1 optimization_successful=true"]);
    }
}

#[tokio::test]
async fn a_lasting_safety_net_logs_its_start_and_end() {
    record_lines();
    let mut bench = Bench::new(cluster(json!({})), down()).await;
    for _ in 0..4 {
        bench.turn().await;
    }
    let begun = take_lines("Safety net activated: emitted fallback metrics");
    assert_eq!(begun.len(), 1, "{begun:?}");
    assert!(begun[0].contains("fallbackSource=\"current-replicas\""), "{begun:?}");
    bench.fake.set_reply(busy());
    bench.turn().await;
    assert_eq!(take_lines("Safety net ended"), ["Safety net ended namespace=\"ns\" variant=\"a\" count=4"]);
    bench.fake.set_reply(down());
    bench.state.sampler.samples = Samples::default();
    bench.turn().await;
    assert_eq!(take_lines("Safety net activated").len(), 1, "activated again");
}

#[tokio::test]
async fn a_recreated_workload_logs_its_changed_target() {
    record_lines();
    let mut bench = Bench::new(cluster(json!({})), down()).await;
    for replicas in [Some(6), None, None, Some(3), Some(3)] {
        match replicas {
            Some(n) => bench.cluster.deployment("a", n, n),
            None => bench.cluster.without_deployment("a"),
        };
        assert_eq!(bench.turn().await.signal(), replicas);
    }
    let changes = take_lines("ScalingDecision");
    assert!(changes.len() == 1 && changes[0].starts_with("target 6 -> 3 ("), "{changes:?}");
}

#[test]
fn warnings_of_one_kind_share_a_line_with_a_count() {
    record_lines();
    let lacking = |variant: usize| Warning::AcceleratorNotInInventory {
        namespace: "ns".to_owned(),
        variant: format!("v{variant:03}"),
        accelerator: "H100".to_owned(),
    };
    let warnings: Vec<_> = (0..270).map(lacking).collect();
    let mut warned = RepeatCounters::default();
    let start = Instant::now();
    let at = |minute: u64| start + Duration::from_mins(minute);
    for minute in 0..=60 {
        log_warnings(&mut warned, &warnings, at(minute));
    }
    log_warnings(&mut warned, &warnings[1..], at(61));
    log_warnings(&mut warned, &[], at(62));
    let logged = take_lines("ns/v");
    let begins = |line: &str, start: &str, end: &str| line.starts_with(start) && line.ends_with(end);
    assert_eq!(logged.len(), 4, "{logged:?}");
    assert!(begins(&logged[0], "variant ns/v000 ", "; and 269 more like it count=1"), "{}", logged[0]);
    assert!(begins(&logged[1], "variant ns/v000 ", "; and 269 more like it count=61"), "{}", logged[1]);
    assert!(begins(&logged[2], "Resolved: variant ns/v000 ", " count=61"), "{}", logged[2]);
    assert!(
        begins(&logged[3], "Resolved: variant ns/v001 ", "; and 268 more like it count=62"),
        "{}",
        logged[3]
    );
}
