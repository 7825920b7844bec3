//! `cargo xtask generate --check` passes.

use std::process::Command;

#[test]
fn generated_files_are_current() {
    let checked = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["generate", "--check"]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
