//! The reconciler: watch caches and Prometheus into a Snapshot, `wva_scaling::decide` into decisions, decisions into
//! gauges, status, events and the external metrics API. No policy lives here; whoever knows `Snapshot`, `Decision`
//! and `Published` knows this crate.

mod actuate;
mod age;
mod assemble;
pub mod auth;
mod bounds;
mod collect;
mod crd;
mod engine;
mod evidence;
pub mod external_metrics;
#[cfg(test)]
mod fixture;
mod gpus;
pub mod guard;
mod inventory;
mod leadership;
mod maps;
mod memory;
mod page;
mod pending;
mod picker;
mod pods;
mod published;
mod repeats;
mod report;
pub mod server;
mod tasks;
mod telemetry;
mod template;
mod variants;
mod watches;
mod workloads;

pub use actuate::{Actuator, Carrier, ModelServers, Refusals};
pub use age::age;
pub use collect::prometheus::{ClientError, Prometheus, PrometheusConfig};
pub use crd::{Undescribed, missing_fields, tell_of_old_crd};
pub use engine::{Actuation, CycleProgress, Engine, EngineConfig};
pub use leadership::{Election, Leadership, NotLeading, elect};
pub use maps::{Config, ConfigMaps, ConfigReloads, main_map};
pub use picker::{Asking, InferencePools, PickerConfig, PickerToken, Pickers};
pub use published::{Published, PublishedVariant, Reader};
pub use report::events::{self, Reporter};
pub use report::gauges::VariantSeries;
pub use report::notices::Notices;
pub use report::scraping::Scraped;
pub use report::status::StatusWriter;
#[cfg(debug_assertions)]
pub use tasks::Fault;
pub use tasks::{Ended, Tasks};
pub use telemetry::Telemetry;
pub use template::demanded as template_accelerator;
pub use variants::{
    Ownership, Reach, Sign, Unserved, Variant, is_excluded as namespace_is_excluded, nobody_serves,
};
pub use watches::{
    AutoscalerObservers, Cache, Limiter, NamespaceFacts, Observer, Scope, Sight, Synced, Watches,
};
pub use workloads::{accelerator as workload_accelerator, exists as workload_exists};

/// What benches measure; no part of the API.
#[doc(hidden)]
pub mod measured {
    use std::io::Read;

    use crate::collect::prometheus::answer::read;
    use crate::collect::signals::{Query, Rows};

    /// Pod and value of every series of an answer to the query for KV cache use, read as it arrives.
    ///
    /// # Errors
    /// Where it is no answer.
    pub fn rows(body: impl Read) -> Result<Vec<(std::sync::Arc<str>, f64)>, serde_json::Error> {
        let mut rows = Rows::of(Query::KvUsage);
        read(body, &mut rows)?;
        Ok(rows.pods.into_iter().map(|(_, key, value)| (key.pod, value)).collect())
    }
}

/// The present time as logs write it.
#[must_use]
pub fn now_rfc3339() -> String {
    jiff::Timestamp::now().to_string()
}
