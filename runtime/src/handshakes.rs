//! Log lines about failed TLS handshakes: one for each cause, at its start and each hour, because a caller that fails once
//! fails each time.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::repeats::RepeatCounter;
use crate::tls::TlsFault;

/// Failed handshakes of one server. The causes are few, whatever clients send.
#[derive(Debug, Default)]
pub(crate) struct HandshakeFaults(Mutex<BTreeMap<&'static str, RepeatCounter>>);

impl HandshakeFaults {
    /// A client that only connects and leaves, such as a health check, causes no warning.
    pub(crate) fn log(&self, error: &io::Error, served: &'static str) {
        let Some(remedy) = TlsFault::of(error).and_then(|fault| remedy(&fault)) else {
            tracing::debug!(%error, served, "TLS handshake failed");
            return;
        };
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stage) = counters.entry(remedy).or_default().record(true, Instant::now()) {
            tracing::warn!(%error, served, failures = stage.count(), "TLS handshakes fail: {remedy}");
        }
    }
}

/// `None`: nothing to do on this side.
fn remedy(fault: &TlsFault) -> Option<&'static str> {
    Some(match fault {
        TlsFault::NotTrustedByPeer => {
            "a client does not trust the certificate; check the caBundle of the webhook configurations and of the APIService, \
             and the CA of the ServiceMonitor"
        }
        TlsFault::Certificate | TlsFault::UnknownIssuer | TlsFault::OtherName(_) | TlsFault::Dates => {
            "the certificate of a client is not usable; if it is the API server's (--proxy-client-cert-file), issue it as \
             X.509 version 3"
        }
        TlsFault::NotTls => "a client does not speak TLS; use https for this port",
        TlsFault::Incompatible => "a client offers neither TLS 1.2 nor 1.3 with a known cipher",
        TlsFault::CertificateRequired => return None,
    })
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::server::ParsedCertificate;
    use rustls::{AlertDescription, Error, InvalidMessage};

    use super::*;

    /// `openssl x509 -req -signkey` without a file of extensions writes version 1, and Go accepts it of a client.
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBNTCB3QIUID0/eebiDcikWFlqaLE6fQ373CgwCgYIKoZIzj0EAwIwHTEbMBkG
A1UEAwwSZnJvbnQtcHJveHktY2xpZW50MCAXDTI2MTEzMDA4MDI1MFoYDzIxMjYx
MTA2MDgwMjUwWjAdMRswGQYDVQQDDBJmcm9udC1wcm94eS1jbGllbnQwWTATBgcq
hkjOPQIBBggqhkjOPQMBBwNCAATQyWfa6eJfiPziNAsXUDV7ER9iiTl+/MIvqiZJ
V8s60Ipqv9y5e88K3uK7WY/F4zFtehZyzOoW3pe3Q3Tlf3pIMAoGCCqGSM49BAMC
A0cAMEQCIEAMdoj6pz3QFd9eTfvyHK1VJKZlLAmrV8IiQxhhx417AiAMm7iw0bIE
rDP/hcsFaDf6m8WfDTB9PqxN1SuhbNA4gg==
-----END CERTIFICATE-----
";

    #[test]
    fn each_cause_has_one_counter() {
        let faults = HandshakeFaults::default();
        let of = |error: Error| io::Error::new(io::ErrorKind::InvalidData, error);
        for _ in 0..100 {
            faults.log(&of(Error::AlertReceived(AlertDescription::UnknownCA)), "tests");
            faults.log(&of(Error::AlertReceived(AlertDescription::BadCertificate)), "tests");
            faults.log(&of(Error::InvalidMessage(InvalidMessage::InvalidContentType)), "tests");
            faults.log(&io::ErrorKind::UnexpectedEof.into(), "tests");
        }
        assert_eq!(faults.0.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_certificate_of_version_1_gets_its_remedy() {
        let certificate = CertificateDer::from_pem_slice(VERSION_1.as_bytes()).unwrap();
        // The check of a handshake's signature parses the certificate in this way.
        let refused = ParsedCertificate::try_from(&certificate).err().unwrap();
        let error = io::Error::new(io::ErrorKind::InvalidData, refused);
        let remedy = TlsFault::of(&error).as_ref().and_then(remedy).unwrap();
        assert!(remedy.contains("X.509 version 3"), "{remedy}");
        assert!(error.to_string().contains("UnsupportedCertVersion"), "{error}");
    }
}
