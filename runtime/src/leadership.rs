//! Which replica acts. One `Lease` in the controller's namespace names the leader; everybody else serves what needs no
//! leader and waits. What a part of the program has to know is in [`Leadership`]: whether this replica leads now, and
//! the terms in which it does. The Lease is written by the election's task alone.

mod client;
mod election;
mod lease;
mod stored;
mod term;

use std::time::Duration;

use prometheus::IntGauge;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use term::{Term, Validity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use client::NotLeading;
pub use election::{Election, elect};

/// Work of an ended term gets this long to end by itself before it is dropped. What it sends meanwhile is not let
/// through.
const WIND_UP: Duration = Duration::from_secs(2);

/// Who leads, as this replica knows it. Clones share it.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: watch::Receiver<State>,
    validity: Validity,
    /// How long a new leader publishes no series.
    takeover_delay: Duration,
}

/// Written by the election alone.
#[derive(Clone, Debug, Default)]
struct State {
    /// Who held the Lease when it was last seen.
    holder: Option<String>,
    /// While this replica leads.
    term: Option<Term>,
}

impl Leadership {
    /// Of a process that runs without an election: it leads from the first moment until `stopping`.
    #[must_use]
    pub fn alone(stopping: &CancellationToken) -> Self {
        let (term, _) = Term::begin(stopping);
        let (sender, state) = watch::channel(State { holder: None, term: Some(term) });
        // Nobody writes it any more; the last value stays readable.
        drop(sender);
        Self { state, validity: Validity::always(), takeover_delay: Duration::ZERO }
    }

    /// Whether this replica may act at this moment: it leads, and its Lease was renewed in time.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.current().is_some()
    }

    /// Whether it may show series that only a leader shows: the series of the leader before it have gone from
    /// Prometheus by then.
    #[must_use]
    pub fn shows_series(&self) -> bool {
        self.current().is_some_and(|term| term.age() >= self.takeover_delay)
    }

    /// Who led when the Lease was last seen: a pod's name. `None` where it has not been seen, or nobody held it.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        self.state.borrow().holder.clone()
    }

    fn current(&self) -> Option<Term> {
        let term = self.state.borrow().term.clone();
        term.filter(|term| !term.ended.is_cancelled() && self.validity.holds())
    }

    /// Runs `work` in each term of this replica, until `stopping`. The token it is given ends with the term; work that
    /// does not end then is dropped.
    ///
    /// # Errors
    /// What `work` failed with, or that it or the election ended although nobody asked it to.
    pub async fn while_leading<W, F>(&self, stopping: &CancellationToken, mut work: W) -> Result<(), String>
    where
        W: FnMut(CancellationToken) -> F,
        F: Future<Output = Result<(), String>>,
    {
        loop {
            let mut state = self.state.clone();
            let next = state.wait_for(|s| s.term.as_ref().is_some_and(|term| !term.ended.is_cancelled()));
            let term = match stopping.run_until_cancelled(next).await {
                None => return Ok(()),
                Some(Ok(state)) => state.term.clone(),
                // The election ends with everything else, and may be the first to.
                Some(Err(_)) if stopping.is_cancelled() => return Ok(()),
                Some(Err(_)) => return Err("the election of a leader has ended".to_owned()),
            };
            // The condition waited for.
            let Some(term) = term else { continue };
            let ended = async {
                term.ended.cancelled().await;
                tokio::time::sleep(WIND_UP).await;
            };
            tokio::select! {
                biased;
                result = work(term.ended.clone()) => {
                    result?;
                    if !term.ended.is_cancelled() {
                        return Err("ended although this replica leads".to_owned());
                    }
                }
                () = ended => {}
            }
        }
    }

    /// The collector of `wva_leader`.
    ///
    /// # Errors
    /// Never for this name; the metrics library checks it.
    pub fn gauge(&self) -> Result<impl Collector + 'static, prometheus::Error> {
        let gauge = IntGauge::new("wva_leader", "1 on the replica that decides and publishes.")?;
        Ok(LeaderGauge { leadership: self.clone(), gauge })
    }
}

/// Asked at each scrape: a process that was stopped and goes on tells the truth at once.
struct LeaderGauge {
    leadership: Leadership,
    gauge: IntGauge,
}

impl Collector for LeaderGauge {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set(i64::from(self.leadership.leads()));
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests;
