//! What cycles log: how often, and what about.

use std::io;
use std::sync::Mutex;

use tracing::Subscriber;
use wva_scaling::Warning;

use super::*;
use crate::engine::narrate::log_warnings;
use crate::repeats::RepeatCounters;

/// The lines that this thread logs at `info` and above, as `message field=value`.
#[derive(Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

struct Writer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn subscriber(&self) -> impl Subscriber + use<> {
        let kept = self.0.clone();
        let lines = tracing_subscriber::fmt().with_writer(move || Writer(kept.clone()));
        lines.with_ansi(false).with_level(false).with_target(false).without_time().finish()
    }

    /// Those with this text since the last call.
    fn with(&self, text: &str) -> Vec<String> {
        let mut kept = self.0.lock().unwrap();
        let all = String::from_utf8(std::mem::take(&mut *kept)).unwrap();
        let (with, others): (Vec<_>, Vec<_>) = all.lines().partition(|line| line.contains(text));
        *kept = others.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect();
        with.into_iter().map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn each_cycle_logs_its_two_lines_once() {
    let lines = Lines::default();
    let _kept = tracing::subscriber::set_default(lines.subscriber());
    let mut bench = Bench::busy().await;
    for _ in 0..3 {
        bench.turn().await;
        let emitted = lines.with("Emitted optimization signals for external autoscaler consumption");
        assert_eq!(emitted.len(), 1, "{emitted:?}");
        let completed = lines.with("Reconciliation completed");
        assert_eq!(completed, ["Reconciliation completed variants_processed=1 optimization_successful=true"]);
    }
}

#[tokio::test]
async fn a_safety_net_that_lasts_is_logged_when_it_begins_and_ends() {
    let lines = Lines::default();
    let _kept = tracing::subscriber::set_default(lines.subscriber());
    let mut bench = Bench::new(cluster(json!({})), down()).await;
    for _ in 0..4 {
        bench.turn().await;
    }
    let begun = lines.with("Safety net activated: emitted fallback metrics");
    assert_eq!(begun.len(), 1, "{begun:?}");
    assert!(begun[0].contains("fallbackSource=\"current-replicas\""), "{begun:?}");
    bench.fake.now(busy());
    bench.turn().await;
    assert_eq!(lines.with("Safety net ended"), ["Safety net ended namespace=\"ns\" variant=\"a\" count=4"]);
    bench.fake.now(down());
    bench.state.samples = Samples::default();
    bench.turn().await;
    assert_eq!(lines.with("Safety net activated").len(), 1, "another time");
}

#[tokio::test]
async fn a_workload_made_again_has_the_change_of_its_target_logged() {
    let lines = Lines::default();
    let _kept = tracing::subscriber::set_default(lines.subscriber());
    let mut bench = Bench::new(cluster(json!({})), down()).await;
    for replicas in [Some(6), None, None, Some(3), Some(3)] {
        match replicas {
            Some(n) => bench.cluster.deployment("a", n, n),
            None => bench.cluster.without_deployment("a"),
        };
        assert_eq!(bench.turn().await.signal(), replicas);
    }
    let changes = lines.with("ScalingDecision");
    assert!(changes.len() == 1 && changes[0].starts_with("target 6 -> 3 ("), "{changes:?}");
}

#[test]
fn warnings_of_one_kind_are_one_line_with_a_count() {
    let lines = Lines::default();
    let lacking = |variant: usize| Warning::AcceleratorNotInInventory {
        namespace: "ns".to_owned(),
        variant: format!("v{variant:03}"),
        accelerator: "H100".to_owned(),
    };
    let warnings: Vec<_> = (0..270).map(lacking).collect();
    let mut warned = RepeatCounters::default();
    let start = Instant::now();
    let at = |minute: u64| start + Duration::from_mins(minute);
    tracing::subscriber::with_default(lines.subscriber(), || {
        for minute in 0..=60 {
            log_warnings(&mut warned, &warnings, at(minute));
        }
        log_warnings(&mut warned, &warnings[1..], at(61));
        log_warnings(&mut warned, &[], at(62));
    });
    let logged = lines.with("ns/v");
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
