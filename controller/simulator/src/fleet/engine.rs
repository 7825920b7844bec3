//! Capacity of one replica's engine: the time of a step, and the tokens it holds. The step's time has the
//! linear form that the literature measures, and a term for the cached tokens that attention reads at each step,
//! which a learner of the linear form alone does not know of.

/// The engine of a replica. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Engine {
    /// Fixed time of a step.
    pub step: f64,
    /// Time that each generating sequence adds to a step.
    pub per_sequence: f64,
    /// Time that each computed prompt token adds to a step.
    pub per_prompt_token: f64,
    /// Time that each token in the KV cache adds to a step.
    pub per_cached_token: f64,
    /// Sequences in a batch at most (`--max-num-seqs`), at least 1.
    pub max_seqs: usize,
    /// Tokens a step computes at most (`--max-num-batched-tokens`), at least 1.
    pub max_batched_tokens: u64,
    /// Tokens that a block of KV cache holds, at least 1.
    pub block_size: u64,
    /// Blocks of KV cache.
    pub kv_blocks: u64,
    /// Share of each prompt that the prefix cache answers, 0..=1: it is not computed, and yet held.
    pub prefix_hit_rate: f64,
    /// Tokens that a step makes of a sequence.
    pub tokens: StepTokens,
}

/// Tokens that a step makes of a sequence: one, or several with speculative decoding, where a step confirms what was
/// drafted. Some texts are easier to guess than others, so each request has a number of its own between these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTokens {
    /// Fewest, at least 1.
    pub min: u32,
    /// Most: so many tokens of each sequence are computed at a step, the draft and the one after it.
    pub max: u32,
}

impl StepTokens {
    /// No speculation.
    pub const ONE: Self = Self { min: 1, max: 1 };

    /// The steps that a token of a request takes, on the average over requests.
    #[must_use]
    pub fn steps_per_token(self) -> f64 {
        let each = (self.min..=self.max).map(|n| 1.0 / f64::from(n));
        each.sum::<f64>() / (f64::from(self.max) - f64::from(self.min) + 1.0)
    }
}

impl Engine {
    /// The same, but that everything takes so many times as long.
    #[must_use]
    pub fn slowed_by(self, factor: f64) -> Self {
        Self {
            step: self.step * factor,
            per_sequence: self.per_sequence * factor,
            per_prompt_token: self.per_prompt_token * factor,
            per_cached_token: self.per_cached_token * factor,
            ..self
        }
    }

    /// Tokens that the KV cache holds.
    #[must_use]
    pub fn kv_tokens(&self) -> u64 {
        self.kv_blocks * self.block_size
    }

    /// Tokens a sequence takes of the cache beyond its own: its last block is half full on the average.
    #[must_use]
    pub fn block_overhead(&self) -> u64 {
        self.block_size / 2
    }

    /// Whether a request of this length can ever be served: the cache must hold all of it.
    #[must_use]
    pub fn can_hold(&self, tokens: u64) -> bool {
        tokens + self.block_overhead() < self.kv_tokens()
    }

    /// Prompt tokens that are computed of a prompt of this length, at least 1: the last one always is.
    #[must_use]
    pub fn computed_tokens(&self, prompt: u32) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a u32 is within it and not negative"
        )]
        let computed = (f64::from(prompt) * (1.0 - self.prefix_hit_rate)).ceil() as u64;
        computed.max(1)
    }

    /// Time of a step with these generating sequences, computed prompt tokens and cached tokens.
    #[must_use]
    pub fn step_time(&self, sequences: usize, prompt_tokens: u64, cached: u64) -> f64 {
        self.step
            + self.per_sequence * to_f64(sequences as u64)
            + self.per_prompt_token * to_f64(prompt_tokens)
            + self.per_cached_token * to_f64(cached)
    }
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "no count of this simulation comes near 2^53")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}
