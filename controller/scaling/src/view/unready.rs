//! Replicas that are not ready.

use std::time::Duration;

use super::saturating_u32;
use crate::snapshot::{Config, Pending, PendingState, Variant};

/// Time after which an unschedulable or crash-looping replica counts as stuck, and a held one as waiting for quota. It is
/// short: such a replica is not just slow.
const FAILING_GRACE: Duration = Duration::from_mins(1);

/// What a replica that is not ready means for the variant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UnreadyState {
    Starting,
    Stuck,
    WaitingForQuota,
}

impl UnreadyState {
    pub(super) fn count(variant: &Variant, config: &Config, state: Self) -> u32 {
        let all = variant.pending.iter().flatten();
        saturating_u32(all.filter(|pending| Self::of(pending, config) == state).count())
    }

    fn of(pending: &Pending, config: &Config) -> Self {
        let age = pending.age.get();
        match pending.state {
            // Kueue admits most pods within seconds.
            PendingState::WaitingForQuota if age > FAILING_GRACE => Self::WaitingForQuota,
            PendingState::Unschedulable | PendingState::CrashLooping if age > FAILING_GRACE => Self::Stuck,
            PendingState::WaitingForQuota => Self::Starting,
            _ if age > config.pending_grace.get() => Self::Stuck,
            _ => Self::Starting,
        }
    }
}
