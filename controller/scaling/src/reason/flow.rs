//! The figures of the throughput analyzer, and the sentence an operator reads of them.

use std::fmt;

use serde::Serialize;

/// What arrives, what a replica of a variant does of it, and what that takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// Requests a second that arrive.
    pub arrivals: f64,
    /// Requests a second that are expected at the end of the horizon.
    pub forecast: f64,
    /// Change of the arrivals in a second.
    pub slope: f64,
    /// How sure the slope is: its t-value.
    pub slope_t: f64,
    /// Seconds until a replica that is asked for now has made a difference.
    pub horizon_seconds: f64,
    /// Fixed time of a step of the engine, seconds.
    pub a: f64,
    /// What a running sequence adds to a step, seconds.
    pub b: f64,
    /// What a prompt token takes, seconds.
    pub c: f64,
    /// Samples they were learnt from.
    pub samples: f64,
    /// Sequences that a replica may run at once.
    pub running: f64,
    /// Milliseconds between two tokens with so many.
    pub itl_ms: f64,
    /// Seconds of the engine a request takes.
    pub work: f64,
    /// Requests a second that a replica does; 0 where it is not learnt.
    pub throughput: f64,
    /// Milliseconds to the first token at the end of the horizon, with the replicas there are; 0 where it is not learnt.
    pub ttft_ms: f64,
    /// The objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_slo_ms: Option<f64>,
    /// Replicas for what is expected.
    pub need: f64,
    /// Replicas for what waits.
    pub backlog: f64,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arrivals, forecast, horizon_seconds, .. } = self;
        write!(f, "{} req/s arriving", short(*arrivals))?;
        if forecast > arrivals {
            write!(f, " and rising, {} expected in {horizon_seconds:.0} s", short(*forecast))?;
        }
        write!(
            f,
            "; a replica does {} at {:.0} ms a token (learnt from {:.0} samples): {}",
            short(self.throughput),
            self.itl_ms,
            self.samples,
            short(self.need)
        )?;
        if self.backlog > 0.0 {
            write!(f, " + {} for the backlog", short(self.backlog))?;
        }
        let Some(objective) = self.ttft_slo_ms else { return Ok(()) };
        write!(
            f,
            "; first token in {:.0} ms with the replicas there are (objective {objective:.0} ms)",
            self.ttft_ms
        )
    }
}

impl Flow {
    /// The sentence where more was needed a short time ago.
    pub(super) fn held(&self, replicas: f64) -> String {
        format!("not scaled down yet, for {} replicas were needed a short time ago: {self}", short(replicas))
    }

    /// The sentence where nothing is learnt yet.
    pub(super) fn unlearnt(&self) -> String {
        format!(
            "what a replica does is not learnt yet (from {:.0} samples), so it grows only where most replicas are busy: {} \
             req/s arriving, {} replicas are asked for",
            self.samples,
            short(self.arrivals),
            short(self.need)
        )
    }
}

/// A figure with as many digits as a person needs.
fn short(value: f64) -> String {
    let text = if value < 1.0 { format!("{value:.3}") } else { format!("{value:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A signal that the throughput analyzer cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Missing {
    /// No two scrapes of counters.
    #[error(
        "no replica shows its counters twice: check that vllm:request_success_total, vllm:prompt_tokens_total and \
         vllm:generation_tokens_total are scraped; after a start it takes two scrapes"
    )]
    Counters,
    /// Nothing tells how long answers are.
    #[error(
        "nothing tells how many tokens a request generates: check that vllm:request_generation_tokens is scraped"
    )]
    Lengths,
    /// Each pod does only a part of a request.
    #[error(
        "its pods do only the prefill or only the decode of a request (label llm-d.ai/role), and each role is judged by itself"
    )]
    WholeRequests,
}
