//! The program `wva` in a process of its own, for pages that show what it prints.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};

use wva_manager::command_line;

/// Result of a run of the program.
pub(crate) struct RunResult {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program with these arguments.
pub(crate) fn wva(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("wva").args(arguments);
    command
}

/// Runs a command to its end with `input` on standard input.
pub(crate) fn finish(command: &mut Command, input: &str) -> RunResult {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The write fails if the program has ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let out = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    RunResult { code: out.status.code(), stdout: text(out.stdout), stderr: text(out.stderr) }
}

/// Runs the program in this process.
pub(crate) fn main(arguments: Vec<OsString>) -> ExitCode {
    let command = clap::Command::new("wva")
        .no_binary_name(true)
        .subcommand(command_line::run())
        .subcommands(wva_cli::commands());
    let matches = command.clone().get_matches_from(arguments);
    let (name, own) = matches.subcommand().unwrap();
    let ended = wva_manager::install_cryptography().and_then(|()| {
        if name == "run" {
            return wva_manager::serve(own);
        }
        let program = wva_cli::Program {
            version: wva_manager::VERSION,
            revision: wva_manager::REVISION,
            rustc: wva_manager::RUSTC,
            command,
        };
        wva_cli::run(name, own, &program).unwrap()
    });
    ended.unwrap_or_else(|error| wva_cli::fail(&error))
}
