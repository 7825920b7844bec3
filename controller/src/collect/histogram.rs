//! Latencies within an objective, from the buckets of a histogram.

use wva_scaling::control_loop::LatencyCounts;

/// Observations up to an upper bound, as in a Prometheus histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bucket {
    /// Seconds; infinite in the last bucket.
    pub(crate) bound: f64,
    /// Observations up to the bound, those of smaller buckets included.
    pub(crate) count: f64,
}

/// Counts the latencies up to an objective in seconds. Within a bucket it interpolates linearly, as `histogram_quantile`
/// does. Above the last finite bound all count as late. `None`: without a finite bound or a total.
pub(crate) fn count_in_time(mut buckets: Vec<Bucket>, objective: f64) -> Option<LatencyCounts> {
    // Without bounds that are not numbers.
    buckets.retain(|bucket| bucket.bound > 0.0);
    buckets.sort_by(|a, b| a.bound.total_cmp(&b.bound));
    // Servers that write a bound as `1` and as `1.0` have different series.
    buckets.dedup_by(|next, kept| {
        let is_same = next.bound.total_cmp(&kept.bound).is_eq();
        kept.count += if is_same { next.count } else { 0.0 };
        is_same
    });
    // The sum over servers with different bounds may fall from one bound to the next.
    let mut greatest = 0.0_f64;
    for bucket in &mut buckets {
        greatest = greatest.max(bucket.count);
        bucket.count = greatest;
    }
    let total = buckets.pop().filter(|last| last.bound.is_infinite())?.count;
    let upper = buckets.partition_point(|bucket| bucket.bound < objective);
    let lower = upper.checked_sub(1).and_then(|i| buckets.get(i)).copied().unwrap_or_default();
    let in_time = match buckets.get(upper) {
        Some(upper) => {
            let part = (objective - lower.bound) / (upper.bound - lower.bound);
            lower.count + (upper.count - lower.count) * part
        }
        None => buckets.last()?.count,
    };
    Some(LatencyCounts { observed: total, in_time })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;

    #[track_caller]
    fn check(buckets: &[(f64, f64)], objective: f64, wanted: Option<(f64, f64)>) {
        let all = buckets.iter().map(|(bound, count)| Bucket { bound: *bound, count: *count }).collect();
        let found = count_in_time(all, objective).map(|counts| (counts.observed, counts.in_time));
        let near = |(a, b): ((f64, f64), (f64, f64))| (a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9;
        assert!(
            found.is_some() == wanted.is_some() && found.zip(wanted).is_none_or(near),
            "{buckets:?} at {objective}: {found:?}, not {wanted:?}"
        );
    }

    #[test]
    fn interpolates_within_a_bucket() {
        let buckets = [(INF, 10.0), (0.5, 4.0), (1.0, 8.0)];
        for (objective, in_time) in
            [(0.25, 2.0), (0.5, 4.0), (0.625, 5.0), (1.0, 8.0), (1.001, 8.0), (60.0, 8.0)]
        {
            check(&buckets, objective, Some((10.0, in_time)));
        }
    }

    #[test]
    fn without_total_or_finite_bound_nothing_is_known() {
        check(&[], 1.0, None);
        check(&[(INF, 10.0)], 1.0, None);
        check(&[(0.5, 4.0), (1.0, 8.0)], 0.5, None);
        check(&[(f64::NAN, 4.0), (-1.0, 1.0), (0.0, 1.0), (-INF, 1.0), (INF, 8.0)], 0.5, None);
        check(&[(f64::NAN, 99.0), (-1.0, 1.0), (1.0, 4.0), (INF, 8.0)], 0.5, Some((8.0, 2.0)));
    }

    #[test]
    fn adds_up_equal_bounds_and_evens_out_falling_counts() {
        check(&[(1.0, 3.0), (1.0, 2.0), (INF, 4.0), (INF, 4.0)], 1.0, Some((8.0, 5.0)));
        // The bound 0.75 is of only one of two servers.
        check(&[(0.5, 6.0), (0.75, 4.0), (1.0, 8.0), (INF, 8.0)], 0.75, Some((8.0, 6.0)));
        check(&[(1.0, 9.0), (INF, 8.0)], 1.0, Some((9.0, 9.0)));
        check(&[(1.0, -3.0), (INF, -8.0)], 1.0, Some((0.0, 0.0)));
    }

    #[test]
    fn no_observations_are_a_count_of_zero() {
        check(&[(1.0, 0.0), (INF, 0.0)], 0.5, Some((0.0, 0.0)));
    }
}
