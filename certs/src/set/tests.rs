//! What a Secret may hold, and what is said of it.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::*;
use crate::BACKDATED;

const HOUR: Duration = Duration::from_hours(1);

fn now() -> Timestamp {
    "2026-11-20T12:00:00.7Z".parse().unwrap()
}

fn later(span: Duration) -> Timestamp {
    now() + SignedDuration::try_from(span).unwrap()
}

fn set() -> CaSet {
    CaSet::of(Ca::generate(HOUR, now()).unwrap())
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

#[test]
fn a_next_ca_that_is_not_valid_yet_stays_trusted() {
    let ahead = now() + jiff::SignedDuration::from_hours(2);
    let set = CaSet { next: Some(Arc::new(Ca::generate(2 * HOUR, ahead).unwrap())), ..set() };
    let read = CaSet::from_secret_data(&set.to_secret_data(), now()).unwrap();
    assert!(read.next.is_none(), "it must not sign");
    assert_eq!(read.bundle(now()), set.bundle(now()));
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
    let another = || Ca::generate(2 * HOUR, now()).unwrap();
    let previous = vec![another().cert().clone(), another().cert().clone()];
    let set = CaSet { next: Some(Arc::new(another())), previous, ..set() };
    let read = CaSet::from_secret_data(&set.to_secret_data(), now()).unwrap();
    assert!(read.certs().eq(set.certs()));
    assert_eq!(read.bundle(now()), set.bundle(now()));
    assert_eq!(CertificateDer::pem_slice_iter(&read.bundle(now())).count(), 4);
    // The keys that were read are those that sign.
    for ca in [Some(&read.current), read.next.as_ref()].into_iter().flatten() {
        ca.sign_serving(&["a.b.svc".to_owned()], HOUR, now()).unwrap();
    }
    // What has expired leaves the bundle by the clock, and the current one never does.
    let bundle = read.bundle(later(HOUR));
    assert_eq!(CertificateDer::pem_slice_iter(&bundle).count(), 4);
    assert_eq!(CertificateDer::pem_slice_iter(&read.bundle(later(3 * HOUR))).count(), 1);
}

#[test]
fn what_cannot_be_used_is_named() {
    let (cert, key) = (CA_CERT, CA_KEY);
    let two = String::from_utf8(set().bundle(now())).unwrap().repeat(2);
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
        ("a certificate as key", with(key, set().bundle(now())), Why::NotAKey { entry: key }),
        (
            "another CA's key",
            with(key, set().to_secret_data()[key].0.clone()),
            Why::KeyMismatch { entry: key },
        ),
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
fn bad_entries_beside_the_current_ca_are_left_out_and_named() {
    let ca = |life| Ca::generate(life, now() - SignedDuration::from_mins(10)).unwrap();
    let expired = ca(Duration::from_mins(1)).cert().pem().to_owned();
    let recent = ca(Duration::from_secs(570)).cert().clone();
    for previous in ["garbage".to_owned(), leaf(), expired] {
        let data = with(PREVIOUS_CA_CERT, previous.clone());
        let found = Found::read(&data, now());
        assert!(found.previous.is_empty() && found.previous_flaw.is_some(), "{previous}");
        assert!(found.set().is_ok());
    }
    let data = with(PREVIOUS_CA_CERT, recent.pem());
    let found = Found::read(&data, now());
    assert_eq!(
        (found.previous.as_slice(), &found.previous_flaw),
        ([recent.clone()].as_slice(), &None),
        "lingers"
    );
    let bundle = String::from_utf8(found.set().unwrap().bundle(now())).unwrap();
    assert!(!bundle.contains(recent.pem()), "and is trusted no more");

    let key = |data: &mut Data| data.insert(NEXT_CA_KEY.to_owned(), ByteString(b"garbage".to_vec()));
    let mut data = with(NEXT_CA_CERT, ca(HOUR).cert().pem());
    key(&mut data);
    let found = Found::read(&data, now());
    assert_eq!(found.next.unwrap().unwrap_err(), Why::NotAKey { entry: NEXT_CA_KEY });
    let own = set().to_secret_data();
    let mut doubled = own.clone();
    doubled.insert(NEXT_CA_CERT.to_owned(), own[CA_CERT].clone());
    doubled.insert(NEXT_CA_KEY.to_owned(), own[CA_KEY].clone());
    let found = Found::read(&doubled, now());
    assert_eq!(found.next.unwrap().unwrap_err(), Why::Doubled { entry: NEXT_CA_CERT });
    let mut half = own;
    half.insert(NEXT_CA_KEY.to_owned(), half[CA_KEY].clone());
    assert_eq!(Found::read(&half, now()).next.unwrap().unwrap_err(), Why::Missing { entry: NEXT_CA_CERT });
}

#[test]
fn a_key_beside_the_certificate_does_not_reach_the_bundle() {
    let set = set();
    let mut data = set.to_secret_data();
    let both = [data[CA_KEY].0.clone(), data[CA_CERT].0.clone(), data[CA_KEY].0.clone()].concat();
    data.insert(CA_CERT.to_owned(), ByteString(both));
    let bundle = CaSet::from_secret_data(&data, now()).unwrap().bundle(now());
    assert_eq!(String::from_utf8(bundle).unwrap(), set.current.cert().pem());
}

/// A CA made by hand, and its key.
fn made(change: impl FnOnce(&mut CertificateParams)) -> Data {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    change(&mut params);
    let pem = [(CA_CERT, params.self_signed(&key).unwrap().pem()), (CA_KEY, key.serialize_pem())];
    pem.into_iter().map(|(entry, pem)| (entry.to_owned(), ByteString(pem.into_bytes()))).collect()
}

#[test]
fn a_certificate_that_is_too_long_is_refused() {
    let data = made(|params| {
        let long = rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![4; 9000]);
        params.custom_extensions = vec![long];
    });
    let why = CaSet::from_secret_data(&data, now()).unwrap_err();
    assert!(matches!(why, Why::TooLong { entry: CA_CERT, length } if length > 9000), "{why:?}");
    assert!(why.to_string().contains("the most is 8192"), "{why}");
}

#[test]
fn a_ca_without_an_end_is_good() {
    // RFC 5280 writes "no end" as 99991231235959Z, which is later than the latest Timestamp.
    let data = made(|params| {
        let last = rcgen::date_time_ymd(9999, 12, 31);
        params.not_after = last + Duration::from_secs(86_399);
    });
    let set = CaSet::from_secret_data(&data, now()).unwrap();
    assert_eq!(set.current.cert().not_after(), Timestamp::MAX);
    set.current.sign_serving(&["a.b.svc".to_owned()], HOUR, now()).unwrap();
    let read = crate::x509::Cert::read_all(&data[CA_CERT].0).unwrap();
    assert_eq!(read[0].not_after, Timestamp::MAX);
}

#[test]
fn what_stands_within_the_text_does_not_reach_the_bundle() {
    let set = set();
    let mut data = set.to_secret_data();
    let key = String::from_utf8(data[CA_KEY].0.clone()).unwrap();
    let cert = set.current.cert().pem();
    // A block that is begun twice: some readers take the second begin, others the first.
    let begun = "-----BEGIN CERTIFICATE-----\n";
    let texts = [
        format!("# {begun}{key}{cert}"),
        format!("{begun}{cert}"),
        format!(" {begun}{}\n-----END CERTIFICATE-----\n{cert}", key.trim()),
        cert.replace('\n', "\r\n"),
    ];
    for text in texts {
        data.insert(CA_CERT.to_owned(), ByteString(text.clone().into_bytes()));
        if let Ok(found) = CaSet::from_secret_data(&data, now()) {
            assert_eq!(String::from_utf8(found.bundle(now())).unwrap(), cert, "{text}");
        }
        for cert in crate::x509::Cert::read_all(text.as_bytes()).into_iter().flatten() {
            let secret = key.lines().nth(1).unwrap();
            assert!(!cert.pem.contains(secret), "{text}");
        }
    }
}

#[test]
fn nothing_prints_the_key() {
    let set = set();
    let key = String::from_utf8(set.to_secret_data()[CA_KEY].0.clone()).unwrap();
    let printed = format!("{set:?}");
    assert!(key.lines().all(|line| !printed.contains(line)), "{printed}");
}
