//! Latencies as an endpoint picker shows them: histograms, and their scrapes. Source: llm-d/llm-d-router at ebab6879,
//! `pkg/epp/handlers/response.go`.

use std::collections::VecDeque;

use super::engine::to_f64;
use super::server::ServedRequest;

/// Bounds of `llm_d_epp_request_ttft_seconds`, seconds (`pkg/epp/metrics/llm_d_router_metrics.go`).
const TTFT_BOUNDS: [f64; 24] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0, 120.0,
];
/// Bounds of `llm_d_epp_request_streaming_tpot_seconds`, seconds.
const TPOT_BOUNDS: [f64; 19] = [
    0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8,
    1.0, 2.0,
];
/// A minute and a half of scrapes.
const SCRAPES: usize = 6;

#[derive(Clone, Debug)]
struct Buckets {
    bounds: &'static [f64],
    counts: Vec<u64>,
}

impl Buckets {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1] }
    }

    fn observe(&mut self, seconds: f64, times: u64) {
        self.counts[self.bounds.partition_point(|bound| *bound < seconds)] += times;
    }

    /// Since an earlier state, as `histogram_quantile` of Prometheus. `None`: no observations.
    fn quantile_since(&self, earlier: &Self, share: f64) -> Option<f64> {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| to_f64(now - then));
        let total: f64 = counts.clone().sum();
        let rank = share * total;
        let mut below = 0.0;
        for (i, count) in counts.enumerate().filter(|(_, count)| *count > 0.0) {
            if below + count >= rank {
                let Some(upper) = self.bounds.get(i) else { return self.bounds.last().copied() };
                let lower = if i == 0 { 0.0 } else { self.bounds[i - 1] };
                return Some(lower + (upper - lower) * (rank - below) / count);
            }
            below += count;
        }
        None
    }

    /// Observations above a bound, with those of the bucket that holds it in proportion.
    fn above(&self, bound: f64) -> f64 {
        let mut above = 0.0;
        for (i, count) in self.counts.iter().enumerate() {
            let lower = if i == 0 { 0.0 } else { self.bounds[i - 1] };
            let share = match self.bounds.get(i) {
                Some(upper) if bound >= *upper => 0.0,
                Some(upper) if bound > lower => (upper - bound) / (upper - lower),
                _ => 1.0,
            };
            above += share * to_f64(*count);
        }
        above
    }
}

#[derive(Clone, Debug)]
struct Histograms {
    ttft: Buckets,
    tpot: Buckets,
    /// Times between two tokens, as a model server counts them.
    gaps: Buckets,
}

#[derive(Clone, Debug)]
struct Scrape {
    at: f64,
    histograms: Histograms,
}

/// Histograms of a fleet, and their newest scrapes, oldest first.
#[derive(Clone, Debug)]
pub struct Latencies {
    histograms: Histograms,
    scrapes: VecDeque<Scrape>,
}

/// Seconds. `None`: no request with this latency ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyQuantiles {
    /// Time to the first token.
    pub ttft: Option<f64>,
    /// Mean time between two tokens of a request.
    pub tpot: Option<f64>,
}

/// Latencies since the beginning, against an objective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LateCounts {
    /// All latencies.
    pub all: f64,
    /// Later than an objective.
    pub late: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        let [tpot, gaps] = [Buckets::new(&TPOT_BOUNDS), Buckets::new(&TPOT_BOUNDS)];
        let histograms = Histograms { ttft: Buckets::new(&TTFT_BOUNDS), tpot, gaps };
        Self { histograms, scrapes: VecDeque::with_capacity(SCRAPES) }
    }
}

impl Latencies {
    pub(super) fn observe(&mut self, served: &ServedRequest) {
        self.histograms.ttft.observe(served.first_token - served.request.arrived, 1);
        if served.request.output > 1 {
            let each = (served.ended - served.first_token) / f64::from(served.request.output - 1);
            self.histograms.tpot.observe(each, 1);
            self.histograms.gaps.observe(each, u64::from(served.request.output - 1));
        }
    }

    pub(super) fn scrape(&mut self, at: f64) {
        if self.scrapes.len() == SCRAPES {
            self.scrapes.pop_front();
        }
        self.scrapes.push_back(Scrape { at, histograms: self.histograms.clone() });
    }

    /// First tokens in the newest scrape, against an objective in seconds.
    #[must_use]
    pub fn first_tokens(&self, objective: f64) -> LateCounts {
        self.late(objective, |histograms| &histograms.ttft)
    }

    /// Times between two tokens in the newest scrape, against an objective in seconds.
    #[must_use]
    pub fn gaps(&self, objective: f64) -> LateCounts {
        self.late(objective, |histograms| &histograms.gaps)
    }

    fn late(&self, objective: f64, of: fn(&Histograms) -> &Buckets) -> LateCounts {
        let Some(newest) = self.scrapes.back() else { return LateCounts::default() };
        let buckets = of(&newest.histograms);
        LateCounts { all: to_f64(buckets.counts.iter().sum()), late: buckets.above(objective) }
    }

    /// Quantiles of requests between the first and the last scrape after `since`.
    #[must_use]
    pub fn quantiles(&self, since: f64, share: f64) -> LatencyQuantiles {
        let first = self.scrapes.iter().find(|s| s.at > since).map(|s| &s.histograms);
        let last = self.scrapes.back().map(|s| &s.histograms);
        let Some((first, last)) = first.zip(last) else { return LatencyQuantiles::default() };
        LatencyQuantiles {
            ttft: last.ttft.quantile_since(&first.ttft, share),
            tpot: last.tpot.quantile_since(&first.tpot, share),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::server::Request;

    fn end(latencies: &mut Latencies, ttft: f64, tpot: f64, output: u32) {
        let request = Request { arrived: 100.0, input: 10, output };
        let first_token = 100.0 + ttft;
        let ended = first_token + tpot * f64::from(output - 1);
        latencies.observe(&ServedRequest { request, first_token, ended });
    }

    #[track_caller]
    fn near(got: Option<f64>, want: f64) {
        assert!(got.is_some_and(|got| (got - want).abs() < 1e-9), "{got:?}, not {want}");
    }

    #[test]
    fn quantiles_are_interpolated_within_a_bucket() {
        let mut latencies = Latencies::default();
        latencies.scrape(7.5);
        // Six within 0.4 to 0.6 s and four within 2 to 3 s: the ninth of ten is three quarters into the second.
        (0..6).for_each(|_| end(&mut latencies, 0.5, 0.05, 11));
        (0..4).for_each(|_| end(&mut latencies, 2.1, 0.05, 11));
        latencies.scrape(22.5);
        let all = latencies.quantiles(0.0, 0.9);
        near(all.ttft, 2.75);
        near(all.tpot, 0.058);
        near(latencies.quantiles(0.0, 0.3).ttft, 0.5);
    }

    #[test]
    fn only_scraped_requests_of_the_window_count() {
        let mut latencies = Latencies::default();
        end(&mut latencies, 100.0, 0.05, 11);
        latencies.scrape(7.5);
        assert_eq!(latencies.quantiles(0.0, 0.9), LatencyQuantiles::default(), "one scrape gives no rate");
        end(&mut latencies, 0.15, 0.05, 1);
        latencies.scrape(22.5);
        end(&mut latencies, 100.0, 0.05, 11);
        let quantiles = latencies.quantiles(0.0, 0.9);
        near(quantiles.ttft, 0.19);
        assert_eq!(quantiles.tpot, None, "one token has no time between two");
        assert_eq!(latencies.quantiles(7.5, 0.9), LatencyQuantiles::default());
    }

    #[test]
    fn beyond_all_bounds_is_the_last_bound() {
        let mut latencies = Latencies::default();
        latencies.scrape(0.0);
        end(&mut latencies, 500.0, 9.0, 11);
        latencies.scrape(15.0);
        let quantiles = latencies.quantiles(-1.0, 0.9);
        near(quantiles.ttft, 120.0);
        near(quantiles.tpot, 2.0);
    }
}
