//! Checks that clients accept what a CA signs, by signing and verifying a test certificate. `CA:TRUE` and a matching
//! key are not enough: Go also checks the usages, and the issuer name must equal the CA's byte for byte.

use std::time::Duration;

use jiff::Timestamp;
use x509_parser::prelude::X509Certificate;

use crate::ca::{Ca, CaDefect, SignError};
use crate::x509::verify;

const NAME: &str = "test.invalid";
const LIFE: Duration = Duration::from_mins(1);

pub(crate) fn check_ca(ca: &Ca, x509: &X509Certificate<'_>, now: Timestamp) -> Result<(), CaDefect> {
    check_usages(x509)?;
    let not_verified = |error: String| CaDefect::NotVerified { error };
    let signed = match ca.sign_test_cert(NAME, LIFE, now) {
        Ok(signed) => signed,
        // A wrong clock is not a defect of the CA.
        Err(SignError::Lifetime { .. }) => return Ok(()),
        Err(error) => return Err(not_verified(error.to_string())),
    };
    verify(&signed, &[], &[ca.cert().der().clone()], NAME, now).map_err(not_verified)
}

/// Go's requirements of a root certificate.
fn check_usages(x509: &X509Certificate<'_>) -> Result<(), CaDefect> {
    let usage = x509.key_usage().map_err(|_| CaDefect::Unreadable)?;
    if usage.is_some_and(|usage| usage.value.flags != 0 && !usage.value.key_cert_sign()) {
        return Err(CaDefect::KeyUsage);
    }
    let extended = x509.extended_key_usage().map_err(|_| CaDefect::Unreadable)?;
    if extended.is_some_and(|extended| !extended.value.any && !extended.value.server_auth) {
        return Err(CaDefect::ExtendedKeyUsage);
    }
    if x509.name_constraints().map_err(|_| CaDefect::Unreadable)?.is_some() {
        return Err(CaDefect::NameConstraints);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
