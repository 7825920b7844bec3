//! What cycles log: how often, and what about.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use wva_scaling::Warning;

use super::*;
use crate::engine::narrate::log_warnings;
use crate::repeats::RepeatCounters;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what each thread logs at `info` and above, as `message field=value`.
///
/// One subscriber for the process. With one for each test, a call site that a test without a subscriber reaches first
/// can be cached as disabled (`tracing` asks the current thread's subscriber alone while there is only one).
struct LineKeeper;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.insert_str(0, &format!("{value:?}"));
        } else {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }
}

impl tracing::Subscriber for LineKeeper {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| lines.push(line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Begins a test: its thread has logged nothing yet.
fn keep_lines() {
    static KEEPER: Once = Once::new();
    KEEPER.call_once(|| tracing::subscriber::set_global_default(LineKeeper).unwrap());
    LINES.take();
}

/// Takes this thread's lines with this text.
fn lines_with(text: &str) -> Vec<String> {
    LINES.with_borrow_mut(|lines| lines.extract_if(.., |line| line.contains(text)).collect())
}

#[tokio::test]
async fn each_cycle_logs_its_two_lines_once() {
    keep_lines();
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    for _ in 0..3 {
        turn(&engine, &mut state).await;
        let emitted = lines_with("Emitted optimization signals for external autoscaler consumption");
        assert_eq!(emitted.len(), 1, "{emitted:?}");
        let completed = lines_with("Reconciliation completed");
        assert_eq!(completed, ["Reconciliation completed variants_processed=1 optimization_successful=true"]);
    }
}

#[tokio::test]
async fn a_safety_net_that_lasts_is_logged_when_it_begins_and_ends() {
    keep_lines();
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::By(down)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    for _ in 0..4 {
        turn(&engine, &mut state).await;
    }
    let begun = lines_with("Safety net activated: emitted fallback metrics");
    assert_eq!(begun.len(), 1, "{begun:?}");
    assert!(begun[0].contains("fallbackSource=\"current-replicas\""), "{begun:?}");
    fake.now(Answers::By(busy));
    turn(&engine, &mut state).await;
    assert_eq!(lines_with("Safety net ended"), ["Safety net ended namespace=\"ns\" variant=\"a\" count=4"]);
    fake.now(Answers::By(down));
    state.samples = Samples::default();
    turn(&engine, &mut state).await;
    assert_eq!(lines_with("Safety net activated").len(), 1, "another time");
}

#[tokio::test]
async fn a_workload_made_again_has_the_change_of_its_target_logged() {
    keep_lines();
    let mut cluster = Cluster::new();
    cluster.variant("a", "m", json!({})).deployment("a", 6, 6);
    let fake = FakePrometheus::start(Answers::By(down)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    assert_eq!(turn(&engine, &mut state).await.signal(), Some(6));
    cluster.without_deployment("a");
    for _ in 0..2 {
        assert_eq!(turn(&engine, &mut state).await.signal(), None);
    }
    cluster.deployment("a", 3, 3);
    assert_eq!(turn(&engine, &mut state).await.signal(), Some(3));
    turn(&engine, &mut state).await;
    let changes = lines_with("ScalingDecision");
    assert!(changes.len() == 1 && changes[0].starts_with("target 6 -> 3 ("), "{changes:?}");
}

#[test]
fn warnings_of_one_kind_are_one_line_with_a_count() {
    keep_lines();
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
    let logged = lines_with("ns/v");
    let begins = |line: &str, start: &str, end: &str| line.starts_with(start) && line.ends_with(end);
    assert_eq!(logged.len(), 4, "{logged:?}");
    assert!(begins(&logged[0], "variant ns/v000 ", "; and 269 more like it count=1"), "{}", logged[0]);
    assert!(begins(&logged[1], "variant ns/v000 ", "; and 269 more like it count=61"), "{}", logged[1]);
    assert!(begins(&logged[2], "No longer so: variant ns/v000 ", " count=61"), "{}", logged[2]);
    assert!(
        begins(&logged[3], "No longer so: variant ns/v001 ", "; and 268 more like it count=62"),
        "{}",
        logged[3]
    );
}
