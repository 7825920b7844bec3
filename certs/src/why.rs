//! What can be wrong with a CA that is found in the Secret, in words for events and logs.

use jiff::Timestamp;

/// Longest certificate of a CA, in bytes of DER. Ours have less than 500.
pub(crate) const MOST_BYTES: usize = 8 << 10;

/// Why nobody would accept what a CA signs. An API server (Go) and rustls ask for more than `CA:TRUE`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// An extension that has to be judged cannot be read, or stands there twice.
    #[error("one of its extensions cannot be read")]
    Unreadable,
    /// It has a key usage without `keyCertSign`.
    #[error("its key usage does not allow it to sign certificates (keyCertSign)")]
    KeyUsage,
    /// It has an extended key usage without `serverAuth`, which binds what it signs.
    #[error("its extended key usage leaves out servers (serverAuth)")]
    ExtendedKeyUsage,
    /// It is not for all names.
    #[error("its name constraints may leave out the names of this Service")]
    NameConstraints,
    /// The certificate that was signed to try it was refused.
    #[error("a certificate that it signed does not verify against it ({refusal})")]
    Trial {
        /// What the verifier said.
        refusal: String,
    },
}

/// Why what a Secret holds is not what it should be. Each one means that something has to be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// There is no Secret.
    #[error("the Secret does not exist")]
    NoSecret,
    /// A good CA that nobody announced: what is served now would not be trusted by those who trust it alone.
    #[error("it held another CA, which had not been announced as the next one")]
    Unannounced,
    /// An entry is absent or empty.
    #[error("entry {entry} is absent or empty")]
    Missing {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// An entry is no PEM of exactly one certificate.
    #[error("entry {entry} is not exactly one X.509 certificate in PEM")]
    NotACertificate {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// The certificate may not sign others.
    #[error("the certificate of entry {entry} is not a CA's")]
    NotACa {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// Longer than any CA needs: every bundle and every Secret would carry it.
    #[error(
        "the certificate of entry {entry} has {length} bytes, and the most is {MOST_BYTES}: use one with fewer names and extensions"
    )]
    TooLong {
        /// Key within the Secret's data.
        entry: &'static str,
        /// Length of its DER.
        length: usize,
    },
    /// The key cannot be read. What it holds is never repeated.
    #[error("entry {entry} is not a private key in PEM")]
    NotAKey {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// The key belongs to another certificate.
    #[error("the private key of entry {entry} does not match the certificate")]
    KeyMismatch {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// A CA with its key, and all the same nobody would accept what it signs.
    #[error("the CA of entry {entry} cannot be used: {unfit}")]
    CannotSign {
        /// Key within the Secret's data.
        entry: &'static str,
        /// What is in the way.
        unfit: Unfit,
    },
    /// One CA in two places.
    #[error("entry {entry} holds the current CA once more")]
    Doubled {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// Its time is over.
    #[error("the certificate of entry {entry} expired at {not_after}")]
    Expired {
        /// Key within the Secret's data.
        entry: &'static str,
        /// End of its validity.
        not_after: Timestamp,
    },
    /// Its time has not come, though every CA is dated back an hour: somebody's clock is wrong.
    #[error(
        "the certificate of entry {entry} is not valid before {not_before}: compare the clocks of the nodes"
    )]
    NotYetValid {
        /// Key within the Secret's data.
        entry: &'static str,
        /// Begin of its validity.
        not_before: Timestamp,
    },
}

impl Why {
    /// It is the clock that speaks against the CA: another replica, with another clock, may see nothing wrong.
    pub(crate) fn is_a_date(&self) -> bool {
        matches!(self, Self::Expired { .. } | Self::NotYetValid { .. })
    }
}
