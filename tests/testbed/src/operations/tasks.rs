//! Every task that must run, ended and panicked from inside, one after the other: the process must go with it, and say
//! so by its exit status, rather than stay ready but dead. Only a debug build can be told to do that to itself.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::time::Instant;

use super::{Outcome, spread};
use crate::install::InstallOptions;
use crate::install::program::Program;
use crate::replicas::Replicas;
use crate::{Testbed, eventually};

/// The setting by which a debug build harms itself.
const SETTING: &str = "WVA_FAULT";
/// When it does, after it has started.
const DELAY: Duration = Duration::from_secs(1);
/// The contract, from the fault on.
const ENDS: Duration = Duration::from_secs(5);
const LISTED: Duration = Duration::from_secs(30);

/// Ends and panics every task there is, each in a process of its own.
///
/// # Errors
/// When the program does not say which tasks it has.
pub async fn killed_tasks(testbed: &Testbed, wva: &Path) -> anyhow::Result<Outcome> {
    let mut replicas = Replicas::install(testbed, InstallOptions::quick(wva)).await?;
    let tasks = tasks(&mut replicas).await?;
    let (mut times, mut faults) = (Vec::new(), Vec::new());
    for task in &tasks {
        for fault in ["end", "panic"] {
            // Nobody gave it back, and some tasks run in a leader alone.
            replicas.delete_lease().await?;
            let (took, fault) = killed(&mut replicas, &format!("{fault}:{task}")).await?;
            times.push(took);
            faults.extend(fault);
        }
    }
    let figures =
        format!("{} tasks, ended and panicked: the process ended after {}", tasks.len(), spread(&times));
    Ok(Outcome { figures, faults })
}

/// The names of all tasks, as the program lists them.
async fn tasks(replicas: &mut Replicas<'_>) -> anyhow::Result<Vec<String>> {
    replicas.set(SETTING, "list");
    replicas.start(0).await?;
    let tasks = eventually("wva to list its tasks", LISTED, async || {
        let log = replicas.process(0)?.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.find(|line| line["msg"] == "Tasks that can be ended");
        let line = line.context("no such line yet: it is written by debug builds alone")?;
        let tasks = line["tasks"].as_str().context("a line without tasks")?;
        Ok(tasks.split(',').map(|task| task.trim().to_owned()).collect::<Vec<_>>())
    })
    .await?;
    replicas.kill(0)?;
    ensure!(tasks.len() > 5 && tasks.iter().all(|task| !task.is_empty()), "too few tasks: {tasks:?}");
    Ok(tasks)
}

/// How long after the fault the process ended, and what was wrong with that.
async fn killed(replicas: &mut Replicas<'_>, fault: &str) -> anyhow::Result<(Duration, Option<String>)> {
    replicas.set(SETTING, fault);
    let started = Instant::now();
    replicas.start(0).await?;
    let ended = replicas.process(0)?.wait_exit(Program::GRACE).await;
    let took = started.elapsed().saturating_sub(DELAY);
    let wrong = match ended {
        Err(_) => Some(format!("{fault}: the process goes on")),
        Ok(status) if status.success() => Some(format!("{fault}: the process ended with success")),
        Ok(_) if took > ENDS => Some(format!("{fault}: the process ended after {took:?}")),
        Ok(_) => None,
    };
    replicas.kill(0)?;
    Ok((took, wrong))
}
