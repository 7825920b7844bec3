//! Writes what is generated from the types of this crate (`make generate`), or checks that the checked-in files are
//! what would be written (`--check`, `make lint`).

use std::process::ExitCode;

#[expect(clippy::print_stdout, reason = "a command line program talks on stdout")]
fn main() -> ExitCode {
    let check = std::env::args().any(|a| a == "--check");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/llmd.ai_variantautoscalings.yaml");
    let wanted = match wva_crds::manifest::crd_yaml() {
        Ok(yaml) => yaml,
        Err(e) => {
            println!("cannot write the CRD as YAML: {e}");
            return ExitCode::FAILURE;
        }
    };
    if check {
        if std::fs::read_to_string(path).ok().as_deref() == Some(wanted.as_str()) {
            return ExitCode::SUCCESS;
        }
        println!("{path} is not what crds/src says: run `make generate` and commit the result");
        return ExitCode::FAILURE;
    }
    match std::fs::write(path, wanted) {
        Ok(()) => {
            println!("wrote {path}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            println!("cannot write {path}: {e}");
            ExitCode::FAILURE
        }
    }
}
