//! Command line. The flags of `wva run` come from the table of settings.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use wva_crds::settings::{Alias, Kind, SETTINGS, Setting};

/// Name that the program was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramName {
    Wva,
    /// Entry point of the image and of the manifests of llm-d WVA: without a subcommand it is `wva run`.
    Manager,
    /// `kubectl wva`.
    KubectlPlugin,
}

impl ProgramName {
    pub(crate) fn from_path(path: Option<&OsStr>) -> Self {
        let name = path.and_then(|path| Path::new(path).file_stem()?.to_str()).unwrap_or_default();
        match name {
            "manager" => Self::Manager,
            "kubectl-wva" | "kubectl_wva" => Self::KubectlPlugin,
            _ => Self::Wva,
        }
    }
}

/// The command line, under the name that the program was started with.
pub(crate) fn command(name: ProgramName) -> Command {
    let run = with_settings(
        Command::new("run")
            .about("Run admission webhook and controller")
            .after_help(format!(
                "Settings without a flag, by environment variable:\n{}\nExample: wva run --metrics-bind-address=:8443 \
                 --leader-elect\n\nEvery setting can also be set by its environment variable; a flag overrides it.\n\
                 Outside a pod it needs --leader-elect or --standalone.",
                settings_without_flag()
            )),
    );
    let program = Command::new("wva")
        .about("Workload-Variant-Autoscaler: how many replicas each variant of a model server should run, and why")
        .version(crate::telemetry::LONG_VERSION)
        .after_help("Exit code of every command: 0 success, 1 a finding or a failure, 2 wrong usage, 3 the cluster does not answer.")
        .subcommand(run)
        .subcommands(wva_cli::commands());
    match name {
        ProgramName::Wva => program.bin_name("wva"),
        ProgramName::KubectlPlugin => program.bin_name("kubectl wva").display_name("kubectl wva"),
        ProgramName::Manager => with_settings(program.bin_name("wva"))
            .args_conflicts_with_subcommands(true)
            .after_help("Without a command it is `wva run`; see `wva run --help` for its settings."),
    }
}

/// Input of commands about the program itself.
pub(crate) fn program(name: ProgramName) -> wva_cli::Program {
    wva_cli::Program {
        version: env!("CARGO_PKG_VERSION"),
        revision: env!("WVA_REVISION"),
        rustc: env!("WVA_RUSTC"),
        command: command(name),
    }
}

fn print_config_arg() -> Arg {
    Arg::new("print-config")
        .long("print-config")
        .action(ArgAction::SetTrue)
        .help("Print every setting with its value and source, and exit; reads the main ConfigMap if possible")
}

fn standalone_arg() -> Arg {
    Arg::new("standalone")
        .long("standalone")
        .action(ArgAction::SetTrue)
        .help("Outside a pod, lead without leader election: only if no other controller is installed")
}

fn with_settings(command: Command) -> Command {
    let hide = command.get_name() == "wva";
    let command = command.arg(print_config_arg().hide(hide)).arg(standalone_arg().hide(hide));
    SETTINGS.iter().fold(command, |command, setting| {
        let flags = setting.flag.into_iter().map(|f| (f, hide)).chain(old_flags(setting).map(|f| (f, true)));
        flags.fold(command, |command, (flag, hidden)| command.arg(flag_arg(setting, flag).hide(hidden)))
    })
}

/// Settings without a flag, in the format of clap's options.
fn settings_without_flag() -> String {
    let rows = SETTINGS.iter().filter(|s| s.flag.is_none());
    let row = |s: &Setting| {
        format!("  {}=<{}>\n          {}{}\n", s.key, s.kind.placeholder(), s.help, default_of(s))
    };
    rows.map(row).collect()
}

fn default_of(setting: &Setting) -> String {
    setting.default.filter(|d| !d.is_empty()).map(|d| format!(" [default: {d}]")).unwrap_or_default()
}

pub(crate) fn old_flags(setting: &'static Setting) -> impl Iterator<Item = &'static str> {
    setting.aliases.iter().filter_map(|a| if let Alias::Flag(f) = a { Some(*f) } else { None })
}

fn flag_arg(setting: &'static Setting, flag: &'static str) -> Arg {
    let arg = Arg::new(flag)
        .value_name(setting.kind.placeholder())
        .action(ArgAction::Set)
        .allow_hyphen_values(true);
    let arg = if flag.len() == 1 { arg.short(flag.chars().next()) } else { arg.long(flag) };
    let arg = arg.help(format!("{} [env: {}]{}", setting.help, setting.key, default_of(setting)));
    // `--leader-elect` means true; `--leader-elect false` would be ambiguous, as in Go.
    if setting.kind == Kind::Bool {
        arg.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        arg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        for name in [ProgramName::Wva, ProgramName::Manager, ProgramName::KubectlPlugin] {
            command(name).debug_assert();
        }
    }

    #[test]
    fn program_name_decides_what_runs_without_a_command() {
        let name = |path: &str| ProgramName::from_path(Some(path.as_ref()));
        assert_eq!(name("/manager"), ProgramName::Manager);
        assert_eq!(name("/usr/local/bin/kubectl-wva"), ProgramName::KubectlPlugin);
        assert_eq!((name("./wva"), ProgramName::from_path(None)), (ProgramName::Wva, ProgramName::Wva));
        assert!(command(ProgramName::Wva).try_get_matches_from(["wva", "--leader-elect"]).is_err());
        let help = command(ProgramName::KubectlPlugin).render_help().to_string();
        assert!(help.contains("Usage: kubectl wva [COMMAND]"), "{help}");
    }

    #[test]
    fn accepts_go_flag_syntax() {
        let command = || command(ProgramName::Manager);
        let m = command()
            .try_get_matches_from(["wva", "--leader-elect", "-v=4", "--metrics-secure=false"])
            .unwrap();
        assert_eq!(m.get_one::<String>("leader-elect").map(String::as_str), Some("true"));
        assert_eq!(m.get_one::<String>("v").map(String::as_str), Some("4"));
        assert_eq!(m.get_one::<String>("metrics-secure").map(String::as_str), Some("false"));
        let m = command().try_get_matches_from(["wva", "run", "-v", "2", "--metrics-addr=:8080"]).unwrap();
        let (_, m) = m.subcommand().unwrap();
        assert_eq!(m.get_one::<String>("v").map(String::as_str), Some("2"));
        assert_eq!(m.get_one::<String>("metrics-addr").map(String::as_str), Some(":8080"));
    }

    #[test]
    fn help_of_run_lists_every_setting() {
        let mut command = command(ProgramName::Wva);
        let help = command.find_subcommand_mut("run").unwrap().render_long_help().to_string();
        for setting in SETTINGS {
            assert!(help.contains(setting.key), "{} is missing", setting.key);
        }
        assert!(help.contains("  GLOBAL_OPT_INTERVAL=<DURATION>\n          Time between two decision cycles. [default: 60s]\n"), "{help}");
        assert!(help.find("Options:") < help.find("GLOBAL_OPT_INTERVAL"), "after the options");
    }

    #[test]
    fn refuses_wrong_usage() {
        let command = || command(ProgramName::Wva);
        assert!(command().try_get_matches_from(["wva", "--no-such-flag"]).is_err());
        assert!(command().try_get_matches_from(["wva", "decide"]).is_err());
    }
}
