//! What a Secret may hold, and what is said of it.

use super::*;

const HOUR: Duration = Duration::from_hours(1);

fn now() -> Timestamp {
    "2026-11-20T12:00:00.7Z".parse().unwrap()
}

fn later(span: Duration) -> Timestamp {
    now() + SignedDuration::try_from(span).unwrap()
}

fn set() -> CaSet {
    CaSet { current: Ca::generate(HOUR, now()).unwrap(), previous: None }
}

fn with(entry: &str, value: impl Into<Vec<u8>>) -> BTreeMap<String, ByteString> {
    let mut data = set().to_secret_data();
    data.insert(entry.to_owned(), ByteString(value.into()));
    data
}

fn without(entry: &str) -> BTreeMap<String, ByteString> {
    let mut data = set().to_secret_data();
    data.remove(entry);
    data
}

#[track_caller]
fn bad(what: &str, data: &BTreeMap<String, ByteString>, want: &Why) {
    assert_eq!(CaSet::from_secret_data(data, now()).unwrap_err(), *want, "{what}");
}

/// A certificate that may not sign others.
fn leaf() -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.b.svc".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2030, 1, 1);
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn a_set_survives_the_secret() {
    let set = CaSet { previous: Some(Ca::generate(2 * HOUR, now()).unwrap().cert().clone()), ..set() };
    let read = CaSet::from_secret_data(&set.to_secret_data(), now()).unwrap();
    assert_eq!(read.current.cert(), set.current.cert());
    assert_eq!(read.previous, set.previous);
    assert_eq!(read.bundle(), set.bundle());
    assert_eq!(CertificateDer::pem_slice_iter(&read.bundle()).count(), 2);
    // The key that was read is the one that signs.
    read.current.sign_serving(&["a.b.svc".to_owned()], HOUR, now()).unwrap();
}

#[test]
fn what_cannot_be_used_is_named() {
    let (cert, key) = (CA_CERT, CA_KEY);
    let two = String::from_utf8(set().bundle()).unwrap().repeat(2);
    let rows: Vec<(&str, BTreeMap<String, ByteString>, Why)> = vec![
        ("no data", BTreeMap::new(), Why::Missing { entry: cert }),
        ("no certificate", without(cert), Why::Missing { entry: cert }),
        ("no key", without(key), Why::Missing { entry: key }),
        ("empty key", with(key, ""), Why::Missing { entry: key }),
        ("garbage certificate", with(cert, "garbage"), Why::NotACertificate { entry: cert }),
        ("bytes that are no text", with(cert, [0xff, 0xfe, 0x00]), Why::NotACertificate { entry: cert }),
        (
            "PEM around garbage",
            with(cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            Why::NotACertificate { entry: cert },
        ),
        ("two certificates", with(cert, two), Why::NotACertificate { entry: cert }),
        ("a certificate that is no CA's", with(cert, leaf()), Why::NotACa { entry: cert }),
        ("garbage key", with(key, "garbage"), Why::NotAKey { entry: key }),
        ("bytes as key", with(key, [0xff, 0x00]), Why::NotAKey { entry: key }),
        ("a certificate as key", with(key, set().bundle()), Why::NotAKey { entry: key }),
        ("another CA's key", with(key, set().to_secret_data()[key].0.clone()), Why::KeyMismatch),
    ];
    for (what, data, why) in rows {
        bad(what, &data, &why);
    }
}

#[test]
fn validity_has_two_ends() {
    let data = set().to_secret_data();
    let end = Timestamp::from_second(later(HOUR).as_second()).unwrap();
    let at = |at| CaSet::from_secret_data(&data, at).map(|_| ());
    assert_eq!(at(end), Err(Why::Expired { entry: CA_CERT, not_after: end }));
    assert_eq!(at(end - SignedDuration::from_secs(1)), Ok(()));
    // Dated back an hour, for slow clocks; the fraction of a second is cut off.
    let begin = Timestamp::from_second(now().as_second()).unwrap() - BACKDATED;
    assert_eq!(at(begin), Ok(()));
    let before = begin - SignedDuration::from_secs(1);
    assert_eq!(at(before), Err(Why::NotYetValid { entry: CA_CERT, not_before: begin }));
}

#[test]
fn a_bad_previous_certificate_is_left_out() {
    let expired = Ca::generate(Duration::from_secs(1), now() - SignedDuration::from_secs(60)).unwrap();
    for previous in ["garbage".to_owned(), leaf(), expired.cert().pem().to_owned()] {
        let data = with(PREVIOUS_CA_CERT, previous.clone());
        let read = CaSet::from_secret_data(&data, now()).unwrap();
        assert_eq!(read.previous, None, "{previous}");
    }
}

#[test]
fn a_key_beside_the_certificate_does_not_reach_the_bundle() {
    let set = set();
    let mut data = set.to_secret_data();
    let both = [data[CA_KEY].0.clone(), data[CA_CERT].0.clone(), data[CA_KEY].0.clone()].concat();
    data.insert(CA_CERT.to_owned(), ByteString(both));
    let bundle = CaSet::from_secret_data(&data, now()).unwrap().bundle();
    assert_eq!(String::from_utf8(bundle).unwrap(), set.current.cert().pem());
}

#[test]
fn a_serving_certificate_never_outlives_its_ca() {
    let set = set();
    let names = ["a.b.svc".to_owned()];
    let signed = set.current.sign_serving(&names, 90 * 24 * HOUR, now()).unwrap();
    assert_eq!(signed.not_after, set.current.cert().not_after());
    let short = set.current.sign_serving(&names, HOUR / 2, now()).unwrap();
    assert_eq!(short.not_after.as_second(), later(HOUR / 2).as_second());
}

#[test]
fn impossible_dates_are_an_error() {
    assert!(matches!(Ca::generate(Duration::MAX, now()), Err(SignError::Lifetime { .. })));
    assert!(matches!(Ca::generate(HOUR, Timestamp::UNIX_EPOCH), Err(SignError::Lifetime { .. })));
}

#[test]
fn nothing_prints_the_key() {
    let set = set();
    let key = String::from_utf8(set.to_secret_data()[CA_KEY].0.clone()).unwrap();
    let printed = format!("{set:?}");
    assert!(key.lines().all(|line| !printed.contains(line)), "{printed}");
}
