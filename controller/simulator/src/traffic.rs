//! Requests in order of time, generated from a profile of rates or read from a trace. They are generated one at a time
//! to save memory.

pub mod trace;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rand_pcg::Pcg64Mcg;

use crate::fleet::server::Request;
use crate::random::{RandomQuantity, Stream, random_stream};

/// Part of a profile with a linear rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Start, seconds.
    pub start: f64,
    /// End, seconds.
    pub end: f64,
    /// Rate at the start, requests a second.
    pub from: f64,
    /// Rate at the end, requests a second.
    pub to: f64,
}

impl Segment {
    fn remaining_requests(&self, now: f64) -> f64 {
        f64::midpoint(self.rate(now), self.to) * (self.end - now)
    }

    /// Requests per second at a time within the segment.
    fn rate(&self, now: f64) -> f64 {
        self.from + self.slope() * (now - self.start)
    }

    fn slope(&self) -> f64 {
        (self.to - self.from) / (self.end - self.start)
    }
}

/// Source of requests.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// Generated from a profile.
    Generated {
        /// Consecutive, the first from 0.
        profile: Vec<Segment>,
        /// 1 is Poisson, above 1 is burstier.
        cv: f64,
        /// Prompt tokens.
        input: RandomQuantity,
        /// Generated tokens.
        output: RandomQuantity,
    },
    /// Recorded requests, in order of time.
    Recorded(Arc<[Request]>),
}

impl Traffic {
    /// End of the traffic, seconds.
    #[must_use]
    pub fn duration(&self) -> f64 {
        match self {
            Self::Generated { profile, .. } => profile.last().map_or(0.0, |s| s.end),
            Self::Recorded(requests) => requests.last().map_or(0.0, |r| r.arrived),
        }
    }

    /// Requests in order of time, generated from `seed`; a trace ignores it.
    #[must_use]
    pub fn requests(&self, seed: u64) -> Box<dyn Iterator<Item = Request> + '_> {
        match self {
            Self::Recorded(requests) => Box::new(requests.iter().copied()),
            Self::Generated { profile, cv, input, output } => Box::new(GeneratedRequests {
                profile,
                interval: RandomQuantity::gamma(1.0, *cv),
                input,
                output,
                arrivals: random_stream(seed, Stream::Arrivals),
                lengths: random_stream(seed, Stream::Lengths),
                now: 0.0,
            }),
        }
    }

    /// Times at which the rate jumps up by more than a fifth, seconds: a policy has to react to these. Empty for a
    /// trace.
    #[must_use]
    pub fn steps_up(&self) -> Vec<f64> {
        let Self::Generated { profile, .. } = self else { return Vec::new() };
        let pairs = profile.iter().zip(profile.iter().skip(1));
        pairs.filter(|(a, b)| b.from > 1.2 * a.to).map(|(_, b)| b.start).collect()
    }
}

/// Generated requests: the times between them are drawn for a rate of 1 and stretched by the profile.
struct GeneratedRequests<'a> {
    profile: &'a [Segment],
    interval: RandomQuantity,
    input: &'a RandomQuantity,
    output: &'a RandomQuantity,
    arrivals: Pcg64Mcg,
    lengths: Pcg64Mcg,
    now: f64,
}

impl Iterator for GeneratedRequests<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let mut need = self.interval.draw(&mut self.arrivals);
        while let Some((segment, rest)) = self.profile.split_first() {
            let left = segment.remaining_requests(self.now);
            if need < left {
                let rate = segment.rate(self.now);
                // The area under the rate reaches `need`. This form also holds for a slope of 0.
                self.now +=
                    2.0 * need / (rate + (rate * rate + 2.0 * segment.slope() * need).max(0.0).sqrt());
                let (input, output) = (self.input, self.output);
                return Some(Request {
                    arrived: self.now,
                    input: tokens(input.draw(&mut self.lengths)),
                    output: tokens(output.draw(&mut self.lengths)),
                });
            }
            need -= left;
            self.now = segment.end;
            self.profile = rest;
        }
        None
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn tokens(length: f64) -> u32 {
    (length.round() as u32).max(1)
}

/// Parts: length in seconds, first rate and last rate.
#[must_use]
pub fn build_profile(parts: impl IntoIterator<Item = (f64, f64, f64)>) -> Vec<Segment> {
    let mut start = 0.0;
    let part = |(length, from, to)| {
        let segment = Segment { start, end: start + length, from, to };
        start = segment.end;
        segment
    };
    parts.into_iter().map(part).collect()
}

/// Lowest at midnight, highest at noon, in segments of a quarter of an hour. `mean`: over all days. A `swing` of 0.6
/// goes from 0.4 to 1.6 times the mean of the day. `days`: weight of each.
#[must_use]
pub fn diurnal_profile(mean: f64, swing: f64, days: &[f64]) -> Vec<Segment> {
    let total: f64 = days.iter().sum();
    let count: f64 = days.iter().map(|_| 1.0).sum();
    let rate = |weight: f64, quarter: u32| {
        let angle = std::f64::consts::TAU * f64::from(quarter) / 96.0;
        weight * count / total * mean * (1.0 - swing * angle.cos())
    };
    let quarters = days.iter().flat_map(|weight| (0..96).map(move |q| (*weight, q)));
    build_profile(quarters.map(|(weight, q)| (900.0, rate(weight, q), rate(weight, q + 1))))
}
