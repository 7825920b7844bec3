//! Figures of the throughput analyzer.

use std::fmt;

use serde::Serialize;

use wva_objects::servers::{ServerKind, ServerSignal};

/// Arrivals of a model, and throughput of the variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// Arrival rate, requests per second.
    pub arrivals: f64,
    /// Arrival rate at the end of the horizon, requests per second.
    pub forecast: f64,
    /// Slope of the arrival rate, requests per second squared.
    pub slope: f64,
    /// t-value of the slope.
    pub slope_t: f64,
    /// Seconds from a scale-up decision until the new replica takes load.
    pub horizon_seconds: f64,
    /// Fixed time of an engine step, seconds.
    pub a: f64,
    /// Time that each running sequence adds to a step, seconds.
    pub b: f64,
    /// Time of a prompt token, seconds.
    pub c: f64,
    /// Samples from which `a`, `b` and `c` were learned.
    pub samples: f64,
    /// Planned number of concurrent sequences of an engine.
    pub running: f64,
    /// Limit of concurrent sequences that its engines show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown_limit: Option<f64>,
    /// Inter-token latency that bounds `running`, because no objective is stated, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed_itl_ms: Option<f64>,
    /// Inter-token latency with `running` sequences, milliseconds.
    pub itl_ms: f64,
    /// Engine time of a request, seconds.
    pub work: f64,
    /// Throughput of a replica, requests per second. 0: not learned.
    pub throughput: f64,
    /// Time to first token at the end of the horizon, milliseconds. 0: not learned.
    pub ttft_ms: f64,
    /// Objective of the time to first token, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_slo_ms: Option<f64>,
    /// Replicas needed for the forecast.
    pub need: f64,
    /// Replicas needed to drain the queue.
    pub backlog: f64,
    /// Replicas needed for recurring bursts.
    #[serde(skip_serializing_if = "is_zero")]
    pub bursts: f64,
    /// What is kept for `sloTarget`. `None`: it is not stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetFigures>,
}

/// The share of requests that `sloTarget` asks for, what is measured, and the replicas that are kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetFigures {
    /// `sloTarget`, percent.
    pub percent: f64,
    /// Measured share of the last hour, of the objective that is kept less, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hour: Option<f64>,
    /// The same of the last day, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<f64>,
    /// Replicas that are kept. 0: not known yet.
    pub replicas: f64,
    /// Seconds since requests needed as many.
    pub needed_seconds_ago: f64,
    /// Seconds until the history is long enough to remove replicas.
    #[serde(skip_serializing_if = "is_zero")]
    pub learning_seconds: f64,
}

impl TargetFigures {
    /// Sentence about missed objectives, without figures that change with each request.
    pub(super) fn missed_gist(self) -> String {
        format!(
            "fewer than {} of the requests were within the objectives, in the last hour and in the last day",
            format_percent(self.percent)
        )
    }

    /// Less than the target was kept in the last hour and in the last day.
    pub(crate) fn is_missed(self) -> bool {
        let is_below = |share: Option<f64>| share.is_some_and(|share| share < self.percent);
        is_below(self.hour) && is_below(self.day)
    }
}

impl fmt::Display for TargetFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "objective {}", format_percent(self.percent))?;
        let shares = [(self.hour, "in the last hour"), (self.day, "in the last day")];
        let known = shares.iter().filter_map(|(share, window)| share.map(|share| (share, window)));
        for (i, (share, window)) in known.enumerate() {
            write!(f, "{} {} {window}", if i == 0 { ":" } else { "," }, format_percent(share))?;
        }
        if self.replicas > 0.0 {
            let replicas = format_short(self.replicas);
            write!(f, "; {replicas} replicas kept, as needed {:.0} min ago", self.needed_seconds_ago / 60.0)?;
        }
        if self.learning_seconds > 0.0 {
            write!(f, "; no replica is removed for {:.0} min", (self.learning_seconds / 60.0).ceil())?;
        }
        Ok(())
    }
}

fn format_percent(percent: f64) -> String {
    format!("{} %", format_short(percent))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arrivals, forecast, horizon_seconds, .. } = self;
        write!(f, "{} req/s arriving", format_short(*arrivals))?;
        if forecast > arrivals {
            write!(f, ", rising to {} in {horizon_seconds:.0} s", format_short(*forecast))?;
        }
        write!(
            f,
            "; a replica serves {} req/s at {:.0} ms per token (learned from {:.0} samples",
            format_short(self.throughput),
            self.itl_ms,
            self.samples,
        )?;
        if let Some(limit) = self.shown_limit {
            write!(f, "; its engines show a limit of {limit:.0} sequences")?;
        }
        if let Some(assumed) = self.assumed_itl_ms {
            write!(f, "; itlSlo is not stated, so {assumed:.0} ms are planned")?;
        }
        write!(f, "); replicas needed: {}", format_short(self.need))?;
        if self.backlog > 0.0 {
            write!(f, " + {} for the backlog", format_short(self.backlog))?;
        }
        if self.bursts > self.need {
            write!(f, ", {} for recurring bursts", format_short(self.bursts))?;
        }
        if let Some(objective) = self.ttft_slo_ms {
            write!(
                f,
                "; first token in {:.0} ms with the current replicas (objective {objective:.0} ms)",
                self.ttft_ms
            )?;
        }
        self.target.map_or(Ok(()), |target| write!(f, "; {target}"))
    }
}

impl Flow {
    pub(super) fn held_sentence(&self, replicas: f64) -> String {
        format!("not scaled down yet: {} replicas were needed recently: {self}", format_short(replicas))
    }

    pub(super) fn unlearned_sentence(&self) -> String {
        let busy = if self.need > 0.0 {
            format!("{} replicas needed", format_short(self.need))
        } else {
            // Neither does the need count requests that wait for the first replica.
            "no more than half of the replicas are busy now".to_owned()
        };
        format!(
            "the throughput of a replica is not learned yet ({:.0} samples), so the model grows only while most replicas \
             are busy: {} req/s arriving, {busy}",
            self.samples,
            format_short(self.arrivals)
        )
    }
}

/// Three decimals below 1, else one.
fn format_short(value: f64) -> String {
    let text = if value < 1.0 { format!("{value:.3}") } else { format!("{value:.1}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Latency objective of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Objective {
    /// `itlSlo`.
    InterTokenLatency,
    /// `ttftSlo`.
    TimeToFirstToken,
}

impl Objective {
    /// Sentence about an objective out of reach, without figures that change with each sample.
    pub(super) fn out_of_reach_gist(self, objective_ms: f64) -> String {
        let (key, of) = match self {
            Self::InterTokenLatency => ("itlSlo", "a step of an engine"),
            Self::TimeToFirstToken => ("ttftSlo", "the prompt of a request"),
        };
        format!(
            "no number of replicas meets {key} {objective_ms:.0} ms, because {of} alone takes longer; the model is sized \
             without it: raise {key}, or use faster hardware"
        )
    }
}

/// Signal that the throughput analyzer lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MissingSignal {
    /// No replica has two scrapes of its counters.
    Counters,
    /// The output length of requests is unknown.
    Lengths,
    /// A role has no variant, or a variant has no role.
    WholeRequests,
}

impl MissingSignal {
    /// Names the metrics of this server.
    pub(super) fn sentence(self, server: ServerKind) -> String {
        let metric = |signal| server.metric(signal);
        match self {
            Self::Counters => format!(
                "no replica has two scrapes of its counters: check that {}, {} and {} are scraped; a new replica needs \
                 two scrapes",
                metric(ServerSignal::Completed),
                metric(ServerSignal::PromptTokens),
                metric(ServerSignal::GeneratedTokens)
            ),
            Self::Lengths => format!(
                "the output length of requests is unknown: check that {} and {} are scraped",
                metric(ServerSignal::OutputSum),
                metric(ServerSignal::OutputCount)
            ),
            Self::WholeRequests => "its pods serve only the prefill or the decode part of a request (label \
                                    llm-d.ai/role); each role is analyzed separately"
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlearned_model_needs_replicas_only_while_most_are_busy() {
        let end = |need| {
            let sentence = Flow { arrivals: 3.0, need, ..Flow::default() }.unlearned_sentence();
            sentence.rsplit_once(", ").map(|(_, end)| end.to_owned())
        };
        assert_eq!(end(4.0).as_deref(), Some("4 replicas needed"));
        assert_eq!(end(0.0).as_deref(), Some("no more than half of the replicas are busy now"));
    }
}
