//! A start with five wrong settings of several sources, away from any cluster, and what it says.

use crate::{finish, wva};

/// The message on standard error.
pub(crate) fn said() -> String {
    let mut start = wva(&["run", "--metrics-secure=perhaps"]);
    start.env_clear().envs([
        ("KUBECONFIG", "/no/such/file"),
        ("GLOBAL_OPT_INTERVAL", "60"),
        ("PROMETHEUS_BASE_URL", "ftp://user:hunter2@prometheus"),
        ("LEADER_ELECTION_LEASE_DURATION", "10s"),
        ("CONFIG_FILE", "/no/such/file"),
    ]);
    finish(&mut start, "").ends(1).stderr
}
