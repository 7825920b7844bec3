//! A scrape of a pod, and what the pod did between two of them.

use super::signals::Counter;
use super::steps::{FEWEST_GAPS, Point};

/// Values of a pod at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Scrape {
    pub(super) values: [f64; Counter::ALL.len()],
    /// Bit of each counter with a value.
    pub(super) present: u16,
}

impl Scrape {
    pub(super) fn get(&self, counter: Counter) -> f64 {
        self.values[counter as usize]
    }

    pub(super) fn has(&self, counter: Counter) -> bool {
        self.present & (1 << counter as u16) != 0
    }

    pub(super) fn in_flight(&self) -> f64 {
        self.get(Counter::Running) + self.get(Counter::Waiting)
    }
}

/// What a pod did between two scrapes.
#[derive(Default)]
pub(super) struct Delta {
    pub(super) arrivals: f64,
    pub(super) first_tokens: f64,
    pub(super) first_token_seconds: f64,
    pub(super) prompt_tokens: f64,
    pub(super) generated: f64,
    pub(super) gap_seconds: f64,
    pub(super) gaps: f64,
}

impl Delta {
    pub(super) fn new(before: &Scrape, after: &Scrape) -> Self {
        let has_restarted = [Counter::Finished, Counter::FirstTokens, Counter::Generated]
            .iter()
            .any(|counter| after.get(*counter) < before.get(*counter));
        // A start is a change from nothing.
        let nothing = Scrape::default();
        let before = if has_restarted { &nothing } else { before };
        let difference = |counter| (after.get(counter) - before.get(counter)).max(0.0);
        let finished = difference(Counter::Finished);
        Self {
            // Requests that clients give up leave without being counted.
            arrivals: (finished + after.in_flight() - before.in_flight()).max(0.0),
            first_tokens: difference(Counter::FirstTokens),
            first_token_seconds: difference(Counter::FirstTokenSeconds),
            prompt_tokens: difference(Counter::PromptTokens),
            generated: difference(Counter::Generated),
            gap_seconds: difference(Counter::GapSeconds),
            gaps: difference(Counter::Gaps),
        }
    }

    pub(super) fn since_start(scrape: &Scrape) -> Self {
        Self::new(&Scrape::default(), scrape)
    }

    pub(super) fn halved(self) -> Self {
        Self {
            arrivals: self.arrivals / 2.0,
            first_tokens: self.first_tokens / 2.0,
            first_token_seconds: self.first_token_seconds / 2.0,
            prompt_tokens: self.prompt_tokens / 2.0,
            generated: self.generated / 2.0,
            gap_seconds: self.gap_seconds / 2.0,
            gaps: self.gaps / 2.0,
        }
    }

    /// `seconds`: between the scrapes.
    pub(super) fn point(&self, seconds: f64) -> Option<Point> {
        let is_usable = self.gaps >= FEWEST_GAPS && self.gap_seconds > 0.0;
        is_usable.then(|| Point {
            gap: to_f32(self.gap_seconds / self.gaps),
            sequences: to_f32(self.gap_seconds / seconds),
            prompt_tokens: to_f32(self.prompt_tokens),
            gaps: to_f32(self.gaps),
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "counts of a scrape interval need no more")]
fn to_f32(value: f64) -> f32 {
    value as f32
}
