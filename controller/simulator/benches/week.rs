//! Time on one core and peak memory of a week of diurnal traffic: 6 million requests on four variants, under our
//! default policy. `make bench-simulate` runs it; it fails beyond the bounds of docs/development/evidence/simulator.md.

#![expect(clippy::print_stdout, reason = "the figures are what this is run for")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use wva_simulator::fleet::engine::{Engine, StepTokens};
use wva_simulator::fleet::variant::{Gateway, Router, SlowStart, Variant};
use wva_simulator::measure::Objectives;
use wva_simulator::policy::wva::{Settings, Wva};
use wva_simulator::random::RandomQuantity;
use wva_simulator::run::{Setting, run};
use wva_simulator::traffic::{Traffic, diurnal_profile};

const LONGEST: Duration = Duration::from_mins(1);
const MOST_KIB: u64 = 200 * 1024;

fn main() -> ExitCode {
    let setting = setting();
    let began = Instant::now();
    let mut policy = Wva::new(&Settings::default(), &setting.variants);
    let tally = run(&setting, &mut policy, 1, |_| {});
    let took = began.elapsed();
    let kib = peak_kib().unwrap_or(u64::MAX);
    println!(
        "{} requests in {:.1} s (at most {} s), {} MiB at most in memory (at most {} MiB)",
        tally.arrived(),
        took.as_secs_f64(),
        LONGEST.as_secs(),
        kib / 1024,
        MOST_KIB / 1024
    );
    if took <= LONGEST && kib <= MOST_KIB { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A variant whose steps take `speed` times as long as on an H100.
fn variant(name: &str, cost: f64, speed: f64) -> Variant {
    Variant {
        name: name.to_owned(),
        accelerator: name.to_owned(),
        cost,
        gpus: 1,
        engine: Engine {
            step: 0.017 * speed,
            per_sequence: 0.000_31 * speed,
            per_prompt_token: 0.000_06 * speed,
            per_cached_token: 3.4e-8 * speed,
            max_seqs: 256,
            max_batched_tokens: 8192,
            block_size: 16,
            kv_blocks: 16_000,
            prefix_hit_rate: 0.0,
            tokens: StepTokens::ONE,
        },
        engine_args: Vec::new(),
        initial: 2,
        min: 1,
        max: 20,
        start: RandomQuantity::log_normal(103.0, 0.1),
        slow_start: SlowStart::NEVER,
        time_to_failure: f64::INFINITY,
        slowness: RandomQuantity::log_normal(1.0, 0.0),
        prefix_hits: Vec::new(),
        speculation: Vec::new(),
        rollouts: Vec::new(),
        role: None,
    }
}

fn setting() -> Setting {
    let (input, output) = (RandomQuantity::log_normal(1000.0, 0.5), RandomQuantity::log_normal(300.0, 0.8));
    Setting {
        variants: vec![
            variant("H200", 50.0, 0.8),
            variant("H100", 40.0, 1.0),
            variant("A100", 20.0, 1.8),
            variant("L40S", 12.0, 4.0),
        ],
        gateway: Gateway::direct(Router::Scored),
        gpu_supply: Vec::new(),
        objectives: Objectives { ttft: 1.0, itl: 0.1, attainment: 0.99 },
        traffic: Traffic::Generated {
            profile: diurnal_profile(10.0, 0.6, &[1.0, 1.0, 1.0, 1.0, 1.0, 0.6, 0.5]),
            cv: 1.0,
            input,
            output,
        },
        duration: 7.0 * 86_400.0,
    }
}

/// Peak resident memory of this process in kibibytes, as Linux reports it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
