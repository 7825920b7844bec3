//! CAs of other makers: those that an API server would take, and those that it would not.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, GeneralSubtree,
    IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
};

use super::*;
use crate::ca::Why;
use crate::set::{CA_CERT, CA_KEY};

fn judged(change: impl FnOnce(&mut CertificateParams)) -> Result<Ca, Why> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let (cert, key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
    let now = "2026-11-20T12:00:00Z".parse().unwrap();
    Ca::parse((CA_CERT, Some(cert.as_bytes())), (CA_KEY, Some(key.as_bytes())), now)
}

#[test]
fn a_ca_of_another_maker_is_good_where_what_it_signs_would_be_taken() {
    judged(|_| {}).unwrap();
    judged(|p| p.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]).unwrap();
    for usage in [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::Any] {
        judged(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, usage]).unwrap();
    }
    judged(|p| {
        p.distinguished_name.push(DnType::OrganizationName, "Some & Söhne");
        p.distinguished_name.push(DnType::CountryName, "DE");
    })
    .unwrap();
}

#[test]
fn a_ca_whose_certificates_nobody_would_take_is_named() {
    let unfit = |change: fn(&mut CertificateParams)| match judged(change).unwrap_err() {
        Why::CannotSign { entry: CA_CERT, unfit } => unfit,
        other => panic!("{other:?}"),
    };
    assert_eq!(unfit(|p| p.key_usages = vec![KeyUsagePurpose::CrlSign]), Unfit::KeyUsage);
    assert_eq!(
        unfit(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
        Unfit::ExtendedKeyUsage
    );
    assert_eq!(
        unfit(|p| {
            let permitted_subtrees = vec![GeneralSubtree::DnsName("example.com".to_owned())];
            p.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
        }),
        Unfit::NameConstraints
    );
    // Key usage, which is no bit string.
    assert_eq!(
        unfit(|p| p.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 15], vec![5, 0])]),
        Unfit::Unreadable
    );
    // Of two parts of a name with one type the library that signs keeps one: the issuer would be somebody else.
    let collapsed = unfit(|p| {
        p.distinguished_name.push(DnType::OrganizationalUnitName, "one");
        p.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 11]), "two");
    });
    assert!(matches!(collapsed, Unfit::Trial { .. }), "{collapsed:?}");
    let why = Why::CannotSign { entry: CA_CERT, unfit: collapsed }.to_string();
    assert!(why.contains("ca.crt") && why.contains("does not verify"), "{why}");
}
