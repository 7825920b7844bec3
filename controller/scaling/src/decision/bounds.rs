//! Bounds of a target.

/// Bounds of a variant in this cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest replicas. 0 if scale to zero lifts an HPA minimum of 1.
    pub min: u32,
    /// Most replicas. `None`: no bound.
    pub max: Option<u32>,
    /// 0 is allowed below `min`.
    pub idles_at_zero: bool,
}

impl Bounds {
    /// The maximum wins over the minimum.
    #[must_use]
    pub fn clamp(self, replicas: u32) -> u32 {
        if replicas == 0 && self.idles_at_zero { 0 } else { self.cut(replicas.max(self.min)) }
    }

    /// Replicas, at most the maximum.
    pub(crate) fn cut(self, replicas: u32) -> u32 {
        replicas.min(self.max.unwrap_or(u32::MAX))
    }
}
