//! Share of requests whose first token came after its objective.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Amount, amount, to_finite};

/// Seconds.
const HALF_LIFE_SECONDS: f64 = 6.0 * 3600.0;
/// Requests that show a share.
const MIN_REQUESTS: f64 = 100.0;

/// Requests, counted at their first token. Both counts have a half-life of six hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lateness {
    /// Requests whose first token came.
    pub requests: Amount,
    /// First token after the objective.
    pub late: Amount,
}

impl Lateness {
    /// Counts after `elapsed`, with the new requests.
    #[must_use]
    pub fn after(self, elapsed: Duration, requests: f64, late: f64) -> Self {
        let kept = (-elapsed.as_secs_f64() / HALF_LIFE_SECONDS).exp2();
        let add = |count: Amount, more: f64| amount(to_finite(count.get() * kept + more.max(0.0)));
        Self { requests: add(self.requests, requests), late: add(self.late, late) }
    }

    /// 0 to 1. `None` below 100 requests.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        let requests = self.requests.get();
        (requests >= MIN_REQUESTS).then(|| (self.late.get() / requests).clamp(0.0, 1.0))
    }
}
