//! A real vLLM server on loopback, with a tiny model on the CPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use wva_testbed::install::get;
use wva_testbed::{Process, eventually, free_port};

use crate::usage::Usage;

/// Served model.
pub(super) const MODEL: &str = "acme/tiny";
/// `--max-num-seqs`.
pub(super) const MAX_SEQS: u32 = 16;
/// Tokens of the KV cache of an engine.
pub(super) const CACHE_TOKENS: u32 = CACHE_BLOCKS * BLOCK_TOKENS;
const CACHE_BLOCKS: u32 = 256;
const BLOCK_TOKENS: u32 = 32;

/// From the start of the process to the first answer.
const STARTS_WITHIN: Duration = Duration::from_mins(6);
/// A slowed engine runs once in this time.
const SLICE: Duration = Duration::from_millis(100);

/// Folder that `tests/engines/install.sh` fills.
#[derive(Debug)]
pub(super) struct Installed {
    program: PathBuf,
    model: PathBuf,
}

impl Installed {
    pub(super) fn find(folder: &Path) -> anyhow::Result<Self> {
        let (program, model) = (folder.join("vllm/bin/vllm"), folder.join("model"));
        for path in [&program, &model] {
            ensure!(path.exists(), "{} does not exist: run tests/engines/install.sh", path.display());
        }
        Ok(Self { program, model })
    }
}

/// A running server. Drop it to end it with its engines.
#[derive(Debug)]
pub(super) struct EngineServer {
    process: Process,
    port: u16,
}

impl EngineServer {
    /// Arguments that decide what the server can do, as in the command of its pod.
    pub(super) fn args(engines: u32) -> Vec<String> {
        let mut args =
            vec![format!("--max-num-seqs={MAX_SEQS}"), format!("--num-gpu-blocks-override={CACHE_BLOCKS}")];
        args.push(format!("--block-size={BLOCK_TOKENS}"));
        if engines > 1 {
            args.push(format!("--data-parallel-size={engines}"));
            args.push(format!("--api-server-count={engines}"));
        }
        args
    }

    /// Starts a server with so many data-parallel engines, and waits until it answers.
    pub(super) async fn start(
        installed: &Installed,
        name: &str,
        engines: u32,
        logs: &Path,
    ) -> anyhow::Result<Self> {
        let port = free_port()?;
        let model = installed.model.to_str().context("the path of the model is not UTF-8")?;
        let mut args: Vec<String> =
            ["serve", model, "--load-format=dummy", "--enforce-eager"].map(str::to_owned).into();
        args.push(format!("--served-model-name={MODEL}"));
        args.push("--host=127.0.0.1".to_owned());
        args.push(format!("--port={port}"));
        args.extend(Self::args(engines));
        let env = [
            // Nothing leaves the machine.
            ("HF_HUB_OFFLINE", "1"),
            ("TRANSFORMERS_OFFLINE", "1"),
            ("VLLM_NO_USAGE_STATS", "1"),
            ("DO_NOT_TRACK", "1"),
            ("VLLM_TARGET_DEVICE", "cpu"),
            ("VLLM_CPU_KVCACHE_SPACE", "1"),
            // One thread for each engine: two engines and everything else share a small machine.
            ("OMP_NUM_THREADS", "1"),
            ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
        ];
        let process =
            Process::spawn(name, &installed.program, &args, &env, &logs.join(format!("{name}.log")))?;
        let server = Self { process, port };
        eventually(&format!("{name} to answer"), STARTS_WITHIN, async || {
            if let Some(status) = server.process.exited() {
                return Ok(Err(status));
            }
            let (status, _) = get(&format!("{}/health", server.url())).await?;
            ensure!(status == 200, "/health answered {status}");
            Ok(Ok(()))
        })
        .await
        .with_context(|| server.evidence())?
        .map_err(|status| anyhow::anyhow!("{name} ended with {status}"))
        .with_context(|| server.evidence())?;
        Ok(server)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Page at `/metrics`.
    pub(super) async fn page(&self) -> anyhow::Result<String> {
        let (status, page) = get(&format!("{}/metrics", self.url())).await?;
        ensure!(status == 200, "/metrics of {} answered {status}", self.process.name());
        Ok(page)
    }

    /// Resident memory of the server and its engines, KiB.
    pub(super) fn memory(&self) -> u64 {
        let resident = |pid: u32| Usage::read(pid).map_or(0, |usage| usage.resident);
        process_tree(self.process.pid()).into_iter().map(resident).sum()
    }

    /// Lets the engines run for only this share of the time, at least 0 and at most 1, until the returned value is dropped.
    pub(super) fn slow_down(&self, share: f64) -> anyhow::Result<SlowDown> {
        let engines = process_tree(self.process.pid()).into_iter().filter(|pid| is_engine(*pid));
        let pids: Vec<Pid> = engines.filter_map(|pid| Pid::from_raw(pid.cast_signed())).collect();
        ensure!(!pids.is_empty(), "{} has no process of an engine", self.process.name());
        let end = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let end = end.clone();
            move || {
                let send = |signal| pids.iter().all(|pid| kill_process(*pid, signal).is_ok());
                // A process that has ended takes no signal.
                while !end.load(Ordering::Relaxed) && send(Signal::Stop) {
                    std::thread::sleep(SLICE.mul_f64(1.0 - share));
                    if !send(Signal::Cont) {
                        break;
                    }
                    std::thread::sleep(SLICE.mul_f64(share));
                }
                send(Signal::Cont);
            }
        });
        Ok(SlowDown { end, thread: Some(thread) })
    }

    fn evidence(&self) -> String {
        format!("the end of {}:\n{}", self.process.log_path().display(), self.process.log_tail(20))
    }
}

/// An engine that runs for only a share of the time.
#[derive(Debug)]
pub(super) struct SlowDown {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for SlowDown {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is already on stderr.
            let _ = thread.join();
        }
    }
}

/// This process and all below it.
fn process_tree(pid: u32) -> Vec<u32> {
    let all = procfs::process::all_processes().into_iter().flatten().filter_map(Result::ok);
    let parents: Vec<(u32, u32)> = all
        .filter_map(|process| process.stat().ok())
        .map(|stat| (stat.pid.cast_unsigned(), stat.ppid.cast_unsigned()))
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        next += 1;
    }
    found
}

/// Whether the process computes tokens: vLLM names it `VLLM::EngineCore`.
fn is_engine(pid: u32) -> bool {
    let command = procfs::process::Process::new(pid.cast_signed()).and_then(|process| process.cmdline());
    command.is_ok_and(|command| command.iter().any(|word| word.contains("EngineCore")))
}
