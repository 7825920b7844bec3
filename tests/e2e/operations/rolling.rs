//! Rolling restarts as the chart's Deployment does them (maxSurge 1, maxUnavailable 0): a new replica is started, and
//! once it is ready an old one gets its SIGTERM; nobody waits for the old one to end.

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

/// Reviews a second.
const RATE: u32 = 50;
/// Pods that there are at once at most: two that serve, one that comes, and those that are going.
const PODS: usize = 6;

/// The pods that were told to end, the first one first.
#[derive(Default)]
struct Leaving {
    pods: VecDeque<usize>,
    faults: Vec<String>,
}

impl Leaving {
    /// Waits for the one that was told first.
    async fn first_gone(&mut self, replicas: &mut Replicas<'_>) -> anyhow::Result<()> {
        let Some(index) = self.pods.pop_front() else { return Ok(()) };
        let status = replicas.ended(index).await?;
        if !status.success() {
            self.faults.push(format!("wva-{index} ended with {status} after SIGTERM"));
        }
        Ok(())
    }
}

/// Above it a run says nothing where reviews failed: an idle connection that a replica closes was closed for the API server
/// only after this time, and HTTP/1.1 has no answer to a review that is sent meanwhile.
const PAUSE: Duration = Duration::from_millis(50);
/// Runs until one of them counts.
const RUNS: u32 = 4;

/// Restarts both of two replicas `turns` times; once more where the machine was short of CPU and reviews failed.
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

/// Replaces one replica after the other, `times` in all, and waits for the ends of the old ones; what was wrong with
/// these.
async fn roll(replicas: &mut Replicas<'_>, times: u32) -> anyhow::Result<Vec<String>> {
    let mut serving = VecDeque::from([0, 1]);
    let mut leaving = Leaving::default();
    for _ in 0..times {
        if serving.len() + leaving.pods.len() >= PODS {
            leaving.first_gone(replicas).await?;
        }
        let there = |index: &usize| serving.contains(index) || leaving.pods.contains(index);
        let Some(new) = (0..PODS).find(|index| !there(index)) else { continue };
        replicas.start(new).await?;
        replicas.wait_ready(&[new]).await?;
        serving.push_back(new);
        let Some(old) = serving.pop_front() else { continue };
        replicas.terminate(old)?;
        leaving.pods.push_back(old);
    }
    while !leaving.pods.is_empty() {
        leaving.first_gone(replicas).await?;
    }
    Ok(leaving.faults)
}
