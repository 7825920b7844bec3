//! Leader election by a `Lease` in the controller's namespace. [`Leadership`] runs work in the terms of this replica.
//! Only the election's task writes the Lease.

mod client;
mod election;
mod lease;
mod lease_store;
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

/// Longest time for the work of an ended term. After it, the work is dropped. Its writes are refused meanwhile.
const TERM_END_TIMEOUT: Duration = Duration::from_secs(2);

/// Leadership of this replica. Clones share it.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: watch::Receiver<State>,
    validity: Validity,
    /// Time from the start of a term until its series are published.
    takeover_delay: Duration,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Holder of the Lease when it was last read.
    holder: Option<String>,
    term: Option<Term>,
}

impl Leadership {
    /// Leads from the start until `stopping`.
    #[must_use]
    pub fn without_election(stopping: &CancellationToken) -> Self {
        let (term, _) = Term::begin(stopping);
        let (sender, state) = watch::channel(State { holder: None, term: Some(term) });
        drop(sender);
        Self { state, validity: Validity::always(), takeover_delay: Duration::ZERO }
    }

    /// This replica leads, and its Lease was renewed in time.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.current().is_some()
    }

    /// True once the previous leader's series have left Prometheus.
    #[must_use]
    pub fn may_publish_series(&self) -> bool {
        self.current().is_some_and(|term| term.age() >= self.takeover_delay)
    }

    /// `None` if the Lease was not read yet or has no holder.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        self.state.borrow().holder.clone()
    }

    fn current(&self) -> Option<Term> {
        let term = self.state.borrow().term.clone();
        term.filter(|term| !term.ended.is_cancelled() && self.validity.is_valid())
    }

    /// Runs `work` in each term, until `stopping`. Its token ends with the term; work that does not return soon after
    /// is dropped.
    ///
    /// # Errors
    /// The error of `work`, or that it or the election returned unexpectedly.
    pub async fn run_while_leading<W, F>(
        &self,
        stopping: &CancellationToken,
        mut work: W,
    ) -> Result<(), String>
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
                // On shutdown the election may end first.
                Some(Err(_)) if stopping.is_cancelled() => return Ok(()),
                Some(Err(_)) => return Err("the election of a leader has ended".to_owned()),
            };
            let Some(term) = term else { continue };
            let ended = async {
                term.ended.cancelled().await;
                tokio::time::sleep(TERM_END_TIMEOUT).await;
            };
            tokio::select! {
                biased;
                result = work(term.ended.clone()) => {
                    result?;
                    if !term.ended.is_cancelled() {
                        return Err("returned although this replica leads".to_owned());
                    }
                }
                () = ended => {}
            }
        }
    }

    /// Collector of `wva_leader`.
    ///
    /// # Errors
    /// Never: the name is valid.
    pub fn gauge(&self) -> Result<impl Collector + 'static, prometheus::Error> {
        let gauge = IntGauge::new("wva_leader", "1 on the replica that decides and publishes.")?;
        Ok(LeaderGauge { leadership: self.clone(), gauge })
    }
}

/// Computed at each scrape, so that a suspended process reports the correct value at once.
struct LeaderGauge {
    leadership: Leadership,
    gauge: IntGauge,
}

impl Collector for LeaderGauge {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set(i64::from(self.leadership.is_leader()));
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests;
