//! Every required task is ended and panicked from inside, each in a process of its own: the process must exit with an
//! error, rather than stay ready without the task. Only debug builds have this fault.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{PATIENCE, Times};
use crate::support::Outcome;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::Replicas;
use wva_testbed::{Testbed, eventually};

/// Setting of a debug build for a fault.
const SETTING: &str = "WVA_FAULT";
/// Time of the fault after the start.
const DELAY: Duration = Duration::from_secs(1);
/// Contract: time from the fault to the exit.
const ENDS: Duration = Duration::from_secs(5);
/// Concurrent processes.
const AT_ONCE: usize = 4;

/// Ends and panics every task, each in a process of its own.
pub(crate) async fn killed_tasks(testbed: &Testbed, wva: &Path) -> anyhow::Result<Outcome> {
    let mut replicas = Replicas::install(testbed, InstallOptions::quick(wva), "tasks").await?;
    let tasks = tasks(&mut replicas).await?;
    let all: Vec<String> =
        tasks.iter().flat_map(|task| [format!("end:{task}"), format!("panic:{task}")]).collect();
    let (mut times, mut faults) = (Times::default(), Vec::new());
    for some in all.chunks(AT_ONCE) {
        for (fault, (took, wrong)) in some.iter().zip(run_faults(&mut replicas, some).await?) {
            times.add(fault, took, ENDS);
            faults.extend(wrong);
        }
    }
    let figures = format!("{} tasks, ended and panicked: the process ended after {times}", tasks.len());
    faults.extend(times.late);
    Ok(Outcome { figures, faults })
}

/// Names of all tasks, as the program lists them.
async fn tasks(replicas: &mut Replicas<'_>) -> anyhow::Result<Vec<String>> {
    replicas.set(0, SETTING, "list").await?;
    replicas.start(0).await?;
    let tasks = eventually("wva to list its tasks", PATIENCE, async || {
        let log = replicas.process(0)?.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.find(|line| line["msg"] == "Names of all tasks");
        let line = line.context("no such line yet: it is written by debug builds alone")?;
        let tasks = line["tasks"].as_str().context("a line without tasks")?;
        Ok(tasks.split(',').map(|task| task.trim().to_owned()).collect::<Vec<_>>())
    })
    .await?;
    replicas.kill(0)?;
    ensure!(tasks.len() > 5 && tasks.iter().all(|task| !task.is_empty()), "too few tasks: {tasks:?}");
    Ok(tasks)
}

/// Starts one process for each fault. Returns the time from fault to exit, and the failure, if any.
async fn run_faults(
    replicas: &mut Replicas<'_>,
    harm: &[String],
) -> anyhow::Result<Vec<(Duration, Option<String>)>> {
    for (index, fault) in harm.iter().enumerate() {
        replicas.set(index, SETTING, fault).await?;
    }
    let indexes: Vec<usize> = (0..harm.len()).collect();
    replicas.start_all(&indexes).await?;
    let shared = &*replicas;
    let ends = harm.iter().enumerate().map(|(index, fault)| async move {
        let process = shared.process(index)?;
        let ended = process.wait_exit(PATIENCE).await;
        let took = Timestamp::now().duration_since(fault_time(&process.log())?);
        let took = Duration::try_from(took).unwrap_or_default();
        anyhow::Ok((took, judge(fault, ended.ok())))
    });
    let judged = try_join_all(ends).await?;
    replicas.kill_all();
    Ok(judged)
}

/// Time of the fault, which the process announces: its start-up time does not count.
fn fault_time(log: &str) -> anyhow::Result<Timestamp> {
    let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.find(|line| line["msg"] == "Injecting a fault into a task");
    let announced: Timestamp =
        line.context("no fault was announced")?["ts"].as_str().context("no time")?.parse()?;
    Ok(announced + DELAY)
}

/// Failure of an exit, if any; `None` stands for a process that still runs.
fn judge(fault: &str, ended: Option<ExitStatus>) -> Option<String> {
    match ended {
        None => Some(format!("{fault}: the process goes on")),
        Some(status) if status.success() => Some(format!("{fault}: the process ended with success")),
        Some(_) => None,
    }
}
