//! `wva`: the commands of the Workload-Variant-Autoscaler, for laptops, CI and kubectl.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};
use wva_manager::command_line;

fn main() -> ExitCode {
    let invoked = Invoked::from_path(std::env::args_os().next().as_deref());
    wva_manager::install_cryptography()
        .and_then(|()| dispatch(invoked, &command(invoked).get_matches()))
        .unwrap_or_else(|error| wva_cli::fail(&error))
}

/// How the program was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invoked {
    Wva,
    /// `kubectl wva`.
    KubectlPlugin,
}

impl Invoked {
    fn from_path(path: Option<&OsStr>) -> Self {
        let name = path.and_then(|path| Path::new(path).file_stem()?.to_str()).unwrap_or_default();
        if matches!(name, "kubectl-wva" | "kubectl_wva") { Self::KubectlPlugin } else { Self::Wva }
    }
}

/// The command line, under the name that the program was started with.
fn command(invoked: Invoked) -> Command {
    let program = Command::new("wva")
        .about("Workload-Variant-Autoscaler: how many replicas each variant of a model server should run, and why")
        .version(wva_manager::LONG_VERSION)
        .after_help("Exit code of every command: 0 success, 1 a finding or a failure, 2 wrong usage, 3 the cluster does not answer.")
        .subcommand(command_line::run())
        .subcommands(wva_cli::commands());
    match invoked {
        Invoked::Wva => program.bin_name("wva"),
        Invoked::KubectlPlugin => program.bin_name("kubectl wva").display_name("kubectl wva"),
    }
}

fn dispatch(invoked: Invoked, arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Some((command_name, own)) = arguments.subcommand() else {
        command(invoked).print_help().context("cannot write to standard output")?;
        return Ok(ExitCode::SUCCESS);
    };
    if command_name == "run" {
        return wva_manager::serve(own);
    }
    let program = wva_cli::Program {
        version: wva_manager::VERSION,
        revision: wva_manager::REVISION,
        rustc: wva_manager::RUSTC,
        command: command(invoked),
    };
    let ran = wva_cli::run(command_name, own, &program);
    ran.unwrap_or_else(|| anyhow::bail!("command {command_name} is not implemented; please report this bug"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        for invoked in [Invoked::Wva, Invoked::KubectlPlugin] {
            command(invoked).debug_assert();
        }
    }

    #[test]
    fn kubectl_plugin_names_itself_as_users_type_it() {
        let invoked = |path: &str| Invoked::from_path(Some(path.as_ref()));
        assert_eq!(invoked("/usr/local/bin/kubectl-wva"), Invoked::KubectlPlugin);
        assert_eq!((invoked("./wva"), Invoked::from_path(None)), (Invoked::Wva, Invoked::Wva));
        let help = command(Invoked::KubectlPlugin).render_help().to_string();
        assert!(help.contains("Usage: kubectl wva [COMMAND]"), "{help}");
    }

    #[test]
    fn refuses_wrong_usage() {
        for wrong in ["--no-such-flag", "--leader-elect", "decide"] {
            assert!(command(Invoked::Wva).try_get_matches_from(["wva", wrong]).is_err(), "{wrong}");
        }
    }
}
