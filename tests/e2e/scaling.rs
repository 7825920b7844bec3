//! A cluster with too few GPUs of one type and a real scheduler. Each test prints a timeline (`make test-scaling`).
//! Why control planes of their own: each test changes the nodes and their capacity.
#![expect(clippy::print_stdout, reason = "the timeline is for the person who runs the tests")]

mod budgets;
mod claims;
mod cluster;
mod limited;
mod stock_out;
mod timeline;

use crate::support::program_path;

#[tokio::test(flavor = "multi_thread")]
async fn stock_out_scales_another_gpu_type() -> anyhow::Result<()> {
    println!("{}", Box::pin(stock_out::stock_out(&program_path())).await?.into_result()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limited_mode_requests_no_missing_gpus() -> anyhow::Result<()> {
    println!("{}", Box::pin(limited::limited(&program_path())).await?.into_result()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_counts_devices_of_resource_claims() -> anyhow::Result<()> {
    println!("{}", Box::pin(claims::claims(&program_path())).await?.into_result()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn models_share_quotas_and_gpus_by_priority() -> anyhow::Result<()> {
    println!("{}", Box::pin(budgets::budgets(&program_path())).await?.into_result()?);
    Ok(())
}
