//! Checks that certificates, keys and bundles match each other. The report contains no private key.

use std::fmt::Write as _;

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::set::{CA_CERT, NEXT_CA_CERT, PREVIOUS_CA_CERT};
use crate::x509::{self, Cert};

/// PEM text to inspect.
#[derive(Clone)]
pub struct InspectInput {
    /// Object, directory with a final slash, or empty.
    pub place: String,
    /// Name of the entry or file, which determines the role.
    pub name: String,
    /// Content.
    pub pem: Vec<u8>,
}

/// Certificate of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertRow {
    /// Object or file, and entry.
    pub place: String,
    /// Role: current, next or previous CA, serving certificate, or part of a bundle.
    pub role: &'static str,
    /// Names, or the subject of a certificate without names.
    pub names: String,
    /// Whether it is a CA certificate.
    pub is_ca: bool,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// SHA-256 of the DER, hexadecimal.
    pub fingerprint: String,
}

/// Result of an inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All certificates.
    pub rows: Vec<CertRow>,
    /// Successful checks.
    pub notes: Vec<String>,
    /// Faults.
    pub findings: Vec<String>,
}

/// Compares keys with certificates, and verifies serving certificates against all CAs.
#[must_use]
pub fn inspect(inputs: &[InspectInput], now: Timestamp) -> Report {
    let mut inspection = Inspection::default();
    for input in inputs {
        inspection.add(input);
    }
    if inspection.certs.is_empty() && inspection.report.findings.is_empty() {
        inspection.report.findings.push("the input contains no certificate".to_owned());
    }
    inspection.check_dates(now);
    inspection.check_keys();
    inspection.check_serving(now);
    inspection.check_bundles();
    inspection.report
}

/// SHA-256 in hexadecimal.
#[must_use]
pub fn fingerprint(der: &CertificateDer<'_>) -> String {
    // The hash of a TLS 1.3 suite avoids a dependency for one digest.
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let Some(suite) = suite.tls13() else { return String::new() };
    let digest = suite.common.hash_provider.hash(der);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

struct InputCert<'a> {
    input: &'a InspectInput,
    /// Part of a chain below a serving certificate.
    is_chained: bool,
    cert: Cert,
}

struct InputKey<'a> {
    input: &'a InspectInput,
    public_key: Vec<u8>,
}

#[derive(Default)]
struct Inspection<'a> {
    certs: Vec<InputCert<'a>>,
    keys: Vec<InputKey<'a>>,
    report: Report,
}

impl<'a> Inspection<'a> {
    fn add(&mut self, input: &'a InspectInput) {
        let place = place(input);
        if input.pem.is_empty() {
            self.report.findings.push(format!("{place} is empty"));
            return;
        }
        let key = PrivateKeyDer::from_pem_slice(&input.pem).ok();
        if key.is_some() || is_key(&input.name) {
            let public_key = key.and_then(|key| {
                aws_lc_rs::sign::any_supported_type(&key).ok()?.public_key().map(|p| p.to_vec())
            });
            match public_key {
                Some(public_key) => self.keys.push(InputKey { input, public_key }),
                None => self.report.findings.push(format!("{place} holds no usable private key")),
            }
        }
        match Cert::read_all(&input.pem) {
            Ok(certs) => {
                let leaf_first = certs.first().is_some_and(|cert| !cert.is_ca);
                for (i, cert) in certs.into_iter().enumerate() {
                    self.certs.push(InputCert { input, is_chained: i > 0 && leaf_first, cert });
                }
            }
            Err(_) if is_key(&input.name) => {}
            Err(error) => self.report.findings.push(format!("{place} {error}")),
        }
    }

    fn check_dates(&mut self, now: Timestamp) {
        for input_cert in &self.certs {
            let (place, role, cert) = (place(input_cert.input), role(input_cert), &input_cert.cert);
            self.report.rows.push(CertRow {
                place: place.clone(),
                role,
                names: display_names(cert),
                is_ca: cert.is_ca,
                not_before: cert.not_before,
                not_after: cert.not_after,
                fingerprint: fingerprint(&cert.der),
            });
            let findings = &mut self.report.findings;
            if now >= cert.not_after {
                findings.push(format!("{place}: the {role} expired at {}", cert.not_after));
            } else if now < cert.not_before {
                findings.push(format!("{place}: the {role} is not valid before {}", cert.not_before));
            }
            if role.ends_with(" CA") && !cert.is_ca {
                findings.push(format!("{place}: not a CA certificate, so clients reject what it signs"));
            }
        }
    }

    /// Compares each key with the certificate of the same name, else with all certificates.
    fn check_keys(&mut self) {
        for key in &self.keys {
            let same_name: Vec<_> = self
                .certs
                .iter()
                .filter(|InputCert { input, is_chained, .. }| {
                    !is_chained
                        && input.place == key.input.place
                        && stem(&input.name) == stem(&key.input.name)
                })
                .collect();
            let candidates = if same_name.is_empty() { self.certs.iter().collect() } else { same_name };
            let key_place = place(key.input);
            if candidates.is_empty() {
                self.report
                    .notes
                    .push(format!("{key_place}: a private key; no certificate to compare it with"));
            } else if let Some(found) = candidates.iter().find(|c| c.cert.public_key == key.public_key) {
                self.report.notes.push(format!("{key_place} is the key of {}", place(found.input)));
            } else {
                let other = place(candidates[0].input);
                self.report.findings.push(format!("{key_place} is not the key of {other}"));
            }
        }
    }

    fn check_serving(&mut self, now: Timestamp) {
        let cas: Vec<_> = self.certs.iter().filter(|c| c.cert.is_ca && !c.is_chained).collect();
        for serving in &self.certs {
            let InputCert { input, cert, .. } = serving;
            if cert.is_ca || role(serving) != SERVING {
                continue;
            }
            let place = place(input);
            let chain: Vec<_> =
                self.certs.iter().filter(|c| c.is_chained && std::ptr::eq(c.input, *input)).collect();
            if cert.names.is_empty() {
                self.report.findings.push(format!(
                    "{place}: the {SERVING} has no names (subject alternative names), so clients reject it"
                ));
            } else if cas.is_empty() {
                self.report.notes.push(format!("{place}: not verified; the input has no CA"));
            } else if let Err(error) = verify(cert, &ders(&chain), &ders(&cas), now) {
                self.report
                    .findings
                    .push(format!("{place} does not verify against any CA of the input: {error}"));
            } else {
                self.report.notes.push(format!("{place} verifies against the CAs of the input"));
            }
        }
    }

    fn check_bundles(&mut self) {
        let signing: Vec<_> =
            self.certs.iter().filter(|c| [CA_CERT, NEXT_CA_CERT].contains(&&*c.input.name)).collect();
        let mut bundles: Vec<&InspectInput> =
            self.certs.iter().map(|c| c.input).filter(|input| input.name == BUNDLE).collect();
        bundles.dedup_by_key(|input| &input.place);
        for bundle in bundles {
            let is_in_bundle = |cert: &Cert| {
                self.certs.iter().any(|InputCert { input, cert: other, .. }| {
                    input.place == bundle.place && input.name == BUNDLE && other.der == cert.der
                })
            };
            for missing in signing.iter().filter(|c| !is_in_bundle(&c.cert)) {
                let finding =
                    format!("{} does not contain the CA of {}", place(bundle), place(missing.input));
                self.report.findings.push(finding);
            }
        }
    }
}

/// Input name of a `clientConfig.caBundle` or `spec.caBundle`.
pub const BUNDLE: &str = "caBundle";
const SERVING: &str = "serving certificate";

fn role(InputCert { input, is_chained, cert }: &InputCert<'_>) -> &'static str {
    match input.name.as_str() {
        CA_CERT => "current CA",
        NEXT_CA_CERT => "next CA",
        PREVIOUS_CA_CERT => "previous CA",
        BUNDLE => "trusted certificate",
        _ if *is_chained => "part of a chain",
        _ if cert.is_ca => "CA certificate",
        _ => SERVING,
    }
}

fn place(input: &InspectInput) -> String {
    let InspectInput { place, name, .. } = input;
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

fn display_names(cert: &Cert) -> String {
    if cert.names.is_empty() { cert.subject.clone() } else { cert.names.join(",") }
}

fn ders(certs: &[&InputCert<'_>]) -> Vec<CertificateDer<'static>> {
    certs.iter().map(|c| c.cert.der.clone()).collect()
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
