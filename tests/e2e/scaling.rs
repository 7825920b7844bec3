//! A cluster that is short of one type of GPU, with real scheduling; each test prints a timeline (`make test-scaling`).
//! Control planes of its own: the nodes and what they can hold are what the tests are about.
#![expect(clippy::print_stdout, reason = "the timeline is what a person reads who runs the tests")]

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
