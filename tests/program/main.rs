//! Tests of the program, of pages and of the layout of the code, without a control plane.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself does")]

mod admission_policy;
mod alert_reasons;
mod backtest;
mod certs;
mod cli;
mod command_table;
mod conditions_page;
mod crd_changes;
mod dashboards;
mod docs;
mod docs_blocks;
mod files;
mod fuzz_targets;
#[path = "../fixtures/history.rs"]
mod history;
mod layout;
#[path = "../fixtures/leaves.rs"]
mod leaves;
mod literals;
mod log_greps;
mod printed_commands;
#[path = "../fixtures/printed_commands.rs"]
mod printed_list;
mod readme;
mod release;
mod report;
mod simulate;
mod validate;
mod waiting;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory that is removed after the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and returns its path.
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // On failure it stays below the target directory.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Result of a run of the program.
struct RunResult {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The program with these arguments, without the user's `PROMETHEUS_BASE_URL`.
fn wva(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wva"));
    command.args(args).env_remove("PROMETHEUS_BASE_URL");
    command
}

/// Runs a command to its end with `input` on standard input.
fn finish(command: &mut Command, input: impl AsRef<[u8]>) -> RunResult {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The write fails if the program has ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    let out = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    RunResult { code: out.status.code(), stdout: text(out.stdout), stderr: text(out.stderr) }
}

fn run(args: &[&str], input: impl AsRef<[u8]>) -> RunResult {
    finish(&mut wva(args), input)
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

impl RunResult {
    #[track_caller]
    fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    fn prints(self, parts: &[&str]) -> Self {
        assert_contains(&self.stdout, parts);
        self
    }

    /// Asserts parts of standard error.
    #[track_caller]
    fn reports(self, parts: &[&str]) -> Self {
        assert_contains(&self.stderr, parts);
        self
    }

    #[track_caller]
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", self.stdout, self.stderr))
    }
}
