//! [`wva_testbed::Process`]: pid, signals and exit status of the program itself, its log, and no process left. The
//! programs are small shell scripts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use wva_testbed::{Process, Signal, eventually};

use super::state;

const SOON: Duration = Duration::from_mins(1);

fn log(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}.log", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn shell(test: &str, script: &str) -> anyhow::Result<Process> {
    Process::spawn(test, Path::new("sh"), &["-c", script], &[("GREETING", "hello")], &log(test))
}

#[tokio::test]
async fn reports_exit_status_and_log_of_the_program() -> anyhow::Result<()> {
    let process = shell("status", "echo $GREETING $$; echo oops >&2; read x || echo no input; exit 7")?;
    let status = process.wait_exit(SOON).await?;
    assert_eq!(status.code(), Some(7));
    assert_eq!(process.log(), format!("hello {}\noops\nno input\n", process.pid()));
    assert_eq!(process.log_tail(1), "no input");
    assert!(process.signal(Signal::Term).is_err(), "it signals a process that has ended");
    Ok(())
}

#[tokio::test]
async fn reports_a_missing_program() -> anyhow::Result<()> {
    let process =
        Process::spawn::<&str>("nothing", Path::new("/no/such/program"), &[], &[], &log("missing"))?;
    assert_eq!(process.wait_exit(SOON).await?.code(), Some(127));
    assert!(process.log().contains("/no/such/program"), "{}", process.log());
    Ok(())
}

#[tokio::test]
async fn signals_reach_the_program() -> anyhow::Result<()> {
    let script = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done";
    let process = shell("signals", script)?;
    process.wait_logged(SOON, &["up"]).await?;
    process.signal(Signal::Stop)?;
    eventually("the script to be frozen", SOON, async || {
        let state = state(process.pid())?;
        if !state.starts_with('T') {
            bail!("its state is {state:?}");
        }
        Ok(())
    })
    .await?;
    process.signal(Signal::Cont)?;
    process.signal(Signal::Term)?;
    assert_eq!(process.wait_exit(SOON).await?.code(), Some(3));
    assert_eq!(process.log(), "up\nbye\n");
    Ok(())
}

#[tokio::test]
async fn wait_error_contains_the_log() -> anyhow::Result<()> {
    let process = shell("patience", "echo working on it; exec sleep 60")?;
    eventually("the first line", SOON, async || process.log().contains('\n').then_some(()).context("none"))
        .await?;
    let error = process.wait_exit(Duration::from_millis(300)).await.err().context("it still runs")?;
    let text = format!("{error:#}");
    assert!(text.contains("patience") && text.contains("working on it"), "{text}");
    Ok(())
}

#[tokio::test]
async fn drop_kills_frozen_process_and_grandchildren() -> anyhow::Result<()> {
    let process = shell("family", "sleep 60 & echo $!; wait")?;
    let child: u32 =
        eventually("the pid of the grandchild", SOON, async || Ok(process.log().trim().parse()?)).await?;
    assert!(!state(child)?.is_empty());
    process.signal(Signal::Stop)?;
    let parent = process.pid();
    drop(process);
    for pid in [parent, child] {
        eventually("the family to be gone", SOON, async || match state(pid)?.as_str() {
            "" => Ok(()),
            state => bail!("{pid} is in state {state}"),
        })
        .await?;
    }
    Ok(())
}
