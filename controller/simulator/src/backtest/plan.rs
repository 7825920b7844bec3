//! Plan of the queries: spans of time that are small enough for a Prometheus, and what they cost it.

use super::WINDOW;

/// Most samples that a query may return: some 25 MiB of JSON.
pub const MAX_SAMPLES: f64 = 1_000_000.0;
/// Most points of a series in an answer: Prometheus refuses more than 11,000.
pub const MAX_POINTS: i64 = 11_000;
/// Shortest and longest span of a query, seconds.
const SHORTEST: i64 = 900;
const LONGEST: i64 = 86_400;

/// A time as RFC 3339, seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub i64);

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time: Result<jiff::Timestamp, _> = text.parse();
        time.map(|time| Self(time.as_second()))
            .map_err(|_| format!("{text:?} is not a time: give one such as 2026-11-30T12:00:00Z"))
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match jiff::Timestamp::from_second(self.0) {
            Ok(time) => write!(f, "{}", time.strftime("%Y-%m-%dT%H:%MZ")),
            Err(_) => write!(f, "{}", self.0),
        }
    }
}

/// A span of time, seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Start.
    pub from: i64,
    /// End.
    pub to: i64,
}

/// What the queries cost a Prometheus.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Range queries.
    pub queries: usize,
    /// Samples in the answers.
    pub samples: f64,
    /// Samples that Prometheus reads for them.
    pub read: f64,
}

/// Series of the model servers at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SeriesCount {
    /// Counters and gauges whose samples are read one by one.
    pub samples: f64,
    /// Series of histograms, which Prometheus sums up.
    pub histograms: f64,
    /// Models.
    pub models: f64,
}

/// Bounds of a model's histograms in an answer, at most.
const BOUNDS: f64 = 100.0;

impl Span {
    /// The span with ends on multiples of a window.
    #[must_use]
    pub fn aligned(self) -> Self {
        let window = i64::from(WINDOW);
        Self { from: self.from.div_euclid(window) * window, to: self.to.div_euclid(window) * window }
    }

    /// Seconds.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.to - self.from
    }

    /// Splits the span into parts for queries of at most [`MAX_SAMPLES`] samples each.
    #[must_use]
    pub fn chunks(self, count: SeriesCount, interval: f64) -> Vec<Self> {
        let per_second = count.samples / interval.max(1.0);
        let fitting = if per_second > 0.0 { MAX_SAMPLES / per_second } else { f64::INFINITY };
        let points = MAX_POINTS * i64::from(WINDOW);
        #[expect(clippy::cast_possible_truncation, reason = "within the bounds of a day")]
        let length = fitting.clamp(0.0, 1e9) as i64;
        let length = length.min(points).clamp(SHORTEST, LONGEST) / SHORTEST * SHORTEST;
        let mut chunks = Vec::new();
        let mut from = self.from;
        while from < self.to {
            let to = (from + length).min(self.to);
            chunks.push(Self { from, to });
            from = to;
        }
        chunks
    }

    /// The two halves; `None` if they would be too short.
    #[must_use]
    pub fn halves(self) -> Option<[Self; 2]> {
        let window = i64::from(WINDOW);
        let middle = (self.from + self.seconds() / 2).div_euclid(window) * window;
        (middle > self.from && middle < self.to)
            .then_some([Self { to: middle, ..self }, Self { from: middle, ..self }])
    }
}

/// What queries over these spans cost.
#[must_use]
pub fn estimate(chunks: &[Span], count: SeriesCount, interval: f64, queries_of_chunk: usize) -> Estimate {
    let seconds: f64 = chunks.iter().map(|span| seconds(*span)).sum();
    let (scrapes, windows) = (seconds / interval.max(1.0), seconds / f64::from(WINDOW));
    Estimate {
        queries: chunks.len() * queries_of_chunk,
        samples: count.samples * scrapes + count.models * BOUNDS * windows,
        read: (count.samples + count.histograms) * scrapes,
    }
}

fn seconds(span: Span) -> f64 {
    f64::from(i32::try_from(span.seconds()).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: SeriesCount = SeriesCount { samples: 600.0, histograms: 7000.0, models: 20.0 };

    #[test]
    fn no_query_has_more_samples_than_the_bound() {
        let week = Span { from: 1_000_000_000, to: 1_000_000_000 + 7 * 86_400 }.aligned();
        let chunks = week.chunks(COUNT, 15.0);
        assert_eq!((chunks[0].from, chunks.last().unwrap().to), (week.from, week.to));
        for pair in chunks.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
        }
        assert!(chunks.iter().all(|chunk| seconds(*chunk) / 15.0 * COUNT.samples <= MAX_SAMPLES));
        assert_eq!(week.chunks(SeriesCount::default(), 15.0).len(), 7, "at most a day each");
        let estimate = estimate(&chunks, COUNT, 15.0, 9);
        assert_eq!(estimate.queries, 9 * chunks.len());
        assert!((estimate.samples - (600.0 * 40_320.0 + 20.0 * 100.0 * 2016.0)).abs() < 1e5, "{estimate:?}");
    }

    #[test]
    fn halves_end_on_windows() {
        let span = Span { from: 0, to: 1500 };
        assert_eq!(span.halves(), Some([Span { from: 0, to: 600 }, Span { from: 600, to: 1500 }]));
        assert_eq!(Span { from: 0, to: 300 }.halves(), None);
    }
}
