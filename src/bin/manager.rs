//! `manager`: admission webhook and controller of the Workload-Variant-Autoscaler.

use std::process::ExitCode;

use wva_manager::command_line;

fn main() -> ExitCode {
    let started = wva_manager::install_cryptography()
        .and_then(|()| wva_manager::serve(&command_line::manager().get_matches()));
    started.unwrap_or_else(|error| {
        wva_runtime::terminal::print_error(&error);
        ExitCode::FAILURE
    })
}
