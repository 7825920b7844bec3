//! Decides the due change of the Secret. A rotation has three steps, each one write:
//!
//! 1. announce: the Secret gets a next CA, and `caBundle`s get both;
//! 2. promote: once every consumer has both, the next CA signs;
//! 3. forget: the previous CA is removed once it and all that it signed have expired.
//!
//! Invariant: a CA signs only once it is trusted, and is trusted as long as its certificates are valid. So a replica
//! writes its known valid CA back as the current one, whatever happens to the Secret, and the found CA becomes the
//! next.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use crate::ca::{Ca, CaCert, CaFault, SignError};
use crate::set::{CaSet, MAX_PREVIOUS, ParsedSecret, is_removable};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Role<'a> {
    Follower,
    Leader {
        /// Certificates that every consumer has had for the settle time.
        trusted: &'a [CertificateDer<'static>],
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaView<'a> {
    pub(crate) known: Option<&'a CaSet>,
    /// Whether it has known a CA for the settle time, so that others trust it. A replica that has just started may have
    /// one that no other replica knows, and adopts the CA of the Secret instead.
    pub(crate) trusted_ca_established: bool,
    pub(crate) role: Role<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SecretView<'a> {
    /// `None` if the Secret does not exist.
    pub(crate) found: Option<&'a ParsedSecret>,
    pub(crate) replica: ReplicaView<'a>,
    pub(crate) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Created the first CA.
    Created,
    /// Step 1.
    Announced,
    /// Step 1 again: the next CA was not valid.
    AnnouncedAgain(CaFault),
    /// Step 2.
    Promoted,
    /// Step 2 at once: the current CA was not usable.
    PromotedAtOnce(CaFault),
    /// Step 3.
    Forgot,
    /// Removed an invalid entry.
    Dropped(CaFault),
    /// Wrote the CA in use back.
    Restored(CaFault),
    /// Created a new CA: no known one was usable.
    Replaced(CaFault),
}

impl Change {
    pub(crate) fn fault(&self) -> Option<&CaFault> {
        match self {
            Self::AnnouncedAgain(fault)
            | Self::PromotedAtOnce(fault)
            | Self::Dropped(fault)
            | Self::Restored(fault)
            | Self::Replaced(fault) => Some(fault),
            Self::Created | Self::Announced | Self::Promoted | Self::Forgot => None,
        }
    }

    /// Whether the change repairs a fault.
    pub(crate) fn is_repair(&self) -> bool {
        self.fault().is_some()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => f.write_str("Created a new CA."),
            Self::Announced => f.write_str(
                "Rotation, step 1 of 3: announced the next CA. The current one keeps signing until all clients trust \
                 both.",
            ),
            Self::AnnouncedAgain(fault) => write!(f, "Announced the next CA again: {fault}."),
            Self::Promoted => f.write_str(
                "Rotation, step 2 of 3: the next CA signs from now on; all clients trust it. The previous one stays \
                 trusted until it expires.",
            ),
            Self::PromotedAtOnce(fault) => write!(f, "The next CA signs at once: {fault}."),
            Self::Forgot => f.write_str("Rotation, step 3 of 3: removed the previous CA, which has expired."),
            Self::Dropped(fault) => write!(f, "Removed an invalid entry from the Secret: {fault}."),
            Self::Restored(fault) => write!(
                f,
                "Wrote back the CA in use: {fault}. Announced another one, which signs once all clients trust it."
            ),
            Self::Replaced(fault) => write!(f, "Replaced the CA: {fault}."),
        }
    }
}

pub(crate) fn decide(view: SecretView<'_>) -> Option<Change> {
    match view.found {
        None => Some(view.change_without_secret()),
        Some(found) => match &found.current {
            Err(fault) => Some(view.change_without_current(found, fault.clone())),
            Ok(_) if view.is_unannounced(found) => Some(Change::Restored(CaFault::Unannounced)),
            Ok(current) => view.leader_step(found, current.cert()),
        },
    }
}

impl<'a> SecretView<'a> {
    fn change_without_secret(self) -> Change {
        if self.usable_known().is_some() {
            Change::Restored(CaFault::NoSecret)
        } else if self.successor().is_some() {
            Change::PromotedAtOnce(CaFault::NoSecret)
        } else {
            Change::Created
        }
    }

    fn change_without_current(self, found: &ParsedSecret, fault: CaFault) -> Change {
        match (self.usable_known(), found.valid_next()) {
            (Some(known), Some(next)) if next.cert() == known.current.cert() => Change::PromotedAtOnce(fault),
            (Some(_), _) => Change::Restored(fault),
            (None, _) if self.successor().is_some() => Change::PromotedAtOnce(fault),
            (None, _) => Change::Replaced(fault),
        }
    }

    fn leader_step(self, found: &ParsedSecret, current: &CaCert) -> Option<Change> {
        let Role::Leader { trusted } = self.replica.role else { return None };
        let due = self.now >= current.rotate_at();
        match &found.next {
            None if due => return Some(Change::Announced),
            Some(Err(fault @ CaFault::Duplicate { .. })) if !due => {
                return Some(Change::Dropped(fault.clone()));
            }
            Some(Err(fault)) => return Some(Change::AnnouncedAgain(fault.clone())),
            Some(Ok(next)) if [current, next.cert()].iter().all(|ca| trusted.contains(ca.der())) => {
                return Some(Change::Promoted);
            }
            None | Some(Ok(_)) => {}
        }
        match &found.previous_fault {
            None => None,
            Some(CaFault::Expired { .. }) => Some(Change::Forgot),
            Some(fault) => Some(Change::Dropped(fault.clone())),
        }
    }

    /// Whether the Secret is valid but lacks the CA in use.
    fn is_unannounced(self, found: &ParsedSecret) -> bool {
        self.replica.trusted_ca_established
            && self.usable_known().is_some_and(|known| !found.contains(known.current.cert()))
    }

    /// Known CAs, if the current one is valid. After writing back one that is not valid yet, the next check would find
    /// the same fault.
    fn usable_known(self) -> Option<&'a CaSet> {
        self.replica.known.filter(|known| known.current.cert().is_valid_at(self.now))
    }

    /// The next CA in the Secret, else the known one.
    fn successor(self) -> Option<&'a Arc<Ca>> {
        let known = self.replica.known.and_then(|known| known.next.as_ref());
        let valid_known = known.filter(|ca| ca.cert().is_valid_at(self.now));
        self.found.and_then(ParsedSecret::valid_next).or(valid_known)
    }

    /// The Secret's CAs and those that this replica trusted so far: other replicas may still sign with them.
    pub(crate) fn set_without_change(self) -> Option<CaSet> {
        let set = self.found?.set().ok()?;
        let previous = self.previous_certs(&set.current, set.next.as_ref());
        Some(CaSet { previous, ..set })
    }

    /// The set to write for `change`; `fresh` creates a CA.
    ///
    /// # Errors
    /// Errors of `fresh`.
    pub(crate) fn set_after(
        self,
        change: &Change,
        fresh: impl FnOnce() -> Result<Ca, SignError>,
    ) -> Result<CaSet, SignError> {
        let fresh = || fresh().map(Arc::new);
        let current = self.found.and_then(|found| found.current.as_ref().ok()).cloned();
        let next = self.found.and_then(ParsedSecret::valid_next).cloned();
        let (current, next) = match change {
            Change::Created | Change::Replaced(_) => (fresh()?, None),
            Change::Promoted | Change::PromotedAtOnce(_) => {
                (self.successor().cloned().map_or_else(fresh, Ok)?, None)
            }
            Change::Restored(_) => match self.usable_known() {
                Some(known) => {
                    (known.current.clone(), Some(self.next_after_restore(known).map_or_else(fresh, Ok)?))
                }
                None => (fresh()?, None),
            },
            Change::Announced | Change::AnnouncedAgain(_) => match current {
                Some(current) => {
                    let next = self.successor().filter(|ca| ca.cert() != current.cert()).cloned();
                    (current, Some(next.map_or_else(fresh, Ok)?))
                }
                None => (fresh()?, None),
            },
            Change::Forgot | Change::Dropped(_) => (current.map_or_else(fresh, Ok)?, next),
        };
        let mut previous = self.previous_certs(&current, next.as_ref());
        previous.retain(|cert| !self.is_left_out(change, cert));
        Ok(CaSet { current, next, previous })
    }

    /// Whether to leave a previous CA out of the Secret, next to a new CA that signs without announcement. A replica
    /// that still has its key writes it back, and no review fails. In the Secret, the change would look like a
    /// rotation, after which all clients trust the new CA.
    ///
    /// Left out are the replaced current CA, and all others if no other replica may know this replica's CA. One that is
    /// only not valid yet stays: replicas with other clocks consider it valid, and each would overwrite the other.
    fn is_left_out(self, change: &Change, cert: &CaCert) -> bool {
        let at_once = match change {
            Change::Restored(_) if self.replica.trusted_ca_established => None,
            Change::Replaced(fault) | Change::PromotedAtOnce(fault) | Change::Restored(fault) => Some(fault),
            _ => None,
        };
        let is_at_once = at_once.is_some_and(|fault| !matches!(fault, CaFault::NotYetValid { .. }));
        let announced = self.replica.trusted_ca_established && self.usable_known().is_some();
        let knows = self.replica.known.is_some_and(|known| known.certs().any(|known| known == cert));
        let gave_way = self.found.is_some_and(|found| found.current_cert.as_ref() == Some(cert));
        is_at_once && self.now < cert.not_after() && !knows && (gave_way || !announced)
    }

    /// The next CA after the known one was written back: the valid one that was found, else the one announced before.
    /// Never a previous one.
    fn next_after_restore(self, known: &CaSet) -> Option<Arc<Ca>> {
        let found = self.found.and_then(|found| found.current.as_ref().ok());
        let candidates = found.into_iter().chain(self.successor()).chain(&known.next);
        candidates
            .filter(|ca| ca.cert().is_valid_at(self.now) && ca.cert() != known.current.cert())
            .find(|ca| !known.previous.contains(ca.cert()))
            .cloned()
    }

    /// All other certificates that a client may need. An extra one does no harm.
    fn previous_certs(self, current: &Arc<Ca>, next: Option<&Arc<Ca>>) -> Vec<CaCert> {
        let signs = |cert: &CaCert| cert == current.cert() || next.is_some_and(|next| next.cert() == cert);
        let found = self
            .found
            .into_iter()
            .flat_map(|found| found.current_cert.iter().chain(&found.previous).chain(&found.early_next));
        let known = self.replica.known.into_iter().flat_map(CaSet::certs);
        let mut previous: Vec<CaCert> = Vec::new();
        for cert in found.chain(known) {
            if !signs(cert) && !is_removable(cert, self.now) && !previous.contains(cert) {
                previous.push(cert.clone());
            }
        }
        previous.truncate(MAX_PREVIOUS);
        previous
    }
}

#[cfg(test)]
mod tests;
