//! Command line of the manager, also of `wva run`. The flags come from the table of settings.

use clap::{Arg, ArgAction, Command};
use wva_crds::settings::{Alias, Kind, SETTINGS, Setting};

/// The command line of the manager.
#[must_use]
pub fn manager() -> Command {
    let about = "Admission webhook and controller of the Workload-Variant-Autoscaler";
    let command = Command::new("manager").about(about).version(crate::LONG_VERSION).after_help(format!(
        "{}\nCommands such as `doctor` and `explain` are in the program wva.",
        settings_without_flag()
    ));
    with_settings(command)
}

/// The manager as the command `wva run`, for development.
#[must_use]
pub fn run() -> Command {
    let command = Command::new("run").about("Run webhook and controller on this machine, for development");
    with_settings(command.after_help(format!(
        "{}\nExample: wva run --metrics-bind-address=:8443 --leader-elect\n\nOutside a pod it needs --leader-elect or \
         --standalone. Images start the same as the program manager.",
        settings_without_flag()
    )))
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
    let command = command.arg(print_config_arg()).arg(standalone_arg());
    SETTINGS.iter().fold(command, |command, setting| {
        let flags = setting.flag.into_iter().map(|f| (f, false)).chain(old_flags(setting).map(|f| (f, true)));
        flags.fold(command, |command, (flag, hidden)| command.arg(flag_arg(setting, flag).hide(hidden)))
    })
}

/// Settings without a flag, in the format of clap's options.
fn settings_without_flag() -> String {
    let rows = SETTINGS.iter().filter(|s| s.flag.is_none());
    let row = |s: &Setting| {
        format!("  {}=<{}>\n          {}{}\n", s.key, s.kind.placeholder(), s.help, default_of(s))
    };
    format!(
        "Settings without a flag, by environment variable:\n{}\nEvery setting can also be set by its environment variable; \
         a flag overrides it.",
        rows.map(row).collect::<String>()
    )
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
    fn command_lines_are_consistent() {
        manager().debug_assert();
        run().debug_assert();
    }

    #[test]
    fn accepts_go_flag_syntax() {
        let parsed = |arguments: &[&str]| manager().try_get_matches_from(arguments).unwrap();
        let m = parsed(&["/manager", "--leader-elect", "-v=4", "--metrics-secure=false"]);
        assert_eq!(m.get_one::<String>("leader-elect").map(String::as_str), Some("true"));
        assert_eq!(m.get_one::<String>("v").map(String::as_str), Some("4"));
        assert_eq!(m.get_one::<String>("metrics-secure").map(String::as_str), Some("false"));
        let m = parsed(&["/manager", "-v", "2", "--metrics-addr=:8080"]);
        assert_eq!(m.get_one::<String>("v").map(String::as_str), Some("2"));
        assert_eq!(m.get_one::<String>("metrics-addr").map(String::as_str), Some(":8080"));
    }

    #[test]
    fn help_lists_every_setting() {
        for mut command in [manager(), run()] {
            let help = command.render_long_help().to_string();
            for setting in SETTINGS {
                assert!(help.contains(setting.key), "{} is missing", setting.key);
            }
            let interval = "  GLOBAL_OPT_INTERVAL=<DURATION>\n          Time between two decision cycles. [default: 60s]\n";
            assert!(help.contains(interval), "{help}");
            assert!(help.find("Options:") < help.find("GLOBAL_OPT_INTERVAL"), "after the options");
        }
    }

    #[test]
    fn refuses_wrong_usage() {
        for wrong in ["--no-such-flag", "doctor"] {
            assert!(manager().try_get_matches_from(["manager", wrong]).is_err(), "{wrong}");
        }
    }
}
