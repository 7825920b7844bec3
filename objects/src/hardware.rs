//! GPUs in a cluster: the table of extended resources and node labels, names of accelerators, and what pods and resource
//! claims request.

mod accelerator;
mod claims;
mod drivers;
mod memory;
mod names;
mod pods;
mod resources;

pub use accelerator::{NodeRequirement, derive_accelerator};
pub use claims::{DeviceRequests, GpuClasses, is_gpu_class, template_claim_gpus};
pub use drivers::{DRIVERS, Driver};
pub use memory::gpu_memory;
pub use names::{accelerator_key, normalize_accelerator};
pub use pods::{GpuCount, Gpus};
pub use resources::{
    GPU_RESOURCES, GpuResource, is_gpu_resource, partition_accelerator, product_labels, resource_row,
};
