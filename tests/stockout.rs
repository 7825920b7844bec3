//! A cluster that is short of one type of GPU, with real scheduling: the experiments of `wva-testbed scaling`, which
//! tell a timeline while they run.

use std::path::Path;

use wva_testbed::scaling_runs::Experiment;

async fn holds(experiment: Experiment) -> anyhow::Result<()> {
    let wva = Path::new(env!("CARGO_BIN_EXE_wva"));
    let figures = experiment.run(wva, |line| println!("{line}")).await?.kept()?;
    println!("{}: {figures}", experiment.name());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_out_of_one_type_of_gpu_falls_over_to_another() -> anyhow::Result<()> {
    holds(Experiment::StockOut).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_node_has_room_for_is_not_asked_for() -> anyhow::Result<()> {
    holds(Experiment::Limited).await
}
