//! Valid and invalid contents of the Secret.

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
    CaSet::new(Ca::generate(HOUR, now()).unwrap())
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
fn rejects(what: &str, data: &BTreeMap<String, ByteString>, want: &CaFault) {
    assert_eq!(CaSet::from_secret_data(data, now()).unwrap_err(), *want, "{what}");
}

#[test]
fn next_ca_that_is_not_valid_yet_stays_trusted() {
    let ahead = now() + jiff::SignedDuration::from_hours(2);
    let set = CaSet { next: Some(Arc::new(Ca::generate(2 * HOUR, ahead).unwrap())), ..set() };
    let read = CaSet::from_secret_data(&set.to_secret_data(), now()).unwrap();
    assert!(read.next.is_none(), "it must not sign");
    assert_eq!(read.bundle(now()), set.bundle(now()));
}

/// A certificate that is not one of a CA.
fn leaf() -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.b.svc".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2030, 1, 1);
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn set_survives_a_round_trip_through_the_secret() {
    let another = || Ca::generate(2 * HOUR, now()).unwrap();
    let previous = vec![another().cert().clone(), another().cert().clone()];
    let set = CaSet { next: Some(Arc::new(another())), previous, ..set() };
    let read = CaSet::from_secret_data(&set.to_secret_data(), now()).unwrap();
    assert!(read.certs().eq(set.certs()));
    assert_eq!(read.bundle(now()), set.bundle(now()));
    assert_eq!(CertificateDer::pem_slice_iter(&read.bundle(now())).count(), 4);
    // The parsed keys belong to the certificates.
    for ca in [Some(&read.current), read.next.as_ref()].into_iter().flatten() {
        ca.sign_serving(&["a.b.svc".to_owned()], HOUR, now()).unwrap();
    }
    // Expired CAs leave the bundle, except the current one.
    let bundle = read.bundle(later(HOUR));
    assert_eq!(CertificateDer::pem_slice_iter(&bundle).count(), 4);
    assert_eq!(CertificateDer::pem_slice_iter(&read.bundle(later(3 * HOUR))).count(), 1);
}

#[test]
fn names_the_fault_of_the_current_ca() {
    let (cert, key) = (CA_CERT, CA_KEY);
    let two = String::from_utf8(set().bundle(now())).unwrap().repeat(2);
    let rows: Vec<(&str, BTreeMap<String, ByteString>, CaFault)> = vec![
        ("no data", BTreeMap::new(), CaFault::Missing { entry: cert }),
        ("no certificate", without(cert), CaFault::Missing { entry: cert }),
        ("no key", without(key), CaFault::Missing { entry: key }),
        ("empty key", with(key, ""), CaFault::Missing { entry: key }),
        ("garbage certificate", with(cert, "garbage"), CaFault::NotACertificate { entry: cert }),
        (
            "bytes that are not UTF-8",
            with(cert, [0xff, 0xfe, 0x00]),
            CaFault::NotACertificate { entry: cert },
        ),
        (
            "PEM around garbage",
            with(cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            CaFault::NotACertificate { entry: cert },
        ),
        ("two certificates", with(cert, two), CaFault::NotACertificate { entry: cert }),
        ("not a CA certificate", with(cert, leaf()), CaFault::NotACa { entry: cert }),
        ("garbage key", with(key, "garbage"), CaFault::NotAKey { entry: key }),
        ("bytes as key", with(key, [0xff, 0x00]), CaFault::NotAKey { entry: key }),
        ("a certificate as key", with(key, set().bundle(now())), CaFault::NotAKey { entry: key }),
        (
            "another CA's key",
            with(key, set().to_secret_data()[key].0.clone()),
            CaFault::KeyMismatch { entry: key },
        ),
    ];
    for (what, data, fault) in rows {
        rejects(what, &data, &fault);
    }
}

#[test]
fn validity_has_two_ends() {
    let data = set().to_secret_data();
    let end = Timestamp::from_second(later(HOUR).as_second()).unwrap();
    let at = |at| CaSet::from_secret_data(&data, at).map(|_| ());
    assert_eq!(at(end), Err(CaFault::Expired { entry: CA_CERT, not_after: end }));
    assert_eq!(at(end - SignedDuration::from_secs(1)), Ok(()));
    // Backdated an hour for slow clocks, without the fraction of a second.
    let begin = Timestamp::from_second(now().as_second()).unwrap() - BACKDATED;
    assert_eq!(at(begin), Ok(()));
    let before = begin - SignedDuration::from_secs(1);
    assert_eq!(at(before), Err(CaFault::NotYetValid { entry: CA_CERT, not_before: begin }));
}

#[test]
fn leaves_out_and_names_invalid_other_entries() {
    let ca = |life| Ca::generate(life, now() - SignedDuration::from_mins(10)).unwrap();
    let expired = ca(Duration::from_mins(1)).cert().pem().to_owned();
    let recent = ca(Duration::from_secs(570)).cert().clone();
    for previous in ["garbage".to_owned(), leaf(), expired] {
        let data = with(PREVIOUS_CA_CERT, previous.clone());
        let found = ParsedSecret::read(&data, now());
        assert!(found.previous.is_empty() && found.previous_fault.is_some(), "{previous}");
        assert!(found.set().is_ok());
    }
    let data = with(PREVIOUS_CA_CERT, recent.pem());
    let found = ParsedSecret::read(&data, now());
    assert_eq!(
        (found.previous.as_slice(), &found.previous_fault),
        ([recent.clone()].as_slice(), &None),
        "an expired CA stays for a while"
    );
    let bundle = String::from_utf8(found.set().unwrap().bundle(now())).unwrap();
    assert!(!bundle.contains(recent.pem()), "but is not trusted");

    let key = |data: &mut Data| data.insert(NEXT_CA_KEY.to_owned(), ByteString(b"garbage".to_vec()));
    let mut data = with(NEXT_CA_CERT, ca(HOUR).cert().pem());
    key(&mut data);
    let found = ParsedSecret::read(&data, now());
    assert_eq!(found.next.unwrap().unwrap_err(), CaFault::NotAKey { entry: NEXT_CA_KEY });
    let own = set().to_secret_data();
    let mut duplicate = own.clone();
    duplicate.insert(NEXT_CA_CERT.to_owned(), own[CA_CERT].clone());
    duplicate.insert(NEXT_CA_KEY.to_owned(), own[CA_KEY].clone());
    let found = ParsedSecret::read(&duplicate, now());
    assert_eq!(found.next.unwrap().unwrap_err(), CaFault::Duplicate { entry: NEXT_CA_CERT });
    let mut half = own;
    half.insert(NEXT_CA_KEY.to_owned(), half[CA_KEY].clone());
    assert_eq!(
        ParsedSecret::read(&half, now()).next.unwrap().unwrap_err(),
        CaFault::Missing { entry: NEXT_CA_CERT }
    );
}

#[test]
fn key_in_the_certificate_entry_is_not_in_the_bundle() {
    let set = set();
    let mut data = set.to_secret_data();
    let both = [data[CA_KEY].0.clone(), data[CA_CERT].0.clone(), data[CA_KEY].0.clone()].concat();
    data.insert(CA_CERT.to_owned(), ByteString(both));
    let bundle = CaSet::from_secret_data(&data, now()).unwrap().bundle(now());
    assert_eq!(String::from_utf8(bundle).unwrap(), set.current.cert().pem());
}

/// A CA with custom parameters, and its key.
fn custom_ca(change: impl FnOnce(&mut CertificateParams)) -> Data {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    change(&mut params);
    let pem = [(CA_CERT, params.self_signed(&key).unwrap().pem()), (CA_KEY, key.serialize_pem())];
    pem.into_iter().map(|(entry, pem)| (entry.to_owned(), ByteString(pem.into_bytes()))).collect()
}

#[test]
fn refuses_a_certificate_that_is_too_long() {
    let data = custom_ca(|params| {
        let long = rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![4; 9000]);
        params.custom_extensions = vec![long];
    });
    let fault = CaSet::from_secret_data(&data, now()).unwrap_err();
    assert!(matches!(fault, CaFault::TooLong { entry: CA_CERT, length } if length > 9000), "{fault:?}");
    assert!(fault.to_string().contains("at most 8192 are allowed"), "{fault}");
}

#[test]
fn ca_without_expiry_is_valid() {
    // RFC 5280 writes "no end" as 99991231235959Z, which is later than the latest Timestamp.
    let data = custom_ca(|params| {
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
fn other_text_in_the_entry_is_not_in_the_bundle() {
    let set = set();
    let mut data = set.to_secret_data();
    let key = String::from_utf8(data[CA_KEY].0.clone()).unwrap();
    let cert = set.current.cert().pem();
    // A block with two BEGIN lines: parsers differ in which one they use.
    let begin = "-----BEGIN CERTIFICATE-----\n";
    let texts = [
        format!("# {begin}{key}{cert}"),
        format!("{begin}{cert}"),
        format!(" {begin}{}\n-----END CERTIFICATE-----\n{cert}", key.trim()),
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
fn debug_output_does_not_contain_the_key() {
    let set = set();
    let key = String::from_utf8(set.to_secret_data()[CA_KEY].0.clone()).unwrap();
    let printed = format!("{set:?}");
    assert!(key.lines().all(|line| !printed.contains(line)), "{printed}");
}
