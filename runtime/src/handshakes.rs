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
    use rustls::{AlertDescription, Error, InvalidMessage};

    use super::*;

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
}
