//! Bench of the memory of an idle program with 10 variants, on a real control plane.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Fleet, FleetConfig, Options, Testbed, eventually};

use crate::report::{Report, mib};
use crate::usage::Usage;

/// Number of managed variants.
const VARIANTS: usize = 10;
/// Maximum resident memory of an idle program, KiB.
const BOUND_KIB: u64 = 40 * 1024;
/// Cycles before the measurement: caches are full and the allocator has settled.
const CYCLES: f64 = 30.0;

/// Runs the bench; fails if the bound is exceeded.
pub(crate) async fn run(wva: &Path) -> anyhow::Result<()> {
    let testbed = Testbed::start(Options { name: "bench".to_owned(), ..Options::default() }).await?;
    let install = Install::start(&testbed, &InstallOptions::quick(wva)).await?;
    let namespace = testbed.namespace("bench").await?;
    let variant = |i| VariantFixture::new(&namespace, &format!("variant-{i}"));
    for i in 0..VARIANTS {
        testbed.apply(&variant(i).all()).await?;
    }
    let _fleet = Fleet::start(&testbed, FleetConfig { rate: 10.0, ..variant(0).fleet() })?;
    eventually("all variants to be decided on for a while", Duration::from_mins(3), async || {
        let cycles = install.series("wva_engine_cycles_total", &[("result", "ok")]).await?.unwrap_or(0.0);
        let ready = install.series("wva_variants", &[("reason", "Ready")]).await?.unwrap_or(0.0);
        ensure!(cycles >= CYCLES && ready >= 10.0, "{cycles} cycles, {ready} variants ready");
        Ok(())
    })
    .await?;
    let Usage { resident, peak, .. } = Usage::read(install.process().pid())?;
    let mut report = Report::default();
    let what = format!("resident, idle with {VARIANTS} variants");
    report.at_most(&what, resident, BOUND_KIB, mib)?;
    Report::note("  at most since the start", mib(peak))?;
    report.end()
}
