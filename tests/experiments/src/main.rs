//! `wva-experiments`: the demo and the experiments.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    wva_experiments::run().await
}
