//! Capacity of an engine: the time of a step, and the tokens that it holds. The time has a linear form, and a term for
//! the cached tokens that attention reads at each step.

/// Times are in seconds.
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
    /// `--max-num-seqs`, at least 1.
    pub max_seqs: usize,
    /// `--max-num-batched-tokens`, at least 1.
    pub max_batched_tokens: u64,
    /// Tokens of a KV cache block, at least 1.
    pub block_size: u64,
    /// Blocks of KV cache.
    pub kv_blocks: u64,
    /// 0..=1. These tokens are not computed, but held.
    pub prefix_hit_rate: f64,
    /// Tokens of a sequence in a step.
    pub tokens: StepTokens,
}

/// Tokens of a sequence in a step: several with speculative decoding. Some texts are easier to guess, so each request
/// has its own number between these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTokens {
    /// Fewest, at least 1.
    pub min: u32,
    /// Computed tokens of a sequence in a step: the draft and one more.
    pub max: u32,
}

impl StepTokens {
    /// No speculation.
    pub const ONE: Self = Self { min: 1, max: 1 };

    /// Mean over requests.
    #[must_use]
    pub fn steps_per_token(self) -> f64 {
        let each = (self.min..=self.max).map(|n| 1.0 / f64::from(n));
        each.sum::<f64>() / (f64::from(self.max) - f64::from(self.min) + 1.0)
    }
}

impl Engine {
    /// Every time multiplied by `factor`.
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

    /// Cache that a sequence takes beyond its tokens: half of its last block on average.
    #[must_use]
    pub fn block_overhead(&self) -> u64 {
        self.block_size / 2
    }

    /// Whether the cache can hold a request of this length.
    #[must_use]
    pub fn can_hold(&self, tokens: u64) -> bool {
        tokens + self.block_overhead() < self.kv_tokens()
    }

    /// Computed tokens of a prompt, at least 1.
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

    /// Time of a step with generating `sequences`, computed and cached tokens.
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
