//! Lifetimes of CAs and of the certificates that they sign.

use super::*;

const HOUR: Duration = Duration::from_hours(1);

fn now() -> Timestamp {
    "2026-11-20T12:00:00.7Z".parse().unwrap()
}

#[test]
fn serving_certificate_never_outlives_its_ca() {
    let ca = Ca::generate(HOUR, now()).unwrap();
    let names = ["a.b.svc".to_owned()];
    let signed = ca.sign_serving(&names, 90 * 24 * HOUR, now()).unwrap();
    assert_eq!(signed.not_after, ca.cert().not_after());
    let short = ca.sign_serving(&names, HOUR / 2, now()).unwrap();
    assert_eq!(short.not_after.as_second(), (now() + SignedDuration::from_mins(30)).as_second());
}

#[test]
fn refuses_dates_out_of_range() {
    assert!(matches!(Ca::generate(Duration::MAX, now()), Err(SignError::Lifetime { .. })));
    assert!(matches!(Ca::generate(HOUR, Timestamp::UNIX_EPOCH), Err(SignError::Lifetime { .. })));
}

#[test]
fn ca_is_rotated_at_two_thirds_of_its_life() {
    let ca = Ca::generate(3 * HOUR, now()).unwrap();
    let after = ca.cert().rotate_at().duration_since(now());
    assert!((after - SignedDuration::from_hours(2)).abs() < SignedDuration::from_secs(2), "{after}");
    // From another issuer, with a lifetime below the backdating of wva's own CAs.
    let mut short = ca.cert().clone();
    short.not_before = now();
    short.not_after = now() + SignedDuration::from_mins(30);
    assert_eq!(short.rotate_at(), now() + SignedDuration::from_mins(20));
}
