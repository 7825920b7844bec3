//! Time, size of the page, and peak memory of reports: one variant over 30 days at a cycle of 15 s, and 10,000 variants
//! over a day at a cycle of a minute. `make bench-report` runs it; it fails beyond its bounds.

#![expect(clippy::print_stdout, reason = "the figures are what this is run for")]

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use wva_scaling::Snapshot;
use wva_simulator::report::recording::{History, Selection};

const MOST_BYTES: usize = 8 << 20;
const MOST_KIB: u64 = 512 * 1024;

fn main() -> ExitCode {
    let month = measure("1 variant, 30 days at 15 s", 1, 30 * 5760, 15, Duration::from_mins(1));
    let fleet = measure("10,000 variants, a day at 60 s", 10_000, 1440, 60, Duration::from_mins(10));
    let kib = peak_kib().unwrap_or(u64::MAX);
    println!("{} MiB at most in memory (at most {} MiB)", kib / 1024, MOST_KIB / 1024);
    if month && fleet && kib <= MOST_KIB { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(title: &str, variants: u32, cycles: u32, interval: u32, longest: Duration) -> bool {
    let mut history = History::new(Selection::default());
    let (mut took, mut read) = (Duration::ZERO, 0);
    for cycle in 0..cycles {
        let line = line(variants, cycle, cycle * interval);
        read += line.len();
        let began = Instant::now();
        let Ok(snapshot) = Snapshot::parse(&line) else { return false };
        history.add_cycle(&snapshot);
        took += began.elapsed();
    }
    let began = Instant::now();
    let Ok(page) = history.document("day.jsonl").html() else { return false };
    took += began.elapsed();
    println!(
        "{title}: {cycles} cycles of {} MiB in {:.1} s (at most {} s), a page of {:.1} MiB (at most {} MiB)",
        read >> 20,
        took.as_secs_f64(),
        longest.as_secs(),
        bytes_as_mib(page.len()),
        MOST_BYTES >> 20
    );
    took <= longest && page.len() <= MOST_BYTES
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn bytes_as_mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Models of two variants, or of one if there is only one, under a daily wave.
fn line(variants: u32, cycle: u32, seconds: u32) -> String {
    let (day, rest) = (1 + seconds / 86_400, seconds % 86_400);
    let now = format!("2026-01-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60);
    let wave = 0.5 - 0.5 * (f64::from(rest) / 86_400.0 * std::f64::consts::TAU).cos();
    let mut text = format!(
        "{{\"now\":\"{now}\",\"config\":{{\"saturation\":{{\"default\":{{\"analyzerName\":\"percentage\"}}}}}},\"models\":["
    );
    for variant in 0..variants {
        let separator = if variant == 0 { "" } else { "," };
        if variant % 2 == 0 {
            let end = if variant == 0 { "" } else { "]}" };
            let _ = write!(
                text,
                "{end}{separator}{{\"modelID\":\"model-{variant}\",\"namespace\":\"team-{}\",\"variants\":[",
                variant / 100
            );
        } else {
            text += separator;
        }
        let kv = 0.1 + 0.6 * wave + 0.05 * f64::from((variant + cycle) % 5) / 5.0;
        let _ = write!(
            text,
            "{{\"name\":\"v-{variant}\",\"accelerator\":\"H100\",\"cost\":\"40.0\",\"current\":2,\"max\":8,\"running\":{},\
             \"replicas\":[{{\"pod\":\"a\",\"kv\":{kv:.3},\"queue\":{}}},{{\"pod\":\"b\",\"kv\":{kv:.3},\"queue\":0}}]}}",
            cycle % 50,
            cycle % 4
        );
    }
    text + "]}]}"
}

/// Peak resident memory of this process in kibibytes, as Linux reports it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
