//! Share of requests whose first token came after its objective, as vLLM's histogram shows it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Amount, amount, finite};

/// Half of what was counted this long ago still counts, in seconds.
const HALF_LIFE: f64 = 6.0 * 3600.0;
/// Fewest requests that show a share.
const FEWEST: f64 = 100.0;

/// Requests of a model, counted at their first token. Both counts fade with a half-life of six hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lateness {
    /// Requests whose first token came.
    pub requests: Amount,
    /// Those of them whose first token came after the objective.
    pub late: Amount,
}

impl Lateness {
    /// The counts some time later, with what came in it.
    #[must_use]
    pub fn after(self, elapsed: Duration, requests: f64, late: f64) -> Self {
        let kept = (-elapsed.as_secs_f64() / HALF_LIFE).exp2();
        let add = |count: Amount, more: f64| amount(finite(count.get() * kept + more.max(0.0)));
        Self { requests: add(self.requests, requests), late: add(self.late, late) }
    }

    /// Share of late requests, 0 to 1. `None` below 100 requests.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        let requests = self.requests.get();
        (requests >= FEWEST).then(|| (self.late.get() / requests).clamp(0.0, 1.0))
    }
}
