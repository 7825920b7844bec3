//! Random memories of the throughput analyzer.

use proptest::prelude::*;
use wva_crds::GoDuration;

use super::figure;
use crate::snapshot::{
    Curve, Model, NeedPeak, PodHistory, Replica, Reserve, StepTimes, ThroughputMemory, Variant, WorkSample,
};
use crate::units::Amount;

/// Parameters of a memory of the throughput analyzer, one minute after its last step.
pub(super) fn parameters() -> impl Strategy<Value = (f64, f64, u32, u64, f64)> {
    let arrivals = prop::sample::select(&[0.0, 3.0, 15.0, 60.0][..]);
    // Below 0: a burst in every fourth step.
    let rising = prop::sample::select(&[0.0, 0.0, 0.3, 3.0, -1.0][..]);
    let samples = prop::sample::select(&[0_u32, 3, 4, 200][..]);
    let watched = prop::sample::select(&[60_u64, 600][..]);
    (arrivals, rising, samples, watched, prop::sample::select(&[0.0, 2.0, 9.0][..]))
}

pub(super) fn learned_of(
    model: &Model,
    (arrivals, rising, samples, watched, need): (f64, f64, u32, u64, f64),
) -> ThroughputMemory {
    let replicas = || model.variants.iter().flat_map(|v| &v.replicas);
    let pod = |replica: &Replica| {
        let last = *replica.work.last()?;
        let last = WorkSample { age: GoDuration::from_secs(5), ..last };
        let (name, is_slow) = (&*replica.pod, replica.pod.ends_with('1') && need > 0.0);
        Some(PodHistory { pod: name.into(), last, steps: 9, is_slow, ..PodHistory::default() })
    };
    let mut pods: Vec<PodHistory> = replicas().filter_map(pod).collect();
    pods.sort_by(|a, b| a.pod.cmp(&b.pod));
    pods.dedup_by(|a, b| a.pod == b.pod);
    let [a, b, c] = [0.02, 0.000_2, 0.000_1].map(figure::<Amount>);
    let curve = |v: &Variant| Curve {
        role: v.role,
        accelerator: v.accelerator.as_deref().unwrap_or("unresolved").into(),
        engine_args: v.engine_args.join(" ").into(),
        prior: StepTimes { a, b, c },
        samples: figure(f64::from(samples)),
        itl_out_of_reach: need > 2.0,
        ..Curve::default()
    };
    ThroughputMemory {
        model_id: model.model_id.clone(),
        namespace: model.namespace.clone(),
        age: GoDuration::from_secs(60),
        watched: GoDuration::from_secs(watched),
        arrivals: (0..12_u32)
            .map(|i| match i % 4 {
                _ if rising >= 0.0 => arrivals + f64::from(i) * rising * arrivals / 12.0,
                0 => 8.0 * arrivals,
                _ => 0.0,
            })
            .map(crate::units::amount)
            .collect(),
        needs: vec![NeedPeak { age: GoDuration::from_secs(100), replicas: figure(need) }],
        pods,
        input: (need > 0.0).then(|| figure(1000.0)),
        output: (need > 0.0).then(|| figure(500.0)),
        // Of a model with roles both are learned, or none.
        curves: model
            .variants
            .iter()
            .filter(|v| v.role.is_some())
            .chain(model.variants.first())
            .map(curve)
            .collect(),
        reserve: reserve(arrivals, samples),
        ..ThroughputMemory::default()
    }
}

/// Ratios about 1, and one of 8 that a burst needed.
fn reserve(arrivals: f64, samples: u32) -> Reserve {
    let requests = |i| figure(if i == 6 { 90.0 } else { f64::from(u8::from(i == 24)) });
    Reserve {
        usual: figure(arrivals / 15.0),
        steps: figure(f64::from(samples)),
        ratios: (0..32).map(requests).collect(),
        ..Reserve::default()
    }
}
