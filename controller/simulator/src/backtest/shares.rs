//! Shares of requests up to a time, from the buckets of histograms.

use super::history::Histogram;

/// Requests of some windows, cumulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    bounds: Vec<f64>,
    /// Up to each bound, 0 to 1.
    cumulated: Vec<f64>,
    /// Requests.
    pub count: f64,
}

impl Shares {
    /// `None` without requests.
    #[must_use]
    pub fn new(histogram: &Histogram, windows: impl IntoIterator<Item = usize>) -> Option<Self> {
        let counts = histogram.sum(windows);
        let count: f64 = counts.iter().sum();
        if count <= 0.0 || histogram.bounds.is_empty() {
            return None;
        }
        let mut sum = 0.0;
        let cumulated = counts.iter().take(histogram.bounds.len()).map(|own| {
            sum += own;
            sum / count
        });
        let cumulated = cumulated.collect();
        Some(Self { bounds: histogram.bounds.clone(), cumulated, count })
    }

    /// Differences to another at each bound.
    pub fn differences(&self, other: &Self) -> impl Iterator<Item = f64> {
        self.cumulated.iter().zip(&other.cumulated).map(|(own, other)| own - other)
    }

    /// The greatest difference to another.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f64 {
        self.differences(other).fold(0.0, |most, difference| most.max(difference.abs()))
    }

    /// Least and greatest share within an objective: at the bounds next to it.
    #[must_use]
    pub fn within(&self, objective: f64) -> (f64, f64) {
        let upper = self.bounds.partition_point(|bound| *bound < objective * (1.0 - 1e-9));
        let at = |i: usize| self.cumulated.get(i).copied().unwrap_or(1.0);
        let is_at_bound = self.bounds.get(upper).is_some_and(|bound| (bound / objective - 1.0).abs() < 1e-9);
        if is_at_bound {
            return (at(upper), at(upper));
        }
        (upper.checked_sub(1).map_or(0.0, at), at(upper))
    }

    /// The greatest difference to another at the bounds next to an objective.
    #[must_use]
    pub fn error_at(&self, other: &Self, objective: f64) -> f64 {
        let (own, theirs) = (self.within(objective), other.within(objective));
        (own.0 - theirs.0).abs().max((own.1 - theirs.1).abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(counts: &[f32]) -> Shares {
        let histogram = Histogram { bounds: vec![0.5, 1.0, 2.5], rows: vec![counts.to_vec()] };
        Shares::new(&histogram, 0..1).unwrap()
    }

    #[test]
    fn an_objective_between_bounds_has_a_range() {
        let shares = shares(&[50.0, 30.0, 10.0, 10.0]);
        assert_eq!(shares.within(1.0), (0.8, 0.8));
        assert_eq!(shares.within(2.0), (0.8, 0.9));
        assert_eq!(shares.within(0.1), (0.0, 0.5));
        assert_eq!(shares.within(9.0), (0.9, 1.0));
    }

    #[test]
    fn distance_is_the_greatest_difference() {
        let (one, two) = (shares(&[50.0, 30.0, 10.0, 10.0]), shares(&[5.0, 3.0, 2.0, 0.0]));
        assert!((one.distance(&two) - 0.1).abs() < 1e-9, "{}", one.distance(&two));
        assert!((one.error_at(&two, 1.0)).abs() < 1e-9 && (one.error_at(&two, 2.5) - 0.1).abs() < 1e-9);
        assert_eq!(Shares::new(&Histogram::default(), 0..1), None);
    }
}
