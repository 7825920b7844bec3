//! `wva`: the commands of the Workload-Variant-Autoscaler, for laptops, CI and kubectl.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command};
use wva_cli::{GROUPS, Group};
use wva_manager::command_line;
use wva_runtime::terminal::print_unchecked;

fn main() -> ExitCode {
    let invoked = Invoked::from_path(std::env::args_os().next().as_deref());
    wva_manager::install_cryptography()
        .and_then(|()| match command(invoked).try_get_matches() {
            Ok(arguments) => dispatch(invoked, &arguments),
            Err(error) if error.kind() == ErrorKind::DisplayHelp => print_help(&error.render()),
            Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Ok(refuse_without_command(&error.render()))
            }
            Err(error) => error.exit(),
        })
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
        .about("How many replicas each variant of a model server should run, and why")
        .version(wva_manager::LONG_VERSION)
        .after_help(
            "`wva COMMAND --help` has examples. Exit codes: 0 success, 1 a finding or a\nfailure, 2 wrong usage, 3 the cluster does not answer.",
        )
        .subcommand(command_line::run())
        .subcommands(wva_cli::commands());
    let template = help_template(&program);
    let program = program.help_template(template);
    match invoked {
        Invoked::Wva => program.bin_name("wva"),
        Invoked::KubectlPlugin => program.bin_name("kubectl wva").display_name("kubectl wva"),
    }
}

/// The help of clap, with the commands by purpose.
fn help_template(program: &Command) -> String {
    let about = |name: &str| {
        let about = program.find_subcommand(name).and_then(Command::get_about);
        about.map(ToString::to_string).unwrap_or_default()
    };
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for Group { title, commands } in GROUPS {
        let _ = write!(text, "\n{title}:\n");
        for name in commands {
            let _ = writeln!(text, "  {name:<16}{}", about(name));
        }
    }
    text + "\nOptions:\n{options}{after-help}"
}

fn print_help(help: &StyledStr) -> anyhow::Result<ExitCode> {
    let text = if wva_cli::use_colours() { help.ansi().to_string() } else { help.to_string() };
    print_unchecked(&wva_cli::fit_help(&text)).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// `wva certs`: the help of the group, as an error.
#[expect(clippy::print_stderr, reason = "the help is the error")]
fn refuse_without_command(help: &StyledStr) -> ExitCode {
    eprint!("{}", wva_cli::fit_help(&help.to_string()));
    ExitCode::from(2)
}

fn dispatch(invoked: Invoked, arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Some((command_name, own)) = arguments.subcommand() else {
        return print_help(&command(invoked).render_help());
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
    fn help_has_every_command_once() {
        let mut all = command(Invoked::Wva);
        let help = all.render_help().to_string();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|group| group.commands).copied().collect();
        for command in all.get_subcommands().map(Command::get_name).filter(|name| *name != "help") {
            assert_eq!(grouped.iter().filter(|name| **name == command).count(), 1, "{command}");
        }
        assert!(!help.contains("\n  doctor          \n"), "{help}");
    }

    #[test]
    fn refuses_wrong_usage() {
        for wrong in ["--no-such-flag", "--leader-elect", "decide"] {
            assert!(command(Invoked::Wva).try_get_matches_from(["wva", wrong]).is_err(), "{wrong}");
        }
    }
}
