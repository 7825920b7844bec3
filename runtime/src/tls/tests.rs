use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::*;

const NAME: &str = "prometheus.monitoring.svc";

fn params(is_ca: IsCa) -> CertificateParams {
    let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
    params.is_ca = is_ca;
    params.distinguished_name.push(rcgen::DnType::CommonName, "Prometheus");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2040, 1, 1);
    params
}

fn self_signed(is_ca: IsCa) -> CertificateDer<'static> {
    params(is_ca).self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

/// A certificate for the name, and its CA.
fn issued() -> (CertificateDer<'static>, CertificateDer<'static>) {
    let mut ca = params(IsCa::Ca(BasicConstraints::Unconstrained));
    ca.distinguished_name.push(rcgen::DnType::CommonName, "CA");
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let leaf = params(IsCa::ExplicitNoCa).signed_by(&KeyPair::generate().unwrap(), &ca).unwrap();
    (leaf.der().clone(), ca.der().clone())
}

fn year(year: i32) -> UnixTime {
    let seconds = rcgen::date_time_ymd(year, 6, 1).unix_timestamp();
    UnixTime::since_unix_epoch(Duration::from_secs(seconds.unsigned_abs()))
}

/// `None`: the certificate is trusted.
fn fault(
    given: &CertificateDer<'static>,
    server: &CertificateDer<'static>,
    name: &str,
    at: UnixTime,
) -> Option<TlsFault> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = verifier(Trust::Only(vec![given.clone()]), &provider).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let error = verifier.verify_server_cert(server, &[], &name, &[], at).err()?;
    Some(TlsFault::of(&error).unwrap_or_else(|| panic!("{error}")))
}

#[test]
fn a_server_is_trusted_by_its_ca_or_by_itself() {
    let (leaf, ca) = issued();
    let own_ca = self_signed(IsCa::Ca(BasicConstraints::Unconstrained));
    let constrained = self_signed(IsCa::Ca(BasicConstraints::Constrained(0)));
    let no_ca = self_signed(IsCa::ExplicitNoCa);
    let plain = self_signed(IsCa::NoCa);
    for given in [&ca, &leaf] {
        assert_eq!(fault(given, &leaf, NAME, year(2030)), None);
    }
    for own in [&own_ca, &constrained, &no_ca, &plain] {
        assert_eq!(fault(own, own, NAME, year(2030)), None);
    }
    // Same names, another key.
    for other in [&self_signed(IsCa::Ca(BasicConstraints::Unconstrained)), &self_signed(IsCa::NoCa)] {
        for own in [&own_ca, &no_ca, &leaf, &ca] {
            let found = fault(own, other, NAME, year(2030));
            assert!(matches!(found, Some(TlsFault::UnknownIssuer | TlsFault::Certificate)), "{found:?}");
        }
    }
}

#[test]
fn names_and_dates_of_a_given_certificate_are_checked() {
    let (leaf, _) = issued();
    for own in [leaf, self_signed(IsCa::Ca(BasicConstraints::Unconstrained)), self_signed(IsCa::NoCa)] {
        let of = |name, at| fault(&own, &own, name, at);
        let Some(TlsFault::OtherName(names)) = of("other.svc", year(2030)) else { panic!() };
        assert!(names.iter().any(|name| name.contains(NAME)), "{names:?}");
        assert_eq!(of(NAME, year(2019)), Some(TlsFault::Dates));
        assert_eq!(of(NAME, year(2041)), Some(TlsFault::Dates));
        assert_eq!(of(NAME, year(2039)), None);
    }
}

#[test]
fn bytes_that_are_no_certificate_are_refused() {
    let (leaf, ca) = issued();
    for cut in [0, 1, 40, leaf.len() - 1] {
        let broken = CertificateDer::from(leaf[..cut].to_vec());
        assert_eq!(fault(&ca, &broken, NAME, year(2030)), Some(TlsFault::Certificate), "{cut}");
    }
    assert!(certificates(b"").unwrap_err().contains("no certificate"));
    assert!(certificates(b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n").is_err());
    assert!(ClientIdentity::from_pem(b"").is_err());
}

#[test]
fn a_fault_is_found_below_other_errors() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct ConnectError(#[source] io::Error);
    let inner = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
    let outer = ConnectError(io::Error::new(io::ErrorKind::InvalidData, inner));
    assert_eq!(TlsFault::of(&outer), Some(TlsFault::CertificateRequired));
    assert_eq!(TlsFault::of(&ConnectError(io::ErrorKind::UnexpectedEof.into())), None);
}

proptest::proptest! {
    #[test]
    fn no_altered_certificate_is_trusted(at in 0..4096_usize, flipped in 1..=255_u8, cut in proptest::option::weighted(0.2, 0..600_usize)) {
        static OWN: std::sync::LazyLock<[CertificateDer<'static>; 2]> = std::sync::LazyLock::new(|| {
            [self_signed(IsCa::Ca(BasicConstraints::Unconstrained)), self_signed(IsCa::ExplicitNoCa)]
        });
        for own in OWN.iter() {
            let mut bytes = own.to_vec();
            let at = at % bytes.len();
            bytes[at] ^= flipped;
            bytes.truncate(cut.unwrap_or(usize::MAX));
            let provider = Arc::new(aws_lc_rs::default_provider());
            let verifier = verifier(Trust::Only(vec![own.clone()]), &provider).unwrap();
            let name = ServerName::try_from(NAME).unwrap();
            let verdict = verifier.verify_server_cert(&bytes.into(), &[], &name, &[], year(2030));
            proptest::prop_assert!(verdict.is_err(), "byte {at}");
        }
    }
}
