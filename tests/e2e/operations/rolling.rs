//! Rolling restarts as with the chart's Deployment (maxSurge 1, maxUnavailable 0): a new replica starts; once it is
//! ready an old one gets SIGTERM, and the restart does not wait for its end.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::pair;
use crate::support::Outcome;
use wva_testbed::Testbed;
use wva_testbed::install::InstallOptions;
use wva_testbed::replicas::{Connections, Replicas};
use wva_testbed::reviews::Reviews;

/// Reviews/s.
const RATE: u32 = 50;
/// Maximum number of pods: two that serve, one that starts, and those that end.
const PODS: usize = 6;

/// Pods that got SIGTERM, the first one first.
#[derive(Default)]
struct TerminatingPods {
    pods: VecDeque<usize>,
    faults: Vec<String>,
}

impl TerminatingPods {
    /// Waits for the end of the first one.
    async fn first_gone(&mut self, replicas: &mut Replicas<'_>) -> anyhow::Result<()> {
        let Some(index) = self.pods.pop_front() else { return Ok(()) };
        let status = replicas.ended(index).await?;
        if !status.success() {
            self.faults.push(format!("wva-{index} ended with {status} after SIGTERM"));
        }
        Ok(())
    }
}

/// A run with failed reviews counts only if the machine paused for less than this. A replica closes idle connections,
/// and with a longer pause the API server may send a review on a closed one, which HTTP/1.1 cannot answer.
const PAUSE: Duration = Duration::from_millis(50);
/// Most runs until one counts.
const RUNS: u32 = 4;

/// Restarts both of two replicas `turns` times; again if the machine was short of CPU and reviews failed.
pub(crate) async fn rolling_restart(testbed: &Testbed, wva: &Path, turns: u32) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    for _ in 0..RUNS {
        let pause;
        (outcome, pause) = restart(testbed, wva, turns).await?;
        if outcome.faults.is_empty() || pause < PAUSE {
            break;
        }
    }
    Ok(outcome)
}

async fn restart(testbed: &Testbed, wva: &Path, turns: u32) -> anyhow::Result<(Outcome, Duration)> {
    let mut replicas = pair(testbed, InstallOptions::quick(wva), "rolling").await?;
    let reviews = Reviews::start(testbed, replicas.namespace(), RATE).await?;
    let (began, before) = (Instant::now(), replicas.connections());
    let mut ends = roll(&mut replicas, 2 * turns).await?;
    let lasted = began.elapsed();
    let tally = reviews.end().await?;
    let mut faults = super::faults(&tally);
    faults.append(&mut ends);
    let connections = replicas.connections();
    let since = |count: fn(&Connections) -> u64| count(&connections) - count(&before);
    let pause = replicas.longest_pause();
    let figures = format!(
        "{turns} restarts of both in {} s: {} of {} reviews failed; connections by way of \
         the Service: {} led, {} refused, {} found no replica; the proxy paused for at most {pause:?}",
        lasted.as_secs(),
        tally.failed,
        tally.sent(),
        since(|c| c.led),
        since(|c| c.refused),
        since(|c| c.nowhere)
    );
    Ok((Outcome { figures, faults }, pause))
}

/// Replaces one replica after the other, `times` in all, and waits for the ends of the old ones. Returns their faults.
async fn roll(replicas: &mut Replicas<'_>, times: u32) -> anyhow::Result<Vec<String>> {
    let mut serving = VecDeque::from([0, 1]);
    let mut terminating = TerminatingPods::default();
    for _ in 0..times {
        if serving.len() + terminating.pods.len() >= PODS {
            terminating.first_gone(replicas).await?;
        }
        let there = |index: &usize| serving.contains(index) || terminating.pods.contains(index);
        let Some(new) = (0..PODS).find(|index| !there(index)) else { continue };
        replicas.start(new).await?;
        replicas.wait_ready(&[new]).await?;
        serving.push_back(new);
        let Some(old) = serving.pop_front() else { continue };
        replicas.terminate(old)?;
        terminating.pods.push_back(old);
    }
    while !terminating.pods.is_empty() {
        terminating.first_gone(replicas).await?;
    }
    Ok(terminating.faults)
}
