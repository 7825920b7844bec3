//! Time of the decisions of one cycle, from 100 to 10,000 variants. `make bench-decide` runs it and prints the table of
//! docs/development/evidence/performance.md, which has the bounds, too.

#![expect(clippy::unwrap_used, reason = "a bench with its own input")]

mod fleet;
mod table;
mod work;

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use wva_scaling::units::{KvUsage, QueueLength};
use wva_scaling::{Outcome, Snapshot, decide};

use self::fleet::{Kind, Size, fleets};
use self::table::Row;
use self::work::MemorySize;

/// Models of four variants with ten replicas each, then small models as in most clusters.
const SIZES: [Size; 5] = [
    Size { models: 25, variants: 4, replicas: 10, fleets: 1 },
    Size { models: 25, variants: 4, replicas: 10, fleets: 100 },
    Size { models: 250, variants: 4, replicas: 10, fleets: 1 },
    Size { models: 2500, variants: 4, replicas: 10, fleets: 1 },
    Size { models: 1000, variants: 2, replicas: 2, fleets: 1 },
];

fn main() {
    let folder = Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/criterion"));
    let mut criterion = Criterion::default()
        .output_directory(folder)
        .warm_up_time(Duration::from_secs(2))
        .measurement_time(Duration::from_secs(6))
        .sample_size(50)
        .configure_from_args();
    let mut rows = Vec::new();
    let mut group = criterion.benchmark_group("decide");
    for kind in Kind::ALL {
        for size in SIZES {
            let row = Row::new(kind, size);
            let snapshots = fleets(kind, size);
            row.check(&decide(&snapshots[0]));
            let mut next = (0..snapshots.len()).cycle();
            // The time to drop the outcome counts, because the engine drops it, too.
            group.bench_with_input(BenchmarkId::new(kind.name(), row.label()), &snapshots, |b, snapshots| {
                b.iter(|| decide(black_box(&snapshots[next.next().unwrap_or(0)])));
            });
            rows.push(row);
        }
    }
    for size in SIZES {
        let row = Row::floor(size);
        let pairs: Vec<_> = fleets(Kind::Percentage, size).into_iter().map(|s| (decide(&s), s)).collect();
        let mut next = (0..pairs.len()).cycle();
        group.bench_with_input(BenchmarkId::new(row.name(), row.label()), &pairs, |b, pairs| {
            b.iter(|| {
                let (outcome, snapshot) = &pairs[next.next().unwrap_or(0)];
                (read_samples(black_box(snapshot)), Outcome::clone(black_box(outcome)))
            });
        });
        rows.push(row);
    }
    group.finish();
    table::print(&folder.join("decide"), &rows);
    table::print_memory_size(&MemorySize::measure(&fleets(Kind::Throughput, SIZES[4])[0]));
}

/// Reads every sample once. Together with a copy of the outcome this is the floor: every program pays it that reads this
/// snapshot and returns these decisions.
fn read_samples(snapshot: &Snapshot) -> f64 {
    let replicas = snapshot.models.iter().flat_map(|m| &m.variants).flat_map(|v| &v.replicas);
    let each = replicas.map(|r| {
        let fresh = f64::from(u8::from(r.age.get() < Duration::from_mins(1)));
        fresh * (r.kv.map_or(0.0, KvUsage::get) + r.queue.map_or(0.0, QueueLength::get))
    });
    each.sum()
}
