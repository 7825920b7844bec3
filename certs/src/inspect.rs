//! Looks at certificates, keys and bundles that somebody hands over, and says what does not fit together. Nothing is
//! read or printed here, and no key ever leaves.

use std::fmt::Write as _;

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::set::{CA_CERT, NEXT_CA_CERT, PREVIOUS_CA_CERT};
use crate::x509::{self, Cert};

/// One text to look at.
#[derive(Clone)]
pub struct Given {
    /// Where it stands, for people: an object, a folder with a final slash, or nothing.
    pub place: String,
    /// Name of the entry or file; what it is for is told from that.
    pub name: String,
    /// What it holds.
    pub pem: Vec<u8>,
}

/// One certificate that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where it stands.
    pub place: String,
    /// What it is: the current, next or previous CA, a serving certificate, a part of a bundle.
    pub what: &'static str,
    /// Its names, or its subject where it has none.
    pub names: String,
    /// It may sign others.
    pub is_ca: bool,
    /// Begin of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
    /// SHA-256 of its DER, hexadecimal.
    pub fingerprint: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Every certificate.
    pub rows: Vec<Row>,
    /// What fits.
    pub notes: Vec<String>,
    /// What does not.
    pub findings: Vec<String>,
}

/// Looks at all that was given, together: a key is looked for among all certificates, and a serving certificate is
/// verified against all CAs.
#[must_use]
pub fn inspect(given: &[Given], now: Timestamp) -> Report {
    let mut seen = Seen::default();
    for one in given {
        seen.read(one);
    }
    if seen.certs.is_empty() && seen.report.findings.is_empty() {
        seen.report.findings.push("there is no certificate in what was given".to_owned());
    }
    seen.dates(now);
    seen.keys();
    seen.serving(now);
    seen.bundles();
    seen.report
}

/// SHA-256 in hexadecimal.
#[must_use]
pub fn fingerprint(der: &CertificateDer<'_>) -> String {
    // The hash of a TLS 1.3 suite that is there in any case: no dependency for one digest.
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let Some(suite) = suite.tls13() else { return String::new() };
    let digest = suite.common.hash_provider.hash(der);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[derive(Default)]
struct Seen<'a> {
    /// Where each stands, and whether it is a part of the chain below a certificate that is no CA's.
    certs: Vec<(&'a Given, bool, Cert)>,
    /// Public keys of the private keys.
    keys: Vec<(&'a Given, Vec<u8>)>,
    report: Report,
}

impl<'a> Seen<'a> {
    fn read(&mut self, given: &'a Given) {
        let at = at(given);
        if given.pem.is_empty() {
            self.report.findings.push(format!("{at} is empty"));
            return;
        }
        let key = PrivateKeyDer::from_pem_slice(&given.pem).ok();
        if key.is_some() || is_key(&given.name) {
            let public = key.and_then(|key| {
                aws_lc_rs::sign::any_supported_type(&key).ok()?.public_key().map(|p| p.to_vec())
            });
            match public {
                Some(public) => self.keys.push((given, public)),
                None => self.report.findings.push(format!("{at} holds no private key that can be used")),
            }
        }
        match Cert::read_all(&given.pem) {
            Ok(certs) => {
                let leaf_first = certs.first().is_some_and(|cert| !cert.is_ca);
                for (i, cert) in certs.into_iter().enumerate() {
                    self.certs.push((given, i > 0 && leaf_first, cert));
                }
            }
            Err(_) if is_key(&given.name) => {}
            Err(why) => self.report.findings.push(format!("{at} {why}")),
        }
    }

    fn dates(&mut self, now: Timestamp) {
        for (given, chained, cert) in &self.certs {
            let (at, what) = (at(given), what(given, *chained, cert));
            self.report.rows.push(Row {
                place: at.clone(),
                what,
                names: shown_names(cert),
                is_ca: cert.is_ca,
                not_before: cert.not_before,
                not_after: cert.not_after,
                fingerprint: fingerprint(&cert.der),
            });
            let findings = &mut self.report.findings;
            if now >= cert.not_after {
                findings.push(format!("{at}: the {what} expired at {}", cert.not_after));
            } else if now < cert.not_before {
                findings.push(format!("{at}: the {what} is not valid before {}", cert.not_before));
            }
            if what.ends_with(" CA") && !cert.is_ca {
                findings
                    .push(format!("{at}: this certificate is not a CA's, so nothing that it signs counts"));
            }
        }
    }

    /// Each key belongs to the certificate beside it, or to any where none has its name.
    fn keys(&mut self) {
        for (given, public) in &self.keys {
            let beside: Vec<_> = self
                .certs
                .iter()
                .filter(|(other, chained, _)| {
                    !chained && other.place == given.place && stem(&other.name) == stem(&given.name)
                })
                .collect();
            let candidates = if beside.is_empty() { self.certs.iter().collect() } else { beside };
            let at = at(given);
            if candidates.is_empty() {
                self.report.notes.push(format!("{at}: a private key, and no certificate to compare it with"));
            } else if let Some((cert, ..)) = candidates.iter().find(|(.., cert)| cert.public_key == *public) {
                self.report.notes.push(format!("{at} is the key of {}", self::at(cert)));
            } else {
                self.report.findings.push(format!("{at} is not the key of {}", self::at(candidates[0].0)));
            }
        }
    }

    fn serving(&mut self, now: Timestamp) {
        let cas: Vec<_> = self.certs.iter().filter(|(_, chained, cert)| cert.is_ca && !chained).collect();
        for (given, chained, cert) in &self.certs {
            if cert.is_ca || what(given, *chained, cert) != SERVING {
                continue;
            }
            let at = at(given);
            let chain: Vec<_> =
                self.certs.iter().filter(|(g, chained, _)| *chained && std::ptr::eq(*g, *given)).collect();
            if cert.names.is_empty() {
                self.report.findings.push(format!(
                    "{at}: the {SERVING} has no names (subject alternative names), so no client takes it"
                ));
            } else if cas.is_empty() {
                self.report.notes.push(format!("{at}: no CA was given to verify it against"));
            } else if let Err(error) = verify(cert, &ders(&chain), &ders(&cas), now) {
                self.report
                    .findings
                    .push(format!("{at} does not verify against any CA that was given: {error}"));
            } else {
                self.report.notes.push(format!("{at} verifies against the CAs that were given"));
            }
        }
    }

    /// Each bundle carries the CA that signs now and the one that will.
    fn bundles(&mut self) {
        let signing: Vec<_> =
            self.certs.iter().filter(|(given, ..)| [CA_CERT, NEXT_CA_CERT].contains(&&*given.name)).collect();
        let mut bundles: Vec<&Given> =
            self.certs.iter().map(|(given, ..)| *given).filter(|given| given.name == BUNDLE).collect();
        bundles.dedup_by_key(|given| &given.place);
        for bundle in bundles {
            let carried = |cert: &Cert| {
                self.certs.iter().any(|(given, _, other)| {
                    given.place == bundle.place && given.name == BUNDLE && other.der == cert.der
                })
            };
            for (given, ..) in signing.iter().filter(|(.., cert)| !carried(cert)) {
                let finding = format!("{} does not carry the CA of {}", at(bundle), at(given));
                self.report.findings.push(finding);
            }
        }
    }
}

/// Name of what stands in `clientConfig.caBundle` and `spec.caBundle`.
pub const BUNDLE: &str = "caBundle";
const SERVING: &str = "serving certificate";

fn what(given: &Given, chained: bool, cert: &Cert) -> &'static str {
    match given.name.as_str() {
        CA_CERT => "current CA",
        NEXT_CA_CERT => "next CA",
        PREVIOUS_CA_CERT => "previous CA",
        BUNDLE => "trusted certificate",
        _ if chained => "part of a chain",
        _ if cert.is_ca => "CA certificate",
        _ => SERVING,
    }
}

fn at(given: &Given) -> String {
    let Given { place, name, .. } = given;
    if place.is_empty() || place.ends_with('/') {
        format!("{place}{name}")
    } else {
        format!("{place}: {name}")
    }
}

fn is_key(name: &str) -> bool {
    std::path::Path::new(name).extension().is_some_and(|e| e.eq_ignore_ascii_case("key"))
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

fn shown_names(cert: &Cert) -> String {
    if cert.names.is_empty() { cert.subject.clone() } else { cert.names.join(",") }
}

fn ders(certs: &[&(&Given, bool, Cert)]) -> Vec<CertificateDer<'static>> {
    certs.iter().map(|(.., cert)| cert.der.clone()).collect()
}

fn verify(
    cert: &Cert,
    chain: &[CertificateDer<'_>],
    cas: &[CertificateDer<'static>],
    now: Timestamp,
) -> Result<(), String> {
    let name = cert.names.first().map(String::as_str).unwrap_or_default();
    x509::verify(&cert.der, chain, cas, name, now)
}

#[cfg(test)]
mod tests;
