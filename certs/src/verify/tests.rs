//! CAs of other issuers that the API server accepts or rejects.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, GeneralSubtree,
    IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
};

use super::*;
use crate::ca::{CaFault, Entry};
use crate::set::{CA_CERT, CA_KEY};

fn parse(change: impl FnOnce(&mut CertificateParams)) -> Result<Ca, CaFault> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let (cert, key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
    let now = "2026-11-20T12:00:00Z".parse().unwrap();
    let entry = |name, pem| Entry { name, pem: Some(pem) };
    Ca::parse(entry(CA_CERT, cert.as_bytes()), entry(CA_KEY, key.as_bytes()), now)
}

#[test]
fn accepts_foreign_cas_that_clients_accept() {
    parse(|_| {}).unwrap();
    parse(|p| p.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]).unwrap();
    for usage in [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::Any] {
        parse(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, usage]).unwrap();
    }
    parse(|p| {
        p.distinguished_name.push(DnType::OrganizationName, "Some & Söhne");
        p.distinguished_name.push(DnType::CountryName, "DE");
    })
    .unwrap();
}

#[test]
fn names_the_defect_of_a_ca_that_clients_reject() {
    let defect = |change: fn(&mut CertificateParams)| match parse(change).unwrap_err() {
        CaFault::CannotSign { entry: CA_CERT, defect } => defect,
        other => panic!("{other:?}"),
    };
    assert_eq!(defect(|p| p.key_usages = vec![KeyUsagePurpose::CrlSign]), CaDefect::KeyUsage);
    assert_eq!(
        defect(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
        CaDefect::ExtendedKeyUsage
    );
    assert_eq!(
        defect(|p| {
            let permitted_subtrees = vec![GeneralSubtree::DnsName("example.com".to_owned())];
            p.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
        }),
        CaDefect::NameConstraints
    );
    // Key usage that is not a bit string.
    assert_eq!(
        defect(|p| p.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 15], vec![5, 0])]),
        CaDefect::Unreadable
    );
    // rcgen keeps only one of two name parts of the same type, so the issuer name differs.
    let collapsed = defect(|p| {
        p.distinguished_name.push(DnType::OrganizationalUnitName, "one");
        p.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 11]), "two");
    });
    assert!(matches!(collapsed, CaDefect::NotVerified { .. }), "{collapsed:?}");
    let text = CaFault::CannotSign { entry: CA_CERT, defect: collapsed }.to_string();
    assert!(text.contains("ca.crt") && text.contains("does not verify"), "{text}");
}
