//! Why an hour is not judged, and how far a simulated share may be off. Hours are refused in this order: those of servers
//! without latencies by the command (`cli/src/backtest/judge.rs`), the others while they are calibrated (`calibrate.rs`),
//! and at last those in which bursts decide, when the policies are compared (`compare.rs`).

/// Greatest error of a share with which an hour is judged, and that of all judged hours together: 2 points, or chance
/// ([`Error::tolerance`]).
pub const MAX_ERROR: f64 = 0.02;

/// Why an hour is not judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// Scrapes are missing.
    MissingScrapes {
        /// Share of the replicas' time, 0 to 1.
        missing: f64,
    },
    /// The servers export no histogram of first tokens, or no counts of the hour.
    NoLatencies,
    /// Counters disagree: requests with a first token, and requests that arrived.
    Counters {
        /// Requests that arrived.
        arrived: f64,
        /// Requests with a first token.
        first_tokens: f64,
    },
    /// The simulation does not show the measured share within the objective for first tokens.
    Ttft(Error),
    /// The simulation does not show the measured share within the objective between tokens.
    Itl(Error),
    /// The simulation does not show the measured mean time between tokens, seconds.
    TokenTimes(Error),
    /// Every arrangement makes fewer first tokens late than were measured, or every one makes more.
    OneSided(Error),
    /// Arrangements that the measured latencies do not tell apart lead to different results.
    Bursts {
        /// Least share of a policy within the objectives, 0 to 1.
        least: f64,
        /// Greatest share.
        most: f64,
    },
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |share: f64| 100.0 * share;
        match self {
            Self::MissingScrapes { missing } => {
                write!(f, "{:.0} % of the scrapes are missing", percent(*missing))
            }
            Self::NoLatencies => f.write_str("the servers counted no times to the first token"),
            Self::Counters { arrived, first_tokens } => write!(
                f,
                "the counters disagree: {arrived:.0} requests arrived, and {first_tokens:.0} got a first token"
            ),
            Self::Ttft(e) => write!(
                f,
                "{:.1} % of the first tokens came in time, and {:.1} % do in the simulation: bursts within a scrape \
                 interval, or an engine of another kind",
                percent(e.measured),
                percent(e.simulated)
            ),
            Self::Itl(e) => write!(
                f,
                "{:.1} % of the requests kept the time between tokens, and {:.1} % do in the simulation",
                percent(e.measured),
                percent(e.simulated)
            ),
            Self::TokenTimes(e) => write!(
                f,
                "the mean time between tokens was {:.1} ms, and is {:.1} ms in the simulation",
                1000.0 * e.measured,
                1000.0 * e.simulated
            ),
            Self::OneSided(e) => write!(
                f,
                "{:.1} % of the first tokens came in time, and all reconstructions are on one side: the nearest has {:.1} %",
                percent(e.measured),
                percent(e.simulated)
            ),
            Self::Bursts { least, most } => write!(
                f,
                "bursts within a scrape interval decide: {:.1} to {:.1} % of the requests are within the objectives in \
                 reconstructions that fit the data as well",
                percent(*least),
                percent(*most)
            ),
        }
    }
}

/// A figure as measured and as simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Error {
    /// Measured figure.
    pub measured: f64,
    /// Simulated figure.
    pub simulated: f64,
    /// Greatest difference at the bounds next to the objective.
    pub error: f64,
    /// Standard deviation between draws of the requests.
    pub chance: f64,
}

impl Error {
    /// Greatest error with which an hour is judged: at least [`MAX_ERROR`], and two standard errors of the requests.
    pub(super) fn tolerance(self, requests: f64) -> f64 {
        MAX_ERROR.max(self.of_requests(requests))
    }

    /// Error by chance: two standard errors, of the requests and between draws of them, the latter at most [`MAX_ERROR`].
    pub(super) fn chance_of(self, requests: f64) -> f64 {
        self.of_requests(requests).max((2.0 * self.chance).min(MAX_ERROR))
    }

    /// Two standard errors of the share of this many requests.
    fn of_requests(self, requests: f64) -> f64 {
        let share = self.measured.clamp(0.01, 0.99);
        2.0 * (share * (1.0 - share) / requests.max(1.0)).sqrt()
    }
}
