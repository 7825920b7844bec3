//! Lines of bounded length: cycles are merged in pairs once there are too many. No extreme is lost.

/// A later item of the same kind joins this one.
pub(super) trait Merge {
    fn merge(self, later: Self) -> Self;
}

/// Consecutive items in groups of the same size; the last group may be smaller.
#[derive(Clone, Debug)]
pub(super) struct Groups<T> {
    items: Vec<T>,
    /// Items of each group but the last.
    size: u64,
    /// Items of the last group.
    last: u64,
}

impl<T> Default for Groups<T> {
    fn default() -> Self {
        Self { items: Vec::new(), size: 1, last: 0 }
    }
}

impl<T: Merge> Groups<T> {
    /// Adds an item, and merges groups in pairs while there are more than `most` (at least 1).
    pub(super) fn push(&mut self, item: T, most: usize) {
        if self.last < self.size
            && let Some(earlier) = self.items.pop()
        {
            self.items.push(earlier.merge(item));
            self.last += 1;
        } else {
            self.items.push(item);
            self.last = 1;
        }
        while self.items.len() > most.max(1) {
            self.merge_pairs();
        }
    }

    fn merge_pairs(&mut self) {
        if self.items.len().is_multiple_of(2) {
            self.last += self.size;
        }
        self.size *= 2;
        let mut merged = Vec::with_capacity(self.items.len().div_ceil(2));
        let mut groups = self.items.drain(..);
        while let Some(earlier) = groups.next() {
            merged.push(match groups.next() {
                Some(later) => earlier.merge(later),
                None => earlier,
            });
        }
        drop(groups);
        self.items = merged;
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }
}

type Point = (f64, f64);
/// Points of a line without a gap.
pub(super) type Run = Vec<Point>;

/// First, last, lowest and highest point of consecutive points: as wide as a pixel, it draws like all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extent {
    first: Point,
    last: Point,
    low: Point,
    high: Point,
}

impl Merge for Extent {
    fn merge(self, later: Self) -> Self {
        Self {
            first: self.first,
            last: later.last,
            low: if later.low.1 < self.low.1 { later.low } else { self.low },
            high: if later.high.1 > self.high.1 { later.high } else { self.high },
        }
    }
}

/// Values over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Series(Groups<Extent>);

impl Series {
    /// Adds a value; the last one is the latest. An unknown value (NaN) is left out.
    pub(super) fn push(&mut self, at: f64, value: f64, most: usize) {
        if value.is_finite() {
            let point = (at, value);
            self.0.push(Extent { first: point, last: point, low: point, high: point }, most);
        }
    }

    /// At most four points for each group, in order of time.
    pub(super) fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for extent in self.0.iter() {
            let mut ends = vec![extent.first, extent.low, extent.high, extent.last];
            ends.sort_by(|a, b| a.0.total_cmp(&b.0));
            // Two cycles at the same time are two points.
            ends.dedup();
            points.extend(ends);
        }
        points
    }

    /// The points in runs without a gap. A gap is five times as long as the median distance of groups.
    pub(super) fn runs(&self) -> Vec<Run> {
        let starts: Vec<f64> = self.0.iter().map(|extent| extent.first.0).collect();
        let mut distances: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        distances.sort_by(f64::total_cmp);
        let longest = distances.get(distances.len() / 2).map_or(f64::INFINITY, |median| 5.0 * median);
        let points = self.points();
        points.chunk_by(|a, b| b.0 - a.0 <= longest).map(<[Point]>::to_vec).collect()
    }
}

/// A line of at most `most` groups of points.
pub(super) fn thin(points: impl IntoIterator<Item = Point>, most: usize) -> Vec<Point> {
    let mut series = Series::default();
    for (at, value) in points {
        series.push(at, value, most);
    }
    series.points()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wave with one high and one low outlier.
    fn wave(length: u32) -> Vec<Point> {
        let value = |i: u32| match i {
            _ if i == length / 3 => 500.0,
            _ if i == length / 2 => -500.0,
            _ => f64::from(i % 17),
        };
        (0..length).map(|i| (f64::from(i), value(i))).collect()
    }

    #[test]
    fn few_points_are_all_kept() {
        let points = wave(100);
        assert_eq!(thin(points.clone(), 100), points);
        // Two or four points are first, last and extremes of their group.
        assert_eq!(thin(points.clone(), 50), points);
        assert_eq!(thin([], 10), []);
        assert_eq!(
            thin([(1.0, 2.0), (1.0, 2.0)], 10).len(),
            2,
            "early decisions have the time of their cycle"
        );
    }

    #[test]
    fn first_last_and_extremes_stay() {
        for length in [101, 1000, 1024, 12_345] {
            let points = wave(length);
            for most in [1, 7, 100] {
                let kept = thin(points.clone(), most);
                assert!(kept.len() <= 4 * most, "{} of {length}, at most {most} groups", kept.len());
                assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
                for extreme in [500.0, -500.0] {
                    let at = |line: &[Point]| line.iter().copied().find(|p| (p.1 - extreme).abs() < 1e-9);
                    assert_eq!(at(&kept), at(&points), "{length}, {most}");
                }
                assert!(kept.iter().all(|point| points.contains(point)), "no point is made up");
                assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
            }
        }
    }

    #[test]
    fn groups_have_the_same_number_of_points() {
        let mut series = Series::default();
        for (at, value) in wave(1000) {
            series.push(at, value, 300);
        }
        let sizes: Vec<f64> = series.0.iter().map(|e| e.last.0 - e.first.0 + 1.0).collect();
        let (last, others) = sizes.split_last().unwrap();
        assert!(others.iter().all(|size| (size - 4.0).abs() < 1e-9) && *last <= 4.0, "{sizes:?}");
    }

    #[test]
    fn unknown_values_and_outages_interrupt_a_line() {
        let mut series = Series::default();
        for i in 0..100 {
            let value = if (40..60).contains(&i) { f64::NAN } else { 1.0 };
            series.push(f64::from(i), value, 1000);
        }
        let lengths: Vec<usize> = series.runs().iter().map(Vec::len).collect();
        assert_eq!(lengths, [40, 40]);
        assert!(Series::default().runs().is_empty());
    }
}
