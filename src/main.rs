//! `wva`: admission webhook and reconciler of the Workload-Variant-Autoscaler, and the commands around them.

use std::process::ExitCode;

mod cli;
mod commands;
mod endpoints;
mod facts;
mod run;
mod settings;
mod telemetry;

fn main() -> ExitCode {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        // Only a second call can fail, and this is the first line of the program.
        return ExitCode::FAILURE;
    }
    match commands::dispatch(&cli::command().get_matches()) {
        Ok(code) => code,
        Err(error) => {
            telemetry::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
