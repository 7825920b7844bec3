//! A Prometheus of its own, filled by remote write.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use wva_testbed::{Process, Tools, eventually, free_port};

use super::driver::FleetRun;
use super::remote_write::{add, snappy};
use super::series::{Names, PodSeries};
use super::{Answer, run_measured};
use crate::command::SOON;

/// Seconds of samples that are written at once. Prometheus takes samples up to an hour apart.
const SLICE: f64 = 900.0;
/// Bytes of a request, at least if there are more.
const REQUEST: usize = 1 << 20;

pub(super) struct Server {
    folder: PathBuf,
    port: u16,
    process: Process,
}

/// Start of a history of this many seconds that ends about now: on a multiple of five minutes.
pub(super) fn aligned_start(seconds: f64) -> anyhow::Result<i64> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    Ok((now - whole(seconds) - 600).div_euclid(300) * 300)
}

/// Arguments for the span of a history, up to whole windows.
pub(super) fn span(epoch: i64, seconds: f64) -> [String; 4] {
    let length = (whole(seconds) + 299) / 300 * 300;
    let until = wva_simulator::backtest::plan::Time(epoch + length).to_string();
    ["--for".to_owned(), format!("{length}s"), "--until".to_owned(), until.replace('Z', ":00Z")]
}

#[expect(clippy::cast_possible_truncation, reason = "some days")]
fn whole(seconds: f64) -> i64 {
    seconds as i64
}

impl Server {
    /// Starts an empty one.
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let config = folder.join("prometheus.yml");
        std::fs::write(&config, "global: {}\n")?;
        let program = Tools::on_request("prometheus")?;
        let port = free_port()?;
        let arguments = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            "--storage.tsdb.retention.time=60d".to_owned(),
            "--web.enable-remote-write-receiver".to_owned(),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let log = folder.join("prometheus.log");
        let process = Process::spawn("prometheus", &program, &arguments, &[], &log)?;
        let server = Self { folder: folder.to_owned(), port, process };
        let ready = format!("{}/-/ready", server.url());
        let client = client()?;
        eventually("Prometheus to serve", SOON, async || {
            ensure!(server.process.exited().is_none(), "it ended: {}", server.process.log_tail(5));
            client.get(&ready).send().await?.error_for_status()?;
            Ok(())
        })
        .await?;
        Ok(server)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Writes what fleets showed, in order of time; returns the number of samples.
    pub(super) async fn fill(
        &self,
        fleets: &[(&FleetRun, String, String)],
        epoch: i64,
        seconds: f64,
    ) -> anyhow::Result<usize> {
        let mut pods = Vec::new();
        for (ran, namespace, model) in fleets {
            for (serial, pod) in &ran.pods {
                let name = format!("{namespace}-{serial}");
                pods.push(PodSeries::new(ran, pod, Names { namespace, model, pod: &name }, epoch));
            }
        }
        let (client, mut until, mut samples) = (client()?, 0.0, 0);
        while until < seconds + SLICE {
            until += SLICE;
            let mut request = Vec::new();
            for pod in &mut pods {
                let series = pod.take(until);
                samples += series.iter().map(|series| series.samples.len()).sum::<usize>();
                add(&mut request, series);
                if request.len() > REQUEST {
                    self.send(&client, &std::mem::take(&mut request)).await?;
                }
            }
            self.send(&client, &request).await?;
        }
        Ok(samples)
    }

    async fn send(&self, client: &reqwest::Client, message: &[u8]) -> anyhow::Result<()> {
        if message.is_empty() {
            return Ok(());
        }
        let request =
            client.post(format!("{}/api/v1/write", self.url())).header("Content-Encoding", "snappy");
        let request = request.header("Content-Type", "application/x-protobuf");
        let request = request.header("X-Prometheus-Remote-Write-Version", "0.1.0");
        let answer = request.body(snappy(message)).send().await.context("remote write")?;
        let status = answer.status();
        ensure!(status.is_success(), "remote write: {status}: {}", answer.text().await?);
        Ok(())
    }

    /// Runs the command.
    pub(super) async fn backtest(
        &self,
        wva: &Path,
        span: &[String],
        more: &[&str],
    ) -> anyhow::Result<Answer> {
        let mut arguments = vec!["backtest".to_owned(), "--prometheus".to_owned(), self.url()];
        arguments.extend(span.iter().cloned());
        arguments.extend(more.iter().map(|text| (*text).to_owned()));
        run_measured(wva, &arguments, self.folder.join("wva.log")).await
    }
}

fn client() -> anyhow::Result<reqwest::Client> {
    let builder = reqwest::Client::builder().no_proxy().timeout(Duration::from_mins(2));
    builder.build().context("cannot make an HTTP client")
}
