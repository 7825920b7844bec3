//! Error message of a start with five invalid settings from several sources, without a cluster.

use crate::program::{finish, wva};

/// Standard error of the start.
pub(crate) fn message() -> String {
    let mut start = wva(&["run", "--metrics-secure=perhaps"]);
    start.env_clear().envs([
        ("KUBECONFIG", "/no/such/file"),
        ("GLOBAL_OPT_INTERVAL", "60"),
        ("PROMETHEUS_BASE_URL", "ftp://user:hunter2@prometheus"),
        ("LEADER_ELECTION_LEASE_DURATION", "10s"),
        ("CONFIG_FILE", "/no/such/file"),
    ]);
    let printed = finish(&mut start, "");
    assert_eq!(printed.code, Some(1), "{}{}", printed.stdout, printed.stderr);
    printed.stderr
}
