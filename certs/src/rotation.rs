//! What is to be done with the Secret, as one pure function of what it holds, what this replica knows, the time and
//! whether it leads. A rotation has three steps, each one write that the next leader can go on from:
//!
//! 1. announce: the next CA stands beside the current one, and `caBundle`s get both;
//! 2. promote: every consumer was seen to carry both, so the next one signs from now on;
//! 3. forget: the previous CA leaves when it has expired, since nothing that it signed outlives it.
//!
//! The law behind all of it: a CA signs only once it is trusted, and is trusted as long as it may have signed. So a
//! replica that knows a good CA never lets go of it at once, whatever happens to the Secret: it writes it back as the
//! current one, and what was found or made anew becomes the next one.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use crate::ca::{Ca, CaCert, SignError, Why};
use crate::set::{CaSet, Found, MOST_PREVIOUS, over};

/// What a replica may do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role<'a> {
    /// Repair alone.
    Follower,
    /// The steps of a rotation as well.
    Leader {
        /// What every consumer of the bundle has carried for a while.
        trusted: &'a [CertificateDer<'static>],
    },
}

/// Who looks at the Secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaView<'a> {
    /// What it used so far.
    pub(crate) known: Option<&'a CaSet>,
    /// It has known a CA for a while, and is believed to have one that others trust. One that has just started may
    /// have found or made a CA that nobody knows, and takes another good one as it finds it.
    pub(crate) trusted_ca_established: bool,
    pub(crate) role: Role<'a>,
}

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecretView<'a> {
    /// The Secret; `None` where there is none.
    pub(crate) found: Option<&'a Found>,
    pub(crate) replica: ReplicaView<'a>,
    pub(crate) now: Timestamp,
}

/// A change of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// There was no Secret and nobody who knew a CA: the first one.
    Created,
    /// Step 1: a next CA stands beside the current one.
    Announced,
    /// Step 1 once more, as the next CA was spoilt.
    AnnouncedAgain(Why),
    /// Step 2: the next CA is the current one.
    Promoted,
    /// The same at once, as the current one could not be used any more.
    PromotedAtOnce(Why),
    /// Step 3: an expired CA left.
    Forgot,
    /// A useless entry left.
    Dropped(Why),
    /// The CA in use was written back.
    Restored(Why),
    /// Nothing could be kept: a new CA.
    Replaced(Why),
}

impl Change {
    /// What was wrong, where something was.
    pub(crate) fn why(&self) -> Option<&Why> {
        match self {
            Self::AnnouncedAgain(why)
            | Self::PromotedAtOnce(why)
            | Self::Dropped(why)
            | Self::Restored(why)
            | Self::Replaced(why) => Some(why),
            Self::Created | Self::Announced | Self::Promoted | Self::Forgot => None,
        }
    }

    /// Something was wrong, rather than due.
    pub(crate) fn is_a_repair(&self) -> bool {
        self.why().is_some()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => f.write_str("Created a new CA, as there was none."),
            Self::Announced => f.write_str(
                "Rotation, step 1 of 3: announced the next CA. The current one goes on signing until everybody \
                 trusts both.",
            ),
            Self::AnnouncedAgain(why) => write!(f, "Announced the next CA once more: {why}."),
            Self::Promoted => f.write_str(
                "Rotation, step 2 of 3: everybody trusts the next CA, which signs from now on. The previous one \
                 stays trusted until it expires.",
            ),
            Self::PromotedAtOnce(why) => write!(f, "The next CA signs at once: {why}."),
            Self::Forgot => {
                f.write_str("Rotation, step 3 of 3: the previous CA has expired and is trusted no more.")
            }
            Self::Dropped(why) => write!(f, "Cleaned the Secret: {why}."),
            Self::Restored(why) => write!(
                f,
                "Wrote back the CA in use: {why}. Another one is announced and takes over once everybody trusts it."
            ),
            Self::Replaced(why) => write!(f, "Replaced the CA: {why}."),
        }
    }
}

/// What to write, if anything.
pub(crate) fn decide(view: SecretView<'_>) -> Option<Change> {
    match view.found {
        None => Some(view.without_secret()),
        Some(found) => match &found.current {
            Err(why) => Some(view.without_current(found, why.clone())),
            Ok(_) if view.is_unannounced(found) => Some(Change::Restored(Why::Unannounced)),
            Ok(current) => view.due(found, current.cert()),
        },
    }
}

impl<'a> SecretView<'a> {
    fn without_secret(self) -> Change {
        if self.usable_known().is_some() {
            Change::Restored(Why::NoSecret)
        } else if self.successor().is_some() {
            Change::PromotedAtOnce(Why::NoSecret)
        } else {
            Change::Created
        }
    }

    fn without_current(self, found: &Found, why: Why) -> Change {
        match (self.usable_known(), found.good_next()) {
            (Some(known), Some(next)) if next.cert() == known.current.cert() => Change::PromotedAtOnce(why),
            (Some(_), _) => Change::Restored(why),
            (None, _) if self.successor().is_some() => Change::PromotedAtOnce(why),
            (None, _) => Change::Replaced(why),
        }
    }

    /// The leader's steps.
    fn due(self, found: &Found, current: &CaCert) -> Option<Change> {
        let Role::Leader { trusted } = self.replica.role else { return None };
        let due = self.now >= current.rotate_at();
        match &found.next {
            None if due => return Some(Change::Announced),
            Some(Err(why @ Why::Doubled { .. })) if !due => return Some(Change::Dropped(why.clone())),
            Some(Err(why)) => return Some(Change::AnnouncedAgain(why.clone())),
            Some(Ok(next)) if [current, next.cert()].iter().all(|ca| trusted.contains(ca.der())) => {
                return Some(Change::Promoted);
            }
            None | Some(Ok(_)) => {}
        }
        match &found.previous_flaw {
            None => None,
            Some(Why::Expired { .. }) => Some(Change::Forgot),
            Some(why) => Some(Change::Dropped(why.clone())),
        }
    }

    /// A good Secret without the CA in use: to sign from it at once would be to serve what nobody trusts.
    fn is_unannounced(self, found: &Found) -> bool {
        self.replica.trusted_ca_established
            && self.usable_known().is_some_and(|known| !found.names(known.current.cert()))
    }

    /// What this replica knows, while its CA is valid. One that is not valid yet is of no more use than one that has
    /// expired: the clock was set back, and to write it back would be to find it bad again, for ever.
    fn usable_known(self) -> Option<&'a CaSet> {
        self.replica.known.filter(|known| known.current.cert().valid_at(self.now))
    }

    /// The CA that was to sign next: the Secret's, or the one remembered.
    fn successor(self) -> Option<&'a Arc<Ca>> {
        let remembered = self.replica.known.and_then(|known| known.next.as_ref());
        self.found.and_then(Found::good_next).or_else(|| remembered.filter(|ca| ca.cert().valid_at(self.now)))
    }

    /// The set to use where nothing is written: the Secret's, and what this replica trusted so far. Others may still sign
    /// with a CA that is gone from the Secret, and are about to write it back.
    pub(crate) fn kept(self) -> Option<CaSet> {
        let set = self.found?.set().ok()?;
        let previous = self.previous_beside(&set.current, set.next.as_ref());
        Some(CaSet { previous, ..set })
    }

    /// The set to write for `change`; `fresh` makes a CA.
    ///
    /// # Errors
    /// Those of `fresh`.
    pub(crate) fn after(
        self,
        change: &Change,
        fresh: impl FnOnce() -> Result<Ca, SignError>,
    ) -> Result<CaSet, SignError> {
        let fresh = || fresh().map(Arc::new);
        let current = self.found.and_then(|found| found.current.as_ref().ok()).cloned();
        let next = self.found.and_then(Found::good_next).cloned();
        let (current, next) = match change {
            Change::Created | Change::Replaced(_) => (fresh()?, None),
            Change::Promoted | Change::PromotedAtOnce(_) => {
                (self.successor().cloned().map_or_else(fresh, Ok)?, None)
            }
            Change::Restored(_) => match self.usable_known() {
                Some(known) => (known.current.clone(), Some(self.next_beside(known).map_or_else(fresh, Ok)?)),
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
        let mut previous = self.previous_beside(&current, next.as_ref());
        previous.retain(|cert| !self.is_left_out(change, cert));
        Ok(CaSet { current, next, previous })
    }

    /// Whether an earlier CA is not to be found in the Secret beside one that signs without having been announced, so
    /// that a replica that still has its key writes it back, and no review fails: one that is there would be taken for
    /// a rotation's, whose new CA everybody trusts. That is the current CA that gave way, and whatever else is found by
    /// one whose own CA nobody may know. Not where a CA is only not valid yet: to others it is good, the clocks
    /// disagree, and each would overwrite the other.
    fn is_left_out(self, change: &Change, cert: &CaCert) -> bool {
        let at_once = match change {
            Change::Restored(_) if self.replica.trusted_ca_established => None,
            Change::Replaced(why) | Change::PromotedAtOnce(why) | Change::Restored(why) => Some(why),
            _ => None,
        };
        let is_at_once = at_once.is_some_and(|why| !matches!(why, Why::NotYetValid { .. }));
        let announced = self.replica.trusted_ca_established && self.usable_known().is_some();
        let knows = self.replica.known.is_some_and(|known| known.certs().any(|known| known == cert));
        let gave_way = self.found.is_some_and(|found| found.current_cert.as_ref() == Some(cert));
        is_at_once && self.now < cert.not_after() && !knows && (gave_way || !announced)
    }

    /// What becomes the next CA where the known one is written back: the good one that was found, else the one that
    /// was announced before. Not one that has had its time.
    fn next_beside(self, known: &CaSet) -> Option<Arc<Ca>> {
        let found = self.found.and_then(|found| found.current.as_ref().ok());
        let candidates = found.into_iter().chain(self.successor()).chain(&known.next);
        candidates
            .filter(|ca| ca.cert().valid_at(self.now) && ca.cert() != known.current.cert())
            .find(|ca| !known.previous.contains(ca.cert()))
            .cloned()
    }

    /// Every other certificate that somebody may still need: trusting one too many for its lifetime breaks nothing.
    fn previous_beside(self, current: &Arc<Ca>, next: Option<&Arc<Ca>>) -> Vec<CaCert> {
        let signs = |cert: &CaCert| cert == current.cert() || next.is_some_and(|next| next.cert() == cert);
        let found = self
            .found
            .into_iter()
            .flat_map(|found| found.current_cert.iter().chain(&found.previous).chain(&found.early_next));
        let known = self.replica.known.into_iter().flat_map(CaSet::certs);
        let mut previous: Vec<CaCert> = Vec::new();
        for cert in found.chain(known) {
            if !signs(cert) && !over(cert, self.now) && !previous.contains(cert) {
                previous.push(cert.clone());
            }
        }
        previous.truncate(MOST_PREVIOUS);
        previous
    }
}

#[cfg(test)]
mod tests;
