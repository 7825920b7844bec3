//! The most sequences that an engine runs at once, as its pods show it: while requests wait and the cache has room, it runs
//! as many as it may. Arguments can be out of sight, or overruled by the server.

use super::arrivals::EngineInterval;
use crate::snapshot::{Ceiling, Curve, Role};
use crate::units::amount;
use wva_objects::engine_args::EngineArgs;

/// Waiting requests of an engine that is full: fewer may be about to start.
const WAITING: f64 = 3.0;
/// Share of the KV cache above which an engine may wait for room in it.
const FULL_KV: f64 = 0.85;
/// Scrapes at the ceiling, less those below it, from which it counts, and their maximum.
const CONFIRMED: u32 = 4;
const MAX_SCORE: u32 = 12;
/// Scrapes of one ceiling differ by up to one request, or this share: some end just before a scrape.
const TOLERANCE: f64 = 0.05;

/// Prompts of a prefill pod wait for its tokens per step, not for a place.
pub(super) fn update<'a>(curve: &mut Curve, intervals: impl Iterator<Item = &'a EngineInterval>) {
    if curve.role != Some(Role::Prefill) {
        intervals.for_each(|interval| add(&mut curve.ceiling, interval));
    }
}

/// Prompts that wait for other reasons show any number of running sequences: then scrapes below the ceiling outweigh.
fn add(ceiling: &mut Ceiling, interval: &EngineInterval) {
    let running = interval.running_after;
    let is_full = interval.waiting >= WAITING && interval.kv < FULL_KV;
    let seqs = ceiling.seqs.get();
    let tolerance = (TOLERANCE * seqs).max(1.0);
    ceiling.most = amount(ceiling.most.get().max(running));
    if running > seqs + tolerance {
        *ceiling = Ceiling { seqs: amount(running), score: u32::from(is_full), ..*ceiling };
    } else if is_full && running >= seqs - tolerance {
        let score = (ceiling.score + 1).min(MAX_SCORE);
        *ceiling = Ceiling { seqs: amount(running.max(seqs)), score, ..*ceiling };
    } else if is_full {
        match ceiling.score {
            0 | 1 => *ceiling = Ceiling { seqs: amount(running), score: 1, ..*ceiling },
            score => ceiling.score = score - 1,
        }
    }
}

/// Concurrent sequences at which its engines stay while requests wait.
pub(super) fn shown_limit(curve: &Curve) -> Option<f64> {
    let Ceiling { seqs, score, .. } = curve.ceiling;
    (score >= CONFIRMED && seqs.get() >= 1.0).then(|| seqs.get())
}

/// Concurrent sequences that arguments state, unless more ran.
pub(super) fn credible_limit(curve: &Curve, args: &EngineArgs) -> f64 {
    let (told, most) = (args.max_seqs(), curve.ceiling.most.get());
    if most > told + (TOLERANCE * told).max(1.0) { args.usual_seqs().max(most) } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Curve after scrapes with these running and waiting requests.
    fn shown(scrapes: impl IntoIterator<Item = (f64, f64)>) -> Curve {
        let mut curve = Curve::default();
        for (running, waiting) in scrapes {
            let interval =
                EngineInterval { running_after: running, waiting, kv: 0.4, ..EngineInterval::default() };
            update(&mut curve, [interval].iter());
        }
        curve
    }

    #[test]
    fn replicas_that_wait_at_one_ceiling_show_the_limit() {
        for limit in [1.0, 8.0, 16.0, 64.0, 256.0] {
            let at_limit = |scrapes| shown(std::iter::repeat_n((limit, 5.0), scrapes));
            assert_eq!(shown_limit(&at_limit(4)), Some(limit));
            assert_eq!(shown_limit(&at_limit(3)), None, "{limit}: too few scrapes");
        }
        let some_ended = [8.0, 7.0, 8.0, 8.0, 7.0].map(|running| (running, 4.0));
        assert_eq!(shown_limit(&shown(some_ended)), Some(8.0));
    }

    #[test]
    fn an_exceeded_limit_rises_and_a_smaller_one_is_found() {
        let grown = [(8.0, 5.0); 6].into_iter().chain([(40.0, 0.0)]);
        assert_eq!(shown_limit(&shown(grown)), None);
        let fallen = [(40.0, 5.0); 6].into_iter().chain([(8.0, 5.0); 20]);
        assert_eq!(shown_limit(&shown(fallen)), Some(8.0));
    }

    #[test]
    fn prompts_that_wait_for_other_reasons_show_no_limit() {
        let scattered = [3.0, 9.0, 5.0, 14.0, 7.0, 11.0, 2.0, 8.0, 12.0, 4.0, 10.0, 6.0];
        let waits = scattered.into_iter().cycle().take(120).map(|running| (running, 8.0));
        assert_eq!(shown_limit(&shown(waits)), None);
        let mut full_cache = Curve::default();
        let interval =
            EngineInterval { running_after: 30.0, waiting: 9.0, kv: 0.9, ..EngineInterval::default() };
        update(&mut full_cache, [interval; 20].iter());
        assert_eq!(shown_limit(&full_cache), None);
    }

    #[test]
    fn what_ran_refutes_a_smaller_argument() {
        let args = EngineArgs::on("H100", &["--max-num-seqs=16".to_owned()]);
        let limit = |running| credible_limit(&shown([(running, 0.0)]), &args);
        assert!((limit(17.0) - 16.0).abs() < 1e-9, "within the tolerance");
        assert!((limit(40.0) - args.usual_seqs()).abs() < 1e-9);
        assert!((limit(4000.0) - 4000.0).abs() < 1e-9);
    }
}
