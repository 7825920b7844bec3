//! Inputs that match and inputs that do not.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use super::*;
use crate::ca::{Ca, PemPair};
use crate::set::{CA_KEY, CaSet};

const DAY: Duration = Duration::from_hours(24);

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

fn input(place: &str, name: &str, pem: impl Into<Vec<u8>>) -> InspectInput {
    InspectInput { place: place.to_owned(), name: name.to_owned(), pem: pem.into() }
}

fn secret(set: &CaSet) -> Vec<InspectInput> {
    set.to_secret_data().into_iter().map(|(name, pem)| input("Secret a/b", &name, pem.0)).collect()
}

#[track_caller]
fn finds(what: &str, all: &[InspectInput], want: &[&str]) -> Report {
    let report = inspect(all, now());
    assert_eq!(report.findings.len(), want.len(), "{what}: {:#?}", report.findings);
    for (found, want) in report.findings.iter().zip(want) {
        assert!(found.contains(want), "{what}: {found:?} is not about {want:?}");
    }
    report
}

#[test]
fn matching_inputs_have_no_findings() {
    let (ca, other) = (Ca::generate(DAY, now()).unwrap(), Ca::generate(DAY, now()).unwrap());
    let PemPair { cert, key } = ca.sign_serving_pem(&["a.b.svc".to_owned()], DAY, now()).unwrap();
    let files =
        [input("", "tls.crt", cert), input("", "tls.key", key.clone()), input("", "ca.crt", ca.cert().pem())];
    let report = finds("files", &files, &[]);
    let rows: Vec<_> = report.rows.iter().map(|r| (r.role, r.names.as_str(), r.is_ca)).collect();
    assert_eq!(rows[0], ("serving certificate", "a.b.svc", false));
    assert!(rows[1].0 == "current CA" && rows[1].2);
    assert!(report.notes.iter().any(|n| n.contains("tls.crt verifies")), "{:?}", report.notes);
    assert!(report.notes.iter().any(|n| n.contains("tls.key is the key of tls.crt")), "{:?}", report.notes);
    assert!(
        !format!("{report:?}").contains(key.lines().nth(1).unwrap()),
        "the report must not contain the key"
    );

    let set = CaSet { next: Some(Arc::new(other)), ..CaSet::new(ca) };
    let mut all = secret(&set);
    all.push(input("ValidatingWebhookConfiguration w", BUNDLE, set.bundle(now())));
    let report = finds("a Secret in a rotation and its bundle", &all, &[]);
    assert_eq!(
        report.rows.iter().map(|r| r.role).collect::<Vec<_>>(),
        ["current CA", "next CA", "trusted certificate", "trusted certificate"]
    );
    assert!(report.rows.iter().all(|r| r.fingerprint.len() == 64));
}

#[test]
fn reports_inputs_that_do_not_match() {
    let (ca, other) = (Ca::generate(DAY, now()).unwrap(), Ca::generate(DAY, now()).unwrap());
    let cert = ca.sign_serving_pem(&["a.b.svc".to_owned()], DAY, now()).unwrap().cert;
    let other_pem = other.cert().pem().to_owned();
    let file = |name: &str, pem: &str| input("", name, pem);
    finds("another CA", &[file("tls.crt", &cert), file("ca.crt", &other_pem)], &["does not verify"]);
    finds(
        "another key",
        &[file("ca.crt", &other_pem), file("ca.key", &ca.key_pem())],
        &["ca.key is not the key of ca.crt"],
    );
    finds(
        "garbage",
        &[file("tls.crt", "garbage"), file("tls.key", "garbage")],
        &["tls.crt holds no certificate", "tls.key holds no usable private key"],
    );
    finds("nothing", &[], &["contains no certificate"]);
    finds("empty", &[file("ca.crt", "")], &["ca.crt is empty"]);
    finds("a leaf as CA", &[file("ca.crt", &cert)], &["not a CA certificate"]);
    let old = Ca::generate(DAY, now() - SignedDuration::from_hours(48)).unwrap();
    finds("expired", &[file("previous-ca.crt", old.cert().pem())], &["previous CA expired at"]);
    let young = Ca::generate(DAY, now() + SignedDuration::from_hours(48)).unwrap();
    finds("not yet", &[file("next-ca.crt", young.cert().pem())], &["next CA is not valid before"]);
    let mut all = secret(&CaSet::new(ca));
    all.push(input("APIService x", BUNDLE, other_pem));
    finds(
        "a bundle without the CA",
        &all,
        &["APIService x: caBundle does not contain the CA of Secret a/b: ca.crt"],
    );
    all.retain(|g| g.name == CA_KEY);
    let report = finds("only a key", &all, &["contains no certificate"]);
    assert!(report.rows.is_empty());
}

#[test]
fn fingerprint_equals_that_of_openssl() {
    // `printf abc | sha256sum`.
    let abc = CertificateDer::from(b"abc".to_vec());
    assert_eq!(fingerprint(&abc), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn verifies_a_chain_against_a_separate_ca() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let key = || KeyPair::generate().unwrap();
    let params = |name: &str, is_ca| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = is_ca;
        params
    };
    let authority = IsCa::Ca(BasicConstraints::Unconstrained);
    let (root_params, root_key) = (params("root", authority), key());
    let root = root_params.self_signed(&root_key).unwrap();
    let (middle_params, middle_key) = (params("middle", authority), key());
    let middle = middle_params.signed_by(&middle_key, &Issuer::from_params(&root_params, &root_key)).unwrap();
    let middle_issuer = Issuer::from_params(&middle_params, &middle_key);
    let leaf = params("a.b.svc", IsCa::NoCa).signed_by(&key(), &middle_issuer).unwrap();

    let chain = input("", "tls.crt", format!("{}{}", leaf.pem(), middle.pem()));
    let report = finds("whole", &[chain.clone(), input("", "ca.crt", root.pem())], &[]);
    assert_eq!(report.rows[1].role, "part of a chain");
    let incomplete = [input("", "tls.crt", leaf.pem()), input("", "ca.crt", root.pem())];
    finds("without the intermediate", &incomplete, &["does not verify"]);
    let other = Ca::generate(DAY, now()).unwrap();
    finds("another root", &[chain, input("", "ca.crt", other.cert().pem())], &["does not verify"]);
}
