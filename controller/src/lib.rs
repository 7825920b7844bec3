//! The reconciler: assembles a `Snapshot`, passes it to `wva_scaling::decide`, and publishes the `Decision`s to
//! metrics, status, events and the external metrics API.

mod actuate;
mod collect;
mod config;
mod cycle;
#[cfg(test)]
mod fixture;
mod model;
mod observe;
mod publish;

pub use actuate::{Actuator, AnnotationSync, DeletionCosts, ModelServers, ScaleExecutor};
pub use collect::PrometheusSource;
pub use collect::page::PageBudget;
pub use collect::picker::{PickerConfig, PickerPoller, PickerTls, PickerToken, Pickers};
pub use collect::telemetry::Telemetry;
pub use config::{ConfigMaps, ConfigReloads, main_map, watch_config_maps};
pub use cycle::engine::{Actuation, CycleProgress, Engine, EngineConfig, EngineMetrics, Sources};
pub use model::conditions::ConditionDraft;
pub use model::published::{Published, PublishedVariant, Reader, StatusTargets};
pub use model::refusals::Refusals;
pub use observe::crd::report_crd;
pub use observe::metrics_api::watch_metrics_api;
pub use observe::pools::InferencePools;
pub use observe::variants::{Ownership, OwnershipView, is_excluded as namespace_is_excluded};
pub use observe::watches::{
    AutoscalerObservers, GpuWatchConfig, NamespaceFacts, Variant, Watches, watch_all, watch_inference_pools,
    watch_namespaces, watch_service_monitor, watch_variants,
};
pub use observe::workloads::{accelerator as workload_accelerator, exists as workload_exists};
pub use publish::events::{self, EventReporter};
pub use publish::external_metrics;
pub use publish::gauges::{OptionalSeries, VariantSeries};
pub use publish::leader_events::LeaderEvents;
pub use publish::packed_text::PackedText;
pub use publish::service_monitor::ServiceMonitorReporter;
pub use publish::status::StatusWriter;

/// Parts for benches; not part of the API.
#[doc(hidden)]
pub mod bench {
    use std::io::Read;
    use std::sync::Arc;

    use wva_runtime::prometheus::read;

    use crate::collect::filter::SeriesFilter;
    use crate::collect::signals::{Query, Rows};

    /// Pods whose series are read.
    #[derive(Debug)]
    pub struct ManagedPods(Arc<SeriesFilter>);

    impl ManagedPods {
        /// Reads pods by namespace and name.
        #[must_use]
        pub fn new(pods: impl IntoIterator<Item = (String, String)>) -> Self {
            let mut filter = SeriesFilter::default();
            for (namespace, pod) in pods {
                filter.add_model(&namespace, "m");
                filter.add_pod(&namespace, &pod, true);
            }
            Self(Arc::new(filter))
        }
    }

    /// Pod and value of each series of a KV cache usage answer.
    ///
    /// # Errors
    /// The text is not an answer of Prometheus.
    pub fn rows(body: impl Read, pods: &ManagedPods) -> Result<Vec<(Arc<str>, f64)>, serde_json::Error> {
        let mut rows = Rows::new(Query::KvUsage, pods.0.clone());
        read(body, &mut rows)?;
        Ok(rows.pods.into_iter().map(|(_, key, value)| (key.pod, value)).collect())
    }
}
