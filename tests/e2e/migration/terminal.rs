//! A program on a pseudo-terminal: what it draws, and how it ends after Ctrl-C.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use wva_testbed::{Testbed, eventually, within};

use crate::support::DEADLINE;

const SIZE: Winsize = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };

/// Runs `wva` on a terminal until its output is `wanted`, presses Ctrl-C, and returns all output.
pub(crate) async fn run_on_terminal(
    testbed: &Testbed,
    args: &[&str],
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<String> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    tcsetwinsize(&terminal, SIZE)?;
    let name = ptsname(&terminal, Vec::new())?.into_string()?;
    let device = File::options().read(true).write(true).open(name)?;
    // `setsid --ctty` makes it the controlling terminal, which turns Ctrl-C into a signal.
    let mut child = tokio::process::Command::new("setsid")
        .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_wva")])
        .args(args)
        .env("KUBECONFIG", testbed.admin_kubeconfig())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::from(device.try_clone()?))
        .stdout(Stdio::from(device.try_clone()?))
        .stderr(Stdio::from(device))
        .kill_on_drop(true)
        .spawn()
        .context("setsid of util-linux")?;
    let drawn = Arc::new(Mutex::new(Vec::new()));
    let reader = tokio::task::spawn_blocking({
        let (mut terminal, drawn) = (File::from(terminal.try_clone()?), drawn.clone());
        move || copy(&mut terminal, &drawn)
    });
    let text = || String::from_utf8_lossy(&drawn.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    eventually(&format!("wva {} to draw", args.join(" ")), DEADLINE, async || {
        ensure!(wanted(&text()), "{}", text());
        Ok(())
    })
    .await?;
    press_ctrl_c(terminal)?;
    let ended = within("wva to end after Ctrl-C", DEADLINE, child.wait()).await?;
    ensure!(ended.success(), "{ended}: {}", text());
    // The terminal ends with its last program.
    within("the terminal to end", DEADLINE, reader).await?;
    Ok(text())
}

fn press_ctrl_c(terminal: OwnedFd) -> std::io::Result<()> {
    File::from(terminal).write_all(b"\x03")
}

/// Until the program has closed the terminal.
fn copy(terminal: &mut File, drawn: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = terminal.read(&mut buffer) {
        drawn.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
    }
}
