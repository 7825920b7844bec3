//! Counters of a server, as vLLM shows them.

use crate::fleet::batch::Batch;
use crate::fleet::engine::to_f64;

/// Counters of a server since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Requests served in full.
    pub requests: u64,
    /// Their prompt tokens.
    pub input: u64,
    /// Their generated tokens.
    pub output: u64,
    /// Sequences that lost their place for want of KV cache.
    pub preemptions: u64,
    /// Prompt tokens of all requests that have their first token.
    pub prompt_tokens: u64,
    /// Tokens generated, those of requests under way included.
    pub generated: u64,
    /// Seconds from admission to the first token, over the finished requests.
    pub prefill_seconds: f64,
    /// Times between two outputs of a sequence, of a token or of several.
    pub gaps: u64,
    /// Their sum in seconds.
    pub gap_seconds: f64,
}

impl Counters {
    /// Steps of sequences that generate, and the tokens that a step makes of all of them. What a step makes of one
    /// comes at once, so it is one wait, as long as the step: vLLM observes a latency for each output, not each token.
    pub(super) fn generate(&mut self, batch: Batch, sequences: u64, tokens: u64) {
        self.generated += batch.steps * tokens;
        self.gaps += batch.steps * sequences;
        self.gap_seconds += (batch.end() - batch.began) * to_f64(sequences);
    }
}
