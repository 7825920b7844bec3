//! Whether anybody would accept what a CA signs. `CA:TRUE` and a key that matches are not enough: an API server (Go)
//! judges the usages of the CA as well, and names that are signed have to be, byte by byte, those of the CA. So one
//! certificate is signed and verified before a CA is called good.

use std::time::Duration;

use jiff::Timestamp;
use x509_parser::prelude::X509Certificate;

use crate::ca::{Ca, SignError, Unfit};
use crate::x509::verify;

/// Nobody asks for this name.
const NAME: &str = "trial.invalid";
/// It is never served.
const LIFE: Duration = Duration::from_mins(1);

/// Judges a CA that is valid at `now`; `x509` is its certificate.
pub(crate) fn judge(ca: &Ca, x509: &X509Certificate<'_>, now: Timestamp) -> Result<(), Unfit> {
    usages(x509)?;
    let refused = |refusal: String| Unfit::Trial { refusal };
    let signed = match ca.sign_trial(NAME, LIFE, now) {
        Ok(signed) => signed,
        // The clock cannot be right, which is not the CA's fault.
        Err(SignError::Lifetime { .. }) => return Ok(()),
        Err(error) => return Err(refused(error.to_string())),
    };
    verify(&signed, &[], &[ca.cert().der().clone()], NAME, now).map_err(refused)
}

/// What Go asks of a root: where it has a key usage it may sign, and where it has an extended one that is for servers
/// too.
fn usages(x509: &X509Certificate<'_>) -> Result<(), Unfit> {
    let usage = x509.key_usage().map_err(|_| Unfit::Unreadable)?;
    if usage.is_some_and(|usage| usage.value.flags != 0 && !usage.value.key_cert_sign()) {
        return Err(Unfit::KeyUsage);
    }
    let extended = x509.extended_key_usage().map_err(|_| Unfit::Unreadable)?;
    if extended.is_some_and(|extended| !extended.value.any && !extended.value.server_auth) {
        return Err(Unfit::ExtendedKeyUsage);
    }
    if x509.name_constraints().map_err(|_| Unfit::Unreadable)?.is_some() {
        return Err(Unfit::NameConstraints);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
