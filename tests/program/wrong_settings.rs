//! A start with five wrong settings of several sources, away from any cluster, and what it says.

use std::process::Command;

/// The message on standard error.
pub(crate) fn said() -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_wva"))
        .args(["run", "--metrics-secure=perhaps"])
        .env_clear()
        .env("KUBECONFIG", "/no/such/file")
        .env("GLOBAL_OPT_INTERVAL", "60")
        .env("PROMETHEUS_BASE_URL", "ftp://user:hunter2@prometheus")
        .env("LEADER_ELECTION_LEASE_DURATION", "10s")
        .env("CONFIG_FILE", "/no/such/file")
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    String::from_utf8(out.stderr).unwrap()
}
