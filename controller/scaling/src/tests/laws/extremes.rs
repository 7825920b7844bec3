//! Every figure of an outcome is finite, for every valid snapshot.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use wva_crds::GoDuration;

use super::{assert_same, text};
use crate::snapshot::{
    AnalyzerName, ComputeBounds, Config, GpuCount, HpaTolerance, Inventory, Mode, Model, ModelSettings,
    Pending, QueueFigures, Replica, SaturationEntry, SchedulerQueue, Snapshot, Variant,
};
use crate::tests::generate::{Case, figure};
use crate::units::Amount;
use crate::{Outcome, decide};

pub(super) fn number() -> impl Strategy<Value = f64> {
    prop::sample::select(&[0.0, f64::MIN_POSITIVE, 1.0, 1000.0, 1e308, f64::MAX][..])
}

fn amount() -> impl Strategy<Value = Amount> {
    number().prop_map(figure)
}

fn share() -> impl Strategy<Value = f64> {
    prop::sample::select(&[0.0, f64::MIN_POSITIVE, 0.5, 1.0][..])
}

fn count() -> impl Strategy<Value = u32> {
    prop::sample::select(&[0, 1, 2, u32::MAX - 1, u32::MAX][..])
}

fn age() -> impl Strategy<Value = GoDuration> {
    // The longest duration of Go: 64 bits of nanoseconds.
    prop::sample::select(&[0, 60, 601, 9_223_372_036][..]).prop_map(GoDuration::from_secs)
}

fn replica() -> impl Strategy<Value = Replica> {
    (of(share()), of(number()), of(amount()), of(amount()), of(amount()), of(amount()), of(share())).prop_map(
        |(kv, queue, num_gpu_blocks, block_size, mean_input, mean_output, hit)| Replica {
            kv: kv.map(figure),
            queue: queue.map(figure),
            num_gpu_blocks,
            block_size,
            mean_input,
            mean_output,
            prefix_hit_rate: hit.map(figure),
            ..Replica::default()
        },
    )
}

fn variant() -> impl Strategy<Value = Variant> {
    let counts = (count(), of(count()), of(count()), of(count()), of(count()), count());
    let figures = (number(), of(amount()), of(amount()), of(amount()));
    let mode =
        prop_oneof![4 => Just(Mode::Auto), 1 => Just(Mode::Paused), 1 => count().prop_map(Mode::Fixed)];
    let ages = (of(age()), of(age()), of(vec(age(), 0..3)));
    let args = prop::sample::select(
        &[
            "",
            "--max-num-seqs=4294967295",
            "--num-gpu-blocks-override=999999999999T --max-num-batched-tokens=1",
        ][..],
    );
    (counts, figures, mode, ages, args, vec(replica(), 0..4)).prop_map(
        |(counts, figures, mode, ages, args, mut replicas)| {
            for (i, replica) in replicas.iter_mut().enumerate() {
                replica.pod = format!("p{i}");
            }
            let pending = |ages: Vec<GoDuration>| {
                ages.into_iter().map(|age| Pending { age, ..Pending::default() }).collect()
            };
            Variant {
                accelerator: Some("H100".to_owned()),
                cost: figure(figures.0),
                mode,
                current: counts.0,
                ready: counts.1,
                desired: counts.2,
                desired_age: ages.0,
                min: counts.3,
                max: counts.4,
                hpa_tolerance: figures.1.map(|t| HpaTolerance { up: t, down: t }),
                woken_ago: ages.1,
                remembered_capacity: figures.2,
                pending: ages.2.map(pending),
                running: figures.3,
                gpus_per_replica: GpuCount(counts.5),
                engine_args: vec![args.to_owned()],
                replicas,
                ..Variant::default()
            }
        },
    )
}

fn entry() -> impl Strategy<Value = SaturationEntry> {
    let analyzer = prop::sample::select(&[AnalyzerName::Percentage, AnalyzerName::Token][..]);
    let boundary = prop::sample::select(&[5e-324, 0.5][..]);
    (analyzer, share(), amount(), amount(), boundary).prop_map(|(analyzer, kv, queue, spare, boundary)| {
        SaturationEntry {
            analyzer_name: Some(analyzer),
            kv_cache_threshold: Some(figure(kv)),
            kv_spare_trigger: Some(figure(0.0)),
            queue_length_threshold: Some(queue),
            queue_spare_trigger: Some(spare),
            scale_up_threshold: Some(figure(boundary * 2.0)),
            scale_down_boundary: Some(figure(boundary)),
            ..SaturationEntry::default()
        }
    })
}

fn extreme_case() -> impl Strategy<Value = Case> {
    let queue = of((amount(), amount()));
    let remembered = vec(vec(amount(), 0..12), 0..2);
    let stock = of(prop::sample::select(&[0, 1, u64::MAX][..]));
    (vec(variant(), 1..3), queue, remembered, stock, entry()).prop_map(
        |(mut variants, queue, remembered, stock, entry)| {
            for (i, variant) in variants.iter_mut().enumerate() {
                variant.name = format!("v{i}");
            }
            let known = |(size, bytes)| {
                SchedulerQueue::Known(QueueFigures { size, bytes, ..QueueFigures::default() })
            };
            let model = Model {
                model_id: "m".to_owned(),
                namespace: "ns".to_owned(),
                settings: ModelSettings { saturation: entry, ..ModelSettings::default() },
                scheduler_queue: queue.map_or(SchedulerQueue::Absent, known),
                variants,
                ..Model::default()
            };
            let bounds = |k2: &Vec<Amount>| ComputeBounds {
                namespace: "ns".to_owned(),
                model_id: "m".to_owned(),
                accelerator: "H100".to_owned(),
                output: crate::snapshot::OutputBucket::Long,
                k2: k2.clone(),
            };
            let config = Config {
                limited_mode: true,
                inventory: stock.map(|limit| [("H100".to_owned(), Inventory { limit, used: 0 })].into()),
                ..Config::default()
            };
            let remembered = remembered.first().map(bounds).into_iter().collect();
            Case(Snapshot { now: None, config, remembered, models: vec![model], ..Snapshot::default() })
        },
    )
}

/// True if all figures are finite. Others are `null` in JSON, and `inf` or `NaN` in a text.
pub(super) fn is_finite(outcome: &Outcome) -> bool {
    let figures = outcome.decisions.iter().flat_map(|decision| &decision.steps).all(|step| {
        let step = serde_json::to_value(step).unwrap();
        let whole = |figure: &serde_json::Value| !figure.is_null();
        step["figures"].as_object().is_some_and(|figures| figures.values().all(whole))
    });
    let all = text(outcome);
    let words = all.split(|c: char| !c.is_alphabetic()).all(|word| word != "inf" && word != "NaN");
    let next = outcome.next.variants.values().all(|state| state.capacity.is_none_or(f64::is_finite));
    figures && words && next
}

proptest! {
    #[test]
    fn figures_are_finite(case in extreme_case()) {
        let outcome = decide(&case);
        prop_assert_eq!(outcome.decisions.len(), case.models[0].variants.len());
        prop_assert!(is_finite(&outcome), "{}", text(&outcome));
    }

    #[test]
    fn extreme_snapshots_decide_the_same_from_a_file(case in extreme_case()) {
        let json = serde_json::to_string(&case.0).unwrap();
        let read = Snapshot::read(&mut serde_json::Deserializer::from_str(&json)).unwrap();
        assert_same(&decide(&read), &decide(&case))?;
    }
}
