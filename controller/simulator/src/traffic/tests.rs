//! Generated traffic: rates, bursts and lengths.

use super::*;

fn generated(profile: Vec<Segment>, cv: f64) -> Traffic {
    let (input, output) = (RandomQuantity::log_normal(1000.0, 0.5), RandomQuantity::log_normal(200.0, 1.0));
    Traffic::Generated { profile, cv, input, output }
}

fn count(traffic: &Traffic, from: f64, to: f64) -> f64 {
    let within = traffic.requests(1).filter(|r| (from..to).contains(&r.arrived));
    within.map(|_| 1.0).sum()
}

#[track_caller]
fn near(got: f64, want: f64, part: f64) {
    assert!((got - want).abs() <= part * want, "{got}, not {want}");
}

#[test]
fn the_profile_sets_how_many_arrive_when() {
    let traffic =
        generated(build_profile([(9000.0, 15.0, 15.0), (900.0, 0.0, 0.0), (9000.0, 2.0, 12.0)]), 1.0);
    near(count(&traffic, 0.0, 9000.0), 135_000.0, 0.01);
    near(count(&traffic, 9000.0, 9900.0), 0.0, 0.0);
    near(count(&traffic, 9900.0, 14_400.0), 4500.0 * 4.5, 0.02);
    near(count(&traffic, 14_400.0, 18_900.0), 4500.0 * 9.5, 0.02);
    near(traffic.duration(), 18_900.0, 0.0);
    assert_eq!(traffic.steps_up(), [9900.0]);
}

#[test]
fn bursts_keep_the_rate_and_spread_the_counts() {
    let spread = |cv: f64| {
        let traffic = generated(build_profile([(100_000.0, 10.0, 10.0)]), cv);
        let mut counts = vec![0.0; 1000];
        for request in traffic.requests(2) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1000 windows")]
            let window = (request.arrived / 100.0) as usize;
            counts[window] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / 1000.0;
        near(mean, 1000.0, 0.02);
        counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 1000.0 / mean
    };
    // In a renewal process, the variance of the counts is their mean times the square of the coefficient.
    near(spread(1.0), 1.0, 0.1);
    near(spread(3.0), 9.0, 0.15);
}

#[test]
fn a_diurnal_week_has_its_mean_and_its_noon() {
    let traffic = generated(diurnal_profile(1.0, 0.6, &[1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5]), 1.0);
    near(count(&traffic, 0.0, 7.0 * 86_400.0), 604_800.0, 0.01);
    let hour = |day: f64, hour: f64| {
        count(&traffic, day * 86_400.0 + hour * 3600.0, day * 86_400.0 + (hour + 1.0) * 3600.0)
    };
    near(hour(0.0, 11.5) / hour(0.0, 23.5), 4.0, 0.15);
    near(hour(1.0, 11.5) / hour(5.0, 11.5), 2.0, 0.1);
}

#[test]
fn a_seed_fixes_the_requests() {
    let traffic = generated(build_profile([(1000.0, 5.0, 5.0)]), 2.0);
    let of = |seed| traffic.requests(seed).collect::<Vec<_>>();
    assert_eq!(of(4), of(4));
    assert_ne!(of(4), of(5));
}
