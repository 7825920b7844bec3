//! Results of a run: requests within their objectives, cost, and moves of the policy.

mod figures;
mod histogram;

use crate::fleet::server::ServedRequest;
use crate::fleet::{Fleet, LossReason};

pub use figures::{FIGURES, Figure, Figures};
pub use histogram::Histogram;

/// The objectives of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objectives {
    /// Time to the first token, seconds.
    pub ttft: f64,
    /// Time between two tokens, the mean over a request, seconds.
    pub itl: f64,
    /// Share of requests for which both must be kept, 0 to 1.
    pub attainment: f64,
}

/// One minute of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Minute {
    /// Requests that arrived in this minute.
    pub arrived: u32,
    /// Requests of this minute that kept both objectives.
    pub good: u32,
    /// Requests of this minute that kept the time to the first token.
    pub ttft_kept: u32,
    /// Requests of this minute that kept the time between tokens.
    pub itl_kept: u32,
    /// Requests of this minute that were not served.
    pub lost: u32,
    /// Longest time to the first token of those served, seconds.
    pub slowest: f32,
    /// Sum of the times to the first token, seconds.
    pub ttft: f32,
    /// Ready replicas of each variant at the end of the minute.
    pub ready: Vec<u16>,
    /// Replicas of each variant's workload at the end of the minute.
    pub current: Vec<u16>,
}

/// A change of a variant's replicas by its policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// Time of the change, seconds.
    pub at: f64,
    /// Index of the variant.
    pub variant: usize,
    /// Replicas before.
    pub from: u32,
    /// Replicas after.
    pub to: u32,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Objectives of the run.
    pub objectives: Objectives,
    /// Times to the first token, seconds.
    pub ttft: Histogram,
    /// Mean times between tokens of each request, seconds.
    pub itl: Histogram,
    /// Requests that kept the time to the first token.
    pub ttft_kept: u64,
    /// Requests that kept the time between tokens.
    pub itl_kept: u64,
    /// Requests that kept both objectives.
    pub good: u64,
    /// Requests served.
    pub served: u64,
    /// Tokens generated for the requests served.
    pub tokens: u64,
    /// Requests not served: timed out, refused, killed, too long.
    pub lost: [u64; 4],
    /// Minutes of the run; a request counts in the minute of its arrival.
    pub minutes: Vec<Minute>,
    /// Changes of replicas by the policy, in order of time.
    pub moves: Vec<Move>,
    /// Replica-hours of each variant.
    pub replica_hours: Vec<f64>,
    /// GPU-hours of all variants.
    pub gpu_hours: f64,
    /// Cost of the replicas.
    pub cost: f64,
}

impl Tally {
    /// An empty tally for these objectives.
    #[must_use]
    pub fn new(objectives: Objectives) -> Self {
        Self { objectives, ..Self::default() }
    }

    /// Requests that have arrived.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.served + self.lost.iter().sum::<u64>()
    }

    /// Counts a request that was served.
    pub fn count_served(&mut self, served: &ServedRequest) {
        let request = served.request;
        let ttft = served.first_token - request.arrived;
        let ttft_kept = ttft <= self.objectives.ttft;
        self.ttft.add(ttft);
        let mut itl_kept = true;
        if request.output > 1 {
            let itl = (served.ended - served.first_token) / f64::from(request.output - 1);
            self.itl.add(itl);
            itl_kept = itl <= self.objectives.itl;
        }
        self.served += 1;
        self.tokens += u64::from(request.output);
        self.ttft_kept += u64::from(ttft_kept);
        self.itl_kept += u64::from(itl_kept);
        self.good += u64::from(ttft_kept && itl_kept);
        let minute = self.minute(request.arrived);
        minute.arrived += 1;
        minute.good += u32::from(ttft_kept && itl_kept);
        minute.ttft_kept += u32::from(ttft_kept);
        minute.itl_kept += u32::from(itl_kept);
        #[expect(clippy::cast_possible_truncation, reason = "a plot needs no more")]
        let ttft = ttft as f32;
        minute.slowest = minute.slowest.max(ttft);
        minute.ttft += ttft;
    }

    /// Counts a request that was not served.
    pub fn count_lost(&mut self, arrived: f64, reason: LossReason) {
        self.lost[reason as usize] += 1;
        let minute = self.minute(arrived);
        minute.arrived += 1;
        minute.lost += 1;
    }

    /// Replicas at the end of the minute that ends at `now`.
    pub fn record_replicas(&mut self, fleet: &Fleet, now: f64) {
        let short = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let variants = 0..fleet.variants().len();
        let ready = variants.clone().map(|v| short(fleet.ready_replicas(v))).collect();
        let current = variants.map(|v| short(fleet.current(v))).collect();
        let minute = self.minute(now - 1.0);
        (minute.ready, minute.current) = (ready, current);
    }

    /// Hours and cost of the replicas until `now`.
    pub fn sum_costs(&mut self, fleet: &Fleet, now: f64) {
        let hours = (0..fleet.variants().len()).map(|v| fleet.replica_seconds(v, now) / 3600.0);
        self.replica_hours = hours.collect();
        let priced = || self.replica_hours.iter().zip(fleet.variants());
        self.gpu_hours = priced().map(|(h, v)| h * f64::from(v.gpus)).sum();
        self.cost = priced().map(|(h, v)| h * v.cost).sum();
    }

    fn minute(&mut self, at: f64) -> &mut Minute {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a run has few minutes")]
        let i = (at / 60.0) as usize;
        if self.minutes.len() <= i {
            self.minutes.resize_with(i + 1, Minute::default);
        }
        &mut self.minutes[i]
    }
}
