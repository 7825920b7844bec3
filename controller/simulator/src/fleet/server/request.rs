//! Requests and their results at a server.

use crate::fleet::engine::StepTokens;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Time of arrival, in seconds since the beginning.
    pub arrived: f64,
    /// Prompt tokens.
    pub input: u32,
    /// Tokens to generate, at least 1.
    pub output: u32,
}

impl Request {
    /// Tokens of a step. They follow from the request, so that every policy sees the same requests.
    pub(super) fn step_tokens(&self, tokens: StepTokens) -> u64 {
        // The golden ratio spreads neighbouring times over all bits.
        let spread = self.arrived.to_bits().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        u64::from(tokens.min) + spread % u64::from(tokens.max - tokens.min + 1)
    }
}

/// A request that was served in full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServedRequest {
    /// The request.
    pub request: Request,
    /// Time of the first token.
    pub first_token: f64,
    /// Time of the last token.
    pub ended: f64,
}

/// Requests since the last collection.
#[derive(Clone, Debug, Default)]
pub struct FinishedRequests {
    /// Served in full.
    pub served: Vec<ServedRequest>,
    /// Given up before the first token.
    pub timed_out: Vec<Request>,
}
