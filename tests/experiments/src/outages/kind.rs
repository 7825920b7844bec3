//! Kinds of faults, and what must hold in each.

use std::time::Duration;

use super::{INTERVAL, STALE};

/// Kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Prometheus does not run.
    Down,
    /// Prometheus answers 503.
    Unavailable,
    /// Prometheus accepts requests and answers none.
    Hung,
    /// Frozen process: the kernel accepts connections, and Prometheus never answers.
    Frozen,
    /// Prometheus answers each query after five seconds.
    Slow,
    /// Prometheus answers every query with an empty result.
    Empty,
    /// Answers about other pods, from a cluster with the same namespaces and models.
    OtherPods,
    /// 401 to every query: the token expired.
    ExpiredToken,
    /// Prometheus presents a certificate of an unknown CA.
    WrongCertificate,
    /// The pods report NaN.
    NotANumber,
    /// All scrapes of pods fail, so that the metrics become stale.
    Stale,
    /// Scrapes of half the pods fail.
    Half,
    /// kube-apiserver stops, and starts again a third of the time later.
    ApiserverStopped,
    /// 429 to writes of statuses and to `/scale`.
    Throttled,
    /// 500 to writes of statuses and to `/scale`.
    WritesFail,
    /// Both replicas lose every connection to kube-apiserver every five seconds, watches included.
    WatchesCut,
    /// etcd is frozen for half of the time.
    EtcdFrozen,
    /// The disk of etcd is full: it refuses all writes.
    EtcdFull,
    /// etcd is put back to the state that it had when the fault began.
    EtcdRestored,
    /// The clock of the leader is an hour ahead of the other replica's, Prometheus' and the API server's.
    ClockAhead,
    /// The clock of the leader is an hour behind.
    ClockBehind,
    /// The leader is killed; its pod starts again a third of the time later.
    LeaderKilled,
    /// Ten times the reviews.
    ManyReviews,
    /// A rollout of the workload while half of its nodes are drained.
    RolloutAndDrain,
}

/// What happens to the load of a model while a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Falls to 1 % of the KV cache as the fault begins, and no metric shows it.
    FallsUnseen,
    /// Stays, until it falls as the fault ends.
    Stays,
    /// Rises as the fault begins, so that there are targets to write, and falls as the fault ends.
    Rises,
}

impl Kind {
    /// Faults that affect every model, and run one after the other.
    pub(super) const OF_ALL: [Self; 21] = [
        Self::Down,
        Self::Unavailable,
        Self::Hung,
        Self::Frozen,
        Self::Slow,
        Self::Empty,
        Self::OtherPods,
        Self::ExpiredToken,
        Self::WrongCertificate,
        Self::ApiserverStopped,
        Self::Throttled,
        Self::WritesFail,
        Self::WatchesCut,
        Self::EtcdFrozen,
        Self::EtcdFull,
        Self::EtcdRestored,
        Self::ClockAhead,
        Self::ClockBehind,
        Self::LeaderKilled,
        Self::ManyReviews,
        Self::RolloutAndDrain,
    ];
    /// Faults of pods affect one model each, and run in parallel.
    pub(super) const OF_PODS: [Self; 3] = [Self::NotANumber, Self::Stale, Self::Half];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Down => "Prometheus down",
            Self::Unavailable => "Prometheus 503",
            Self::Hung => "Prometheus hung",
            Self::Frozen => "Prometheus frozen",
            Self::Slow => "Prometheus slow, 5 s an answer",
            Self::Empty => "Prometheus empty",
            Self::OtherPods => "pods of another cluster",
            Self::ExpiredToken => "expired token",
            Self::WrongCertificate => "wrong certificate",
            Self::NotANumber => "pods report NaN",
            Self::Stale => "pods stale",
            Self::Half => "half the pods",
            Self::ApiserverStopped => "API server stopped",
            Self::Throttled => "429 to statuses and /scale",
            Self::WritesFail => "500 to statuses and /scale",
            Self::WatchesCut => "watches cut every 5 s",
            Self::EtcdFrozen => "etcd frozen",
            Self::EtcdFull => "etcd full",
            Self::EtcdRestored => "etcd of an older backup",
            Self::ClockAhead => "leader's clock an hour ahead",
            Self::ClockBehind => "leader's clock an hour behind",
            Self::LeaderKilled => "leader killed",
            Self::ManyReviews => "ten times the reviews",
            Self::RolloutAndDrain => "rollout and node drain",
        }
    }

    pub(super) fn load(self) -> Load {
        match self {
            Self::Throttled | Self::WritesFail => Load::Rises,
            Self::Down
            | Self::Unavailable
            | Self::Hung
            | Self::Frozen
            | Self::Empty
            | Self::OtherPods
            | Self::ExpiredToken
            | Self::WrongCertificate
            | Self::NotANumber
            | Self::Stale
            | Self::Half => Load::FallsUnseen,
            _ => Load::Stays,
        }
    }

    /// Time limit for the conditions to report it: two cycles after the program can detect it.
    pub(super) fn reported_within(self) -> Option<Duration> {
        let cycles = INTERVAL * 2;
        match self {
            Self::Down | Self::Unavailable | Self::ExpiredToken | Self::WrongCertificate => Some(cycles),
            // A query fails after its time-out.
            Self::Hung | Self::Frozen => Some(cycles + Duration::from_secs(10)),
            // A missing value counts as an outage once the last one is stale.
            Self::Empty | Self::OtherPods | Self::Stale => Some(cycles + STALE),
            // The one-minute maximum is valid until all samples of the minute are NaN.
            Self::NotANumber => Some(cycles + STALE + Duration::from_mins(1)),
            // The other half shows the load; the reason of each decision names the gap. The rest leave the metrics whole.
            _ => None,
        }
    }

    /// Whether the series must keep its value throughout. Elsewhere a leader may end, and the next one waits.
    pub(super) fn keeps_series(self) -> bool {
        self.load() == Load::FallsUnseen || matches!(self, Self::Slow | Self::ManyReviews)
    }

    /// Whether every review must get its verdict throughout: the API server, its store and a replica are there.
    pub(super) fn keeps_reviews(self) -> bool {
        !matches!(
            self,
            Self::ApiserverStopped
                | Self::EtcdFrozen
                | Self::EtcdFull
                | Self::EtcdRestored
                // A killed process answers no review that it had, and one that came before the Service knew.
                | Self::LeaderKilled
        )
    }
}
