//! What becomes of a run: each request against its objectives, what the replicas cost, and how the policy moved them.

mod figures;
mod histogram;

use crate::fleet::server::ServedRequest;
use crate::fleet::{Fleet, LossReason};

pub use figures::{FIGURES, Figure, Figures};
pub use histogram::Histogram;

/// The objectives of a model. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objectives {
    /// To the first token.
    pub ttft: f64,
    /// Between two tokens, as the mean over a request.
    pub itl: f64,
    /// Share of requests that both are kept for.
    pub attainment: f64,
}

/// One minute of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Minute {
    /// Requests that arrived in it.
    pub arrived: u32,
    /// Of these, those that both objectives were kept for.
    pub good: u32,
    /// Of these, those that were not served.
    pub lost: u32,
    /// The longest time to the first token of these.
    pub slowest: f32,
    /// Sum of the times to the first token.
    pub ttft: f32,
    /// Ready replicas of each variant at its end.
    pub ready: Vec<u16>,
    /// Replicas that each variant's workload had at its end.
    pub current: Vec<u16>,
}

/// A change of a variant's replicas by its policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// When.
    pub at: f64,
    /// The variant.
    pub variant: usize,
    /// Replicas before.
    pub from: u32,
    /// Replicas after.
    pub to: u32,
}

/// What a run has come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// The objectives it is held to.
    pub objectives: Objectives,
    /// Times to the first token.
    pub ttft: Histogram,
    /// Mean times between tokens.
    pub itl: Histogram,
    /// Requests that the first objective was kept for.
    pub ttft_kept: u64,
    /// Requests that the second was kept for.
    pub itl_kept: u64,
    /// Requests that both were kept for.
    pub good: u64,
    /// Requests served.
    pub served: u64,
    /// Tokens generated for them.
    pub tokens: u64,
    /// Requests not served: timed out, refused, killed, too long.
    pub lost: [u64; 4],
    /// Minute by minute, by arrival.
    pub minutes: Vec<Minute>,
    /// What the policy did.
    pub moves: Vec<Move>,
    /// Replica-hours of each variant.
    pub replica_hours: Vec<f64>,
    /// GPU-hours of all.
    pub gpu_hours: f64,
    /// What they cost.
    pub cost: f64,
}

impl Tally {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(objectives: Objectives) -> Self {
        Self {
            objectives,
            ttft: Histogram::default(),
            itl: Histogram::default(),
            ttft_kept: 0,
            itl_kept: 0,
            good: 0,
            served: 0,
            tokens: 0,
            lost: [0; 4],
            minutes: Vec::new(),
            moves: Vec::new(),
            replica_hours: Vec::new(),
            gpu_hours: 0.0,
            cost: 0.0,
        }
    }

    /// Requests that have arrived.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.served + self.lost.iter().sum::<u64>()
    }

    /// A request was served.
    pub fn serve(&mut self, served: &ServedRequest) {
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
        #[expect(clippy::cast_possible_truncation, reason = "a plot needs no more")]
        let ttft = ttft as f32;
        minute.slowest = minute.slowest.max(ttft);
        minute.ttft += ttft;
    }

    /// A request was not served.
    pub fn lose(&mut self, arrived: f64, why: LossReason) {
        self.lost[why as usize] += 1;
        let minute = self.minute(arrived);
        minute.arrived += 1;
        minute.lost += 1;
    }

    /// Notes the replicas at the end of the minute that ends now.
    pub fn note_replicas(&mut self, fleet: &Fleet, now: f64) {
        let short = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let variants = 0..fleet.variants().len();
        let ready = variants.clone().map(|v| short(fleet.ready_replicas(v))).collect();
        let current = variants.map(|v| short(fleet.current(v))).collect();
        let minute = self.minute(now - 1.0);
        (minute.ready, minute.current) = (ready, current);
    }

    /// Closes the books on the replicas.
    pub fn close(&mut self, fleet: &Fleet, now: f64) {
        let hours = (0..fleet.variants().len()).map(|v| fleet.used(v, now) / 3600.0);
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
