//! A cluster that is short of one type of GPU, with real scheduling: the experiments of `wva-testbed scaling`, which
//! tell a timeline while they run.

use std::path::Path;

use wva_testbed::scaling_runs::Experiment;

const WVA: &str = env!("CARGO_BIN_EXE_wva");

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_out_of_one_type_of_gpu_falls_over_to_another() -> anyhow::Result<()> {
    let outcome = Experiment::StockOut.run(Path::new(WVA), |line| println!("{line}")).await?;
    println!("{}", outcome.kept()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_node_has_room_for_is_not_asked_for() -> anyhow::Result<()> {
    let outcome = Experiment::Limited.run(Path::new(WVA), |line| println!("{line}")).await?;
    println!("{}", outcome.kept()?);
    Ok(())
}
