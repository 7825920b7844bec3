//! Reasons of events, and the action of each: what wva did, or failed to do.

macro_rules! event_reasons {
    ($($(#[$doc:meta])* $name:ident => $action:literal,)*) => {
        /// Reason of an event. `docs/reference/events-conditions-reasons.md` has them in a table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventReason {
            $($(#[$doc])* $name,)*
        }

        impl EventReason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Text in the API.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// `action` of its events.
            #[must_use]
            pub const fn action(self) -> &'static str {
                match self {
                    $(Self::$name => $action,)*
                }
            }
        }
    };
}

event_reasons! {
    /// The target changed.
    ScalingDecision => "Decide",
    /// wva took the step from 0 replicas.
    ScaledFromZero => "Scale",
    /// The workload does not exist.
    TargetNotFound => "ResolveTarget",
    /// Replicas do not become ready.
    Stuck => "CheckReplicas",
    /// The replicas made no progress towards the target.
    NotCarriedOut => "CheckReplicas",
    /// A scheduling gate or a quota holds replicas back.
    WaitingForQuota => "CheckReplicas",
    /// No autoscaler follows the target.
    SignalNotFollowed => "CheckAutoscaler",
    /// The model needs more than the maximum of the variant.
    AtMaximum => "Limit",
    /// Fewer requests than `sloTarget` asks for were within the objectives.
    SloTargetMissed => "MeasureObjectives",
    /// No GPUs of its type are left.
    LimitedBy => "Limit",
    /// A ResourceQuota leaves too little.
    LimitedByQuota => "Limit",
    /// A model with a better priority gets the GPUs or the quota.
    YieldsTo => "Limit",
    /// The analysis failed, and the last target is held.
    SafetyNetActivated => "HoldTarget",
    /// A trouble that an event reported is over.
    Resolved => "Recover",
    /// Requests failed at an endpoint picker while the model woke.
    RequestsFailedDuringWake => "Wake",
    /// Requests would not wake the model.
    NotWakeable => "Wake",
    /// Pods cannot be marked before a scale-down.
    DeletionCostFailed => "SetDeletionCost",
    /// No controller manages the instance label of the variant.
    NotManaged => "Manage",
    /// An annotated autoscaler gets no variant, or the present one keeps its values.
    AnnotationsRefused => "ApplyAnnotations",
    /// The workload of an annotated autoscaler has another variant.
    AnnotationsNotUsed => "ApplyAnnotations",
    /// A change of a setting that needs a restart was refused or ignored.
    ImmutableConfigChangeRejected => "Reject",
    /// The CA changed.
    CertificateRotated => "RotateCertificate",
    /// The controller is no longer scraped.
    ServiceMonitorDeleted => "Watch",
}
