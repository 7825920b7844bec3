//! Faults of the CA in the Secret.

use jiff::Timestamp;

/// Maximum size of a CA certificate, in bytes of DER. Those of wva have less than 500.
pub(crate) const MAX_CERT_BYTES: usize = 8 << 10;

/// Defect because of which clients reject what the CA signs. Go and rustls require more than `CA:TRUE`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaDefect {
    /// A relevant extension is not readable or occurs twice.
    #[error("one of its extensions is not readable")]
    Unreadable,
    /// The key usage of the CA lacks `keyCertSign`.
    #[error("its key usage does not allow signing certificates (keyCertSign)")]
    KeyUsage,
    /// The extended key usage of the CA lacks `serverAuth`.
    #[error("its extended key usage does not include serverAuth")]
    ExtendedKeyUsage,
    /// The CA has name constraints.
    #[error("its name constraints may exclude the names of this Service")]
    NameConstraints,
    /// A test certificate that it signed does not verify.
    #[error("a certificate that it signed does not verify against it ({error})")]
    NotVerified {
        /// Error of the verifier.
        error: String,
    },
}

/// Fault of the Secret that requires a write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaFault {
    /// The Secret does not exist.
    #[error("the Secret does not exist")]
    NoSecret,
    /// The current CA was not announced. Clients would reject the certificates in use.
    #[error("it had another CA that was not announced as the next one")]
    Unannounced,
    /// An entry is missing or empty.
    #[error("entry {entry} is missing or empty")]
    Missing {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// An entry is not PEM of exactly one certificate.
    #[error("entry {entry} is not exactly one X.509 certificate in PEM")]
    NotACertificate {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// The certificate is not one of a CA.
    #[error("the certificate in entry {entry} is not a CA certificate")]
    NotACa {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// The certificate is too large for the bundles.
    #[error(
        "the certificate in entry {entry} has {length} bytes; at most {MAX_CERT_BYTES} are allowed: use one with \
         fewer names and extensions"
    )]
    TooLong {
        /// Key within the Secret's data.
        entry: &'static str,
        /// Length of its DER.
        length: usize,
    },
    /// The key is not readable. The text never contains it.
    #[error("entry {entry} is not a private key in PEM")]
    NotAKey {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// The key belongs to another certificate.
    #[error("the private key in entry {entry} does not match the certificate")]
    KeyMismatch {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// Clients would reject what the CA signs.
    #[error("the CA in entry {entry} is not usable: {defect}")]
    CannotSign {
        /// Key within the Secret's data.
        entry: &'static str,
        /// Defect of the CA.
        defect: CaDefect,
    },
    /// The next CA is the current one.
    #[error("entry {entry} repeats the current CA")]
    Duplicate {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// The certificate expired.
    #[error("the certificate in entry {entry} expired at {not_after}")]
    Expired {
        /// Key within the Secret's data.
        entry: &'static str,
        /// End of validity.
        not_after: Timestamp,
    },
    /// The certificate is not valid yet. New CAs are backdated, so a clock is wrong.
    #[error(
        "the certificate in entry {entry} is not valid before {not_before}: compare the clocks of the nodes"
    )]
    NotYetValid {
        /// Key within the Secret's data.
        entry: &'static str,
        /// Start of validity.
        not_before: Timestamp,
    },
}

impl CaFault {
    /// Whether a replica with another clock may not see the fault.
    pub(crate) fn is_clock_dependent(&self) -> bool {
        matches!(self, Self::Expired { .. } | Self::NotYetValid { .. })
    }
}
