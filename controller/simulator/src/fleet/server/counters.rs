//! Counters as vLLM shows them.

use crate::fleet::batch::Batch;
use crate::fleet::engine::to_f64;

/// Counts since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Requests served in full.
    pub requests: u64,
    /// Prompt tokens of these requests.
    pub input: u64,
    /// Generated tokens of these requests.
    pub output: u64,
    /// Preempted sequences.
    pub preemptions: u64,
    /// Prompt tokens of all requests with a first token.
    pub prompt_tokens: u64,
    /// Prompt tokens that the prefix cache had.
    pub cached_tokens: u64,
    /// Generated tokens, also of requests under way.
    pub generated: u64,
    /// Seconds from admission to the first token, of finished requests.
    pub prefill_seconds: f64,
    /// Gaps between two outputs of a sequence, of one or several tokens.
    pub gaps: u64,
    /// Sum of these gaps in seconds.
    pub gap_seconds: f64,
}

impl Counters {
    /// All tokens of a sequence in a step come at once: vLLM observes one latency for each output, not each token.
    pub(super) fn generate(&mut self, batch: Batch, sequences: u64, tokens: u64) {
        self.generated += batch.steps * tokens;
        self.gaps += batch.steps * sequences;
        self.gap_seconds += (batch.end() - batch.began) * to_f64(sequences);
    }
}
