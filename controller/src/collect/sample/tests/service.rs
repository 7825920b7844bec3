//! Whether a server serves: its queues, its sleep and its progress.

use super::*;

#[test]
fn queues_of_a_disaggregated_server_are_added() {
    let mut s = Samples::default();
    let of = |metric: &str, value: &'static str| (pod_metric("a", metric), value);
    let round = || {
        let bootstrap = of("sglang:num_prefill_bootstrap_queue_reqs", "110");
        let inflight = of("sglang:num_prefill_inflight_queue_reqs", "8");
        let transfer = of("sglang:num_decode_transfer_queue_reqs", "1");
        let (queue, running) = (of("sglang:num_queue_reqs", "3"), of("sglang:num_running_reqs", "2"));
        vec![answer(Query::Running, &[bootstrap, inflight, queue, running, transfer])]
    };
    // A second round starts from its own values.
    for _ in 0..2 {
        s.add_round(Instant::now(), round());
        let values = [only(&s).running, only(&s).waiting, only(&s).queue()].map(|o| o.map(|o| o.value));
        assert_eq!(values, [Some(11.0), Some(113.0), Some(113.0)]);
    }
}

#[test]
fn a_server_sleeps_until_an_answer_without_its_row() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let round = |awake: Option<&'static str>| {
        let running = Some((pod_metric("a", "vllm:num_requests_running"), "0"));
        let awake = awake.map(|share| (pod_signal("a", "awake"), share));
        let age = Some((pod_signal("a", "age"), "0"));
        vec![answer(Query::Running, &[running, awake, age].into_iter().flatten().collect::<Vec<_>>())]
    };
    for (answers, sleep) in [
        (round(None), EngineSleep::Awake),
        (round(Some("0")), EngineSleep::All),
        (vec![failed(Query::Running)], EngineSleep::All),
        (round(Some("0.5")), EngineSleep::Some),
        (round(None), EngineSleep::Awake),
    ] {
        s.add_round(t0, answers);
        assert_eq!(only(&s).sleep, sleep);
    }
    s.add_round(t0, round(Some("0")));
    let load = only(&s);
    assert_eq!(load.since(t0 + seconds(1)).sleep, EngineSleep::Awake, "an earlier pod of this name slept");
    let awake = PodLoad::default();
    for (servers, sleep) in [
        ([load, load], EngineSleep::All),
        ([load, awake], EngineSleep::Some),
        ([awake, awake], EngineSleep::Awake),
    ] {
        assert_eq!(PodLoad::combine(&servers.map(|load| (load, 1.0)), t0).sleep, sleep);
    }
}

/// Rounds with requests, waiting requests and the sum of all counters; each a minute after the one before.
fn after_rounds(rounds: &[(&str, &str, &str)]) -> PodLoad {
    let (t0, mut s) = (Instant::now(), Samples::default());
    for (minute, (running, waiting, counters)) in (0..).zip(rounds) {
        let [running, waiting] =
            [("vllm:num_requests_running", running), ("vllm:num_requests_waiting", waiting)]
                .map(|(metric, value)| (pod_metric("a", metric), *value));
        let in_flight = answer(Query::Running, &[running, waiting, (pod_signal("a", "age"), "0")]);
        let progress = answer(Query::Tokens, &[(pod_signal("a", "progress"), *counters)]);
        s.add_round(t0 + seconds(60 * minute), vec![progress, in_flight]);
    }
    only(&s)
}

#[test]
fn a_server_is_stalled_after_ten_minutes_without_progress() {
    let stalled = |rounds: &[_]| after_rounds(rounds).stalled_for().map(|time| time.as_secs());
    let hung = ("1", "14", "500");
    assert_eq!(stalled(&[hung; 10]), None, "nine minutes");
    assert_eq!(stalled(&[hung; 11]), Some(600));
    assert_eq!(stalled(&[("0", "14", "500"); 13]), Some(720), "it only waits");
    assert_eq!(stalled(&[("0", "0", "500"); 13]), None, "it is idle");
    for (other, why) in [(("1", "14", "501"), "a counter moved"), (("0", "0", "500"), "it was idle")] {
        let mut rounds = vec![hung; 20];
        rounds[12] = other;
        assert_eq!(stalled(&rounds), None, "{why}");
    }
}

#[test]
fn one_busy_server_that_progresses_is_enough() {
    let (hung, busy) = ([("1", "14", "500"); 13], [("1", "0", "1"), ("1", "0", "2")]);
    let (hung, busy) = (after_rounds(&hung), after_rounds(&busy));
    let idle = after_rounds(&[("0", "0", "7")]);
    let stalled = |servers: [PodLoad; 2]| {
        PodLoad::combine(&servers.map(|load| (load, 1.0)), Instant::now()).stalled_for().is_some()
    };
    assert_eq!([[hung, hung], [hung, idle], [hung, busy]].map(stalled), [true, true, false]);
    let replaced = hung.since(Instant::now() + seconds(60 * 5));
    assert_eq!(replaced.stalled_for(), None, "a new pod of the same name");
}
