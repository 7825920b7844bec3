//! Sizes of KV caches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::collect::work::server_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheConfig {
    /// Blocks on the GPUs; at least 1.
    pub num_gpu_blocks: u32,
    /// Tokens per block; at least 1.
    pub block_size: u32,
}

/// Caches of the engines of one or several pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineCaches {
    pub smallest: CacheConfig,
    pub engines: u32,
}

/// Engines that share a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheScope {
    Engine,
    /// All engines of the server, each of which reports the sum.
    Server,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheRow {
    pub namespace: Arc<str>,
    /// Name of the pod, perhaps with the suffix of a rank.
    pub pod: Arc<str>,
    /// Engine, and the server in its pod after `@`; each empty if absent.
    pub engine: Arc<str>,
    pub cache: CacheConfig,
    pub scope: CacheScope,
}

/// Namespace and pod.
pub(crate) type CachePod = (Arc<str>, Arc<str>);

impl EngineCaches {
    #[must_use]
    pub(crate) fn join(self, other: Self) -> Self {
        Self {
            smallest: self.smallest.min_tokens(other.smallest),
            engines: self.engines.saturating_add(other.engines),
        }
    }

    /// Caches by pod. If an engine has several sizes, as after a restart, the smallest counts.
    pub(crate) fn by_pod(rows: Vec<CacheRow>) -> BTreeMap<CachePod, Self> {
        let mut servers: BTreeMap<(CachePod, Box<str>), Vec<CacheRow>> = BTreeMap::new();
        for row in rows {
            let pod = (row.namespace.clone(), row.pod.clone());
            servers.entry((pod, server_of(&row.engine).into())).or_default().push(row);
        }
        let mut pods: BTreeMap<CachePod, Self> = BTreeMap::new();
        for ((pod, _), rows) in servers {
            let Some(of_server) = Self::of_server(&rows) else { continue };
            pods.entry(pod).and_modify(|known| *known = known.join(of_server)).or_insert(of_server);
        }
        pods
    }

    fn of_server(rows: &[CacheRow]) -> Option<Self> {
        let engines: BTreeSet<&str> = rows.iter().map(|row| &*row.engine).collect();
        let engines = u32::try_from(engines.len()).unwrap_or(u32::MAX);
        let of_engine = |row: &CacheRow| match row.scope {
            CacheScope::Engine => row.cache,
            CacheScope::Server => row.cache.divided_by(engines),
        };
        let smallest = rows.iter().map(of_engine).reduce(CacheConfig::min_tokens)?;
        Some(Self { smallest, engines })
    }
}

impl CacheConfig {
    /// Cache whose size is known in tokens.
    pub(crate) const fn of_tokens(tokens: u32) -> Self {
        Self { num_gpu_blocks: tokens, block_size: 1 }
    }

    pub(crate) fn tokens(self) -> f64 {
        f64::from(self.num_gpu_blocks) * f64::from(self.block_size)
    }

    /// The one with fewer tokens.
    #[must_use]
    pub(crate) fn min_tokens(self, other: Self) -> Self {
        if self.tokens() <= other.tokens() { self } else { other }
    }

    /// Part of each of `engines`.
    fn divided_by(self, engines: u32) -> Self {
        Self { num_gpu_blocks: (self.num_gpu_blocks / engines.max(1)).max(1), ..self }
    }
}
