//! `wva completion SHELL` and `wva man`: generated from the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::arguments::path_value;
use crate::output::print;

pub(crate) fn command() -> Command {
    Command::new("completion")
        .about("Print the completion script of a shell")
        .after_help(
            "Examples:\n  source <(wva completion bash)\n  wva completion zsh > \"${fpath[1]}/_wva\"\n  \
             wva completion fish > ~/.config/fish/completions/wva.fish\n\n\
             Exit code: 0 printed, 2 wrong usage.",
        )
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("Shell"),
        )
}

pub(crate) fn man_command() -> Command {
    Command::new("man")
        .about("Print the man page of wva, or write those of all commands")
        .after_help(
            "Examples:\n  wva man | man -l -\n  wva man ~/.local/share/man/man1\n\n\
             Exit code: 0 written, 1 the directory cannot be written, 2 wrong usage.",
        )
        .arg(
            Arg::new("path")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Existing directory for all pages; default: print wva(1)"),
        )
}

/// `program` is the whole command line.
pub(crate) fn completion(arguments: &ArgMatches, program: &Command) -> anyhow::Result<ExitCode> {
    let shell = arguments.get_one::<Shell>("shell").context("no shell")?;
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut program.clone(), "wva", &mut script);
    print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(arguments: &ArgMatches, program: &Command) -> anyhow::Result<ExitCode> {
    if let Some(folder) = path_value(arguments, "path") {
        clap_mangen::generate_to(program.clone(), folder)
            .with_context(|| format!("cannot write man pages to {}", folder.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(program.clone()).render(&mut page)?;
    print(&String::from_utf8(page)?)?;
    Ok(ExitCode::SUCCESS)
}
