//! Valid reviews at a constant rate by vegeta, over connections that stay, as the API server's do, and over a new one
//! for each review.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::process::{Child, Command};

/// Reviews a second over connections that stay.
const KEPT_RATE: u32 = 200;
/// Reviews a second over new connections.
const NEW_RATE: u32 = 20;

/// How to load the admission port.
pub(super) struct Load {
    vegeta: PathBuf,
    folder: PathBuf,
}

/// A load under way. Dropping it ends it.
pub(super) struct Running {
    load: (PathBuf, PathBuf),
    kept: Child,
    new: Child,
    time: Duration,
}

/// What vegeta measured.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) requests: u64,
    pub(super) p99_ms: f64,
    /// Share of answers with code 200, 0..=1.
    pub(super) success: f64,
    pub(super) codes: Value,
    pub(super) errors: Value,
}

impl Load {
    pub(super) fn new(vegeta: PathBuf, folder: &Path, port: u16, ca: &[u8]) -> anyhow::Result<Self> {
        let write = |name: &str, text: &[u8]| {
            std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))
        };
        write("faults-ca.pem", ca)?;
        write("valid.json", super::abuse::valid().to_string().as_bytes())?;
        let body = folder.join("valid.json");
        let target = format!(
            "POST https://localhost:{port}{}\nContent-Type: application/json\n@{}\n",
            super::abuse::VALIDATE,
            body.display()
        );
        write("targets.txt", target.as_bytes())?;
        Ok(Self { vegeta, folder: folder.to_owned() })
    }

    pub(super) fn start(&self, time: Duration) -> anyhow::Result<Running> {
        let attack = |name: &str, rate: u32, keep: bool| {
            Command::new(&self.vegeta)
                .arg("attack")
                .arg(format!("-targets={}", self.folder.join("targets.txt").display()))
                .arg(format!("-root-certs={}", self.folder.join("faults-ca.pem").display()))
                .arg(format!("-output={}", self.folder.join(name).display()))
                .args([
                    format!("-rate={rate}"),
                    format!("-duration={}s", time.as_secs()),
                    format!("-keepalive={keep}"),
                ])
                // The API server gives a webhook 5 seconds.
                .args(["-timeout=5s", "-http2=false", "-max-workers=200", "-max-connections=16"])
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .context("cannot start vegeta")
        };
        let (kept, new) = (attack("kept.bin", KEPT_RATE, true)?, attack("new.bin", NEW_RATE, false)?);
        Ok(Running { load: (self.vegeta.clone(), self.folder.clone()), kept, new, time })
    }
}

impl Running {
    /// Waits for the end; the reports over connections that stay and over new ones.
    pub(super) async fn end(mut self) -> anyhow::Result<(Report, Report)> {
        for child in [&mut self.kept, &mut self.new] {
            let bound = self.time + Duration::from_secs(30);
            let status = tokio::time::timeout(bound, child.wait()).await.context("vegeta did not end")??;
            ensure!(status.success(), "vegeta ended with {status}");
        }
        Ok((self.report("kept.bin").await?, self.report("new.bin").await?))
    }

    async fn report(&self, name: &str) -> anyhow::Result<Report> {
        let (vegeta, folder) = &self.load;
        let out = Command::new(vegeta).args(["report", "-type=json"]).arg(folder.join(name)).output().await?;
        ensure!(out.status.success(), "vegeta report: {}", String::from_utf8_lossy(&out.stderr));
        let report: Value = serde_json::from_slice(&out.stdout).context("vegeta's report is no JSON")?;
        let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).context("no figure");
        Ok(Report {
            requests: report["requests"].as_u64().context("no number of requests")?,
            p99_ms: number("/latencies/99th")? / 1e6,
            success: number("/success")?,
            codes: report["status_codes"].clone(),
            errors: report["errors"].clone(),
        })
    }
}
