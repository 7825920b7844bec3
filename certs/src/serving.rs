//! Serving certificate behind a rustls resolver, and the TLS configuration of all servers. A swap applies to the next
//! handshake.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WantsServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use crate::BACKDATED;
use crate::ca::{Ca, SignError};
use crate::clients::AnyCertificate;

/// Error of a serving certificate or TLS server.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// Signing failed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// rustls rejected the certificate or the configuration.
    #[error("rustls rejected the {what}")]
    Rustls {
        /// Rejected part.
        what: &'static str,
        /// Error of rustls.
        #[source]
        source: rustls::Error,
    },
}

/// Serving certificate. One task writes it.
#[derive(Debug, Default)]
pub struct ServingCert {
    key: ArcSwapOption<CertifiedKey>,
    times: ArcSwapOption<CertTimes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CertTimes {
    pub(crate) issued: Timestamp,
    pub(crate) renew_at: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl ServingCert {
    /// Whether there is a certificate to serve with.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.key.load().is_some()
    }

    /// End of validity of the certificate in use.
    #[must_use]
    pub fn not_after(&self) -> Option<Timestamp> {
        self.times.load().as_ref().map(|times| times.not_after)
    }

    /// Whether to renew at `now`: no certificate is loaded, two thirds of its life (less a jitter) are over, or it is
    /// not valid yet.
    #[must_use]
    pub fn is_renewal_due(&self, now: Timestamp) -> bool {
        let due = |times: &CertTimes| now >= times.renew_at || times.issued.duration_since(now) > BACKDATED;
        self.times.load().as_ref().is_none_or(|times| due(times))
    }

    pub(crate) fn life(&self) -> Option<SignedDuration> {
        self.times.load().as_ref().map(|times| times.not_after.duration_since(times.issued))
    }

    /// Signs a new certificate and swaps it in.
    ///
    /// # Errors
    /// [`ServingError`]; the old certificate stays in use.
    pub fn renew(
        &self,
        ca: &Ca,
        names: &[String],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(), ServingError> {
        let signed = ca.sign_serving(names, lifetime, now)?;
        let (issued, not_after) = (signed.issued, signed.not_after);
        let times = CertTimes { issued, renew_at: renew_at(issued, not_after, random_share()), not_after };
        self.install(vec![signed.cert], signed.key, times)
    }

    /// Certificate in use, without its chain.
    #[cfg(test)]
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.key.load().as_ref().map(|key| key.cert[0].clone())
    }

    /// Swaps in a certificate with its chain.
    ///
    /// # Errors
    /// [`ServingError::Rustls`]; the old certificate stays in use.
    pub(crate) fn install(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        times: CertTimes,
    ) -> Result<(), ServingError> {
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
            .map_err(|source| ServingError::Rustls { what: "serving certificate", source })?;
        self.key.store(Some(Arc::new(key)));
        self.times.store(Some(Arc::new(times)));
        Ok(())
    }
}

impl ResolvesServerCert for ServingCert {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.load_full()
    }
}

/// Two thirds of the life, less up to a tenth of it, so that replicas do not renew at the same time. `share` of that
/// tenth: 0 to 1.
fn renew_at(issued: Timestamp, not_after: Timestamp, share: f64) -> Timestamp {
    let life = not_after.duration_since(issued).as_secs_f64();
    let wait = life * (2.0 / 3.0 - 0.1 * share.clamp(0.0, 1.0));
    SignedDuration::try_from_secs_f64(wait)
        .ok()
        .and_then(|wait| issued.checked_add(wait).ok())
        .unwrap_or(issued)
}

/// 0 to 1, from the keys of the standard library's hasher.
fn random_share() -> f64 {
    f64::from(u16::try_from(RandomState::new().build_hasher().finish() & 0xffff).unwrap_or_default())
        / 65536.0
}

/// TLS 1.2 and 1.3 without client certificates. ALPN: `http/1.1`, preceded by `h2` with `http2`.
///
/// # Errors
/// [`ServingError::Rustls`] if the provider lacks a protocol version.
pub fn server_config(
    resolver: Arc<dyn ResolvesServerCert>,
    http2: bool,
) -> Result<ServerConfig, ServingError> {
    Ok(finish(builder()?.with_no_client_auth(), resolver, http2))
}

/// Makes a configuration like [`server_config`] that requests a client certificate, which the caller verifies.
///
/// # Errors
/// As [`server_config`].
pub fn server_config_with_client_certs(
    resolver: Arc<dyn ResolvesServerCert>,
    http2: bool,
) -> Result<ServerConfig, ServingError> {
    let clients = Arc::new(AnyCertificate(aws_lc_rs::default_provider()));
    Ok(finish(builder()?.with_client_cert_verifier(clients), resolver, http2))
}

fn builder() -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, ServingError> {
    // Tests do not set the process-wide default.
    let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|source| ServingError::Rustls { what: "protocol versions", source })
}

fn finish(
    builder: rustls::ConfigBuilder<ServerConfig, WantsServerCert>,
    resolver: Arc<dyn ResolvesServerCert>,
    http2: bool,
) -> ServerConfig {
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols = if http2 { vec![b"h2".to_vec()] } else { Vec::new() };
    config.alpn_protocols.push(b"http/1.1".to_vec());
    config
}

#[cfg(test)]
mod tests;
