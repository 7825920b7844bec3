//! A model at zero behind a page of many tenants.
#![expect(clippy::print_stdout, reason = "the figure is for the person who runs the test")]

use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::picker::PickerBehavior;

use super::{at_zero, picker, wait_for_queries};
use crate::support::Cluster;

/// Longest time from a waiting request to `/scale`: 2 s on a calm machine, and this while other tests run.
const SCALED: Duration = Duration::from_secs(15);

/// 37 MB of 1,000 tenants, some 1 MB on the wire.
pub(super) async fn a_page_of_a_thousand_tenants_wakes_its_model(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("crowded").await?;
    let picker = picker(cluster, &ns, 40).await?;
    picker.set_behavior(PickerBehavior::Crowded);
    let model = VariantFixture::new(&ns, "model").replicas(0);
    at_zero(cluster, &[&model]).await?;
    wait_for_queries(&picker, 2).await?;
    let began = Instant::now();
    picker.queue(&model.model, 1.0);
    cluster.wait_for_replicas(&ns, "model", 1).await?;
    let scaled = began.elapsed();
    println!("a page of 1,000 tenants: /scale after {:.1} s", scaled.as_secs_f64());
    ensure!(scaled < SCALED, "/scale was written {scaled:?} after the request");
    picker.queue(&model.model, 0.0);
    cluster.testbed.kubectl(&["delete", "va", "--all", "-n", &ns]).await?.success().map(drop)
}
