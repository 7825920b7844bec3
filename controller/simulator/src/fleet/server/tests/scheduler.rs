//! The scheduler's treatment of a few requests, step by step.

use super::*;

const fn request(arrived: f64, input: u32, output: u32) -> Request {
    Request { arrived, input, output }
}

#[track_caller]
fn at(got: f64, want: f64, what: &str) {
    assert!((got - want).abs() < 1e-9, "{what}: {got}, not {want}");
}

#[test]
fn a_lone_request_takes_its_prefill_and_a_step_a_token() {
    let engine = Engine { per_sequence: 0.0001, per_prompt_token: 0.00001, ..PLAIN };
    let (done, _) = served(engine, &[request(2.0, 500, 11)]);
    at(done[0].first_token, 2.0 + 0.001 + 0.005, "first token");
    at(done[0].ended, done[0].first_token + 10.0 * 0.0011, "last token");
}

#[test]
fn cached_tokens_make_each_step_longer_than_the_one_before() {
    let engine = Engine { per_cached_token: 1e-6, ..PLAIN };
    let (done, _) = served(engine, &[request(0.0, 100, 4)]);
    // The prompt is in the cache from its prefill on; each step adds a token to it.
    at(done[0].first_token, 0.001 + 100e-6, "first token");
    at(done[0].ended - done[0].first_token, 3.0 * 0.001 + (100.0 + 101.0 + 102.0) * 1e-6, "the rest");
}

#[test]
fn a_prompt_waits_for_the_step_and_delays_generation() {
    let engine = Engine { per_prompt_token: 0.00001, max_seqs: 2, ..PLAIN };
    let (done, _) = served(engine, &[request(0.0, 1, 100), request(0.0205, 1000, 2)]);
    // The first began with one prompt token, so steps end at 10 us after each millisecond.
    at(done[1].first_token, 0.021_01 + 0.011, "first token of the second");
    at(done[0].ended, 0.100_01 + 0.01, "last token of the first");
}

#[test]
fn a_prompt_above_the_budget_is_computed_in_chunks() {
    let engine = Engine { max_batched_tokens: 100, per_prompt_token: 0.0001, ..PLAIN };
    let (done, _) = served(engine, &[request(0.0, 250, 1)]);
    at(done[0].first_token, 3.0 * 0.001 + 250.0 * 0.0001, "three steps");
}

#[test]
fn the_prefix_cache_spares_computing_and_no_room() {
    let engine =
        Engine { prefix_hit_rate: 0.9, per_prompt_token: 0.0001, kv_blocks: 1500, max_seqs: 2, ..PLAIN };
    let (done, _) = served(engine, &[request(0.0, 1000, 10), request(0.001, 1000, 10)]);
    at(done[0].first_token, 0.001 + 100.0 * 0.0001, "a tenth is computed");
    assert!(done[1].first_token > done[0].ended, "both do not fit");
}

#[test]
fn a_sequence_without_room_loses_its_place_and_still_ends() {
    // Each needs 160 tokens in the end; 250 hold both at first.
    let engine = Engine { kv_blocks: 250, max_seqs: 2, ..PLAIN };
    let (done, server) = served(engine, &[request(0.0, 60, 100), request(0.0005, 60, 100)]);
    assert_eq!(server.counters.preemptions, 1);
    at(done[0].ended, 0.1, "the first is not disturbed");
    assert!(done[1].first_token < 0.003, "its first token was there before it lost its place");
    // Of its tokens it has made those of the steps in which there was room for both: (250 - 2 * 60 - 1) / 2, and the
    // first. In the step after the end of the first all of them are computed again, and the next one is generated.
    at(done[1].ended, 0.1 + (100.0 - 65.0) * 0.001, "the second makes the rest alone");
    assert_eq!((server.running(), server.waiting(), server.cached), (0, 0, 0), "all is given back");
}

#[test]
fn a_client_that_waited_too_long_is_gone_when_its_turn_comes() {
    let mut server = Server::new(PLAIN, 0.05);
    let mut finished = FinishedRequests::default();
    for arrived in [0.0, 0.001, 0.06] {
        server.push(request(arrived, 1, 100), arrived, &mut finished);
    }
    while server.next_event().is_finite() {
        server.advance(server.next_event(), &mut finished);
    }
    let in_full: Vec<f64> = finished.served.iter().map(|s| s.request.arrived).collect();
    assert_eq!(in_full, [0.0, 0.06]);
    assert_eq!(finished.timed_out, [request(0.001, 1, 100)]);
}

const BUSY: Engine = Engine {
    step: 0.02,
    per_sequence: 0.0003,
    per_prompt_token: 0.0001,
    per_cached_token: 1e-7,
    max_seqs: 16,
    max_batched_tokens: 700,
    block_size: 16,
    kv_blocks: 500,
    prefix_hit_rate: 0.2,
    tokens: StepTokens::ONE,
};

/// Many steps at one go are the same as one step after the other: who looks at each step finds tokens at the same times.
#[test]
fn jumping_over_steps_changes_nothing() {
    jumped_and_single(BUSY);
    jumped_and_single(Engine { tokens: StepTokens { min: 1, max: 4 }, max_batched_tokens: 900, ..BUSY });
}

fn jumped_and_single(engine: Engine) {
    let requests: Vec<Request> =
        (0..400_u32).map(|i| request(f64::from(i) * 0.37, 100 + 37 * (i % 23), 1 + 29 * (i % 17))).collect();
    let (jumped, _) = served(engine, &requests);
    let mut single = Vec::new();
    let mut server = Server::new(engine, f64::INFINITY);
    let mut finished = FinishedRequests::default();
    let mut pending = requests.iter().copied().peekable();
    loop {
        if let Some(batch) = &mut server.batch {
            batch.steps = 1;
        }
        let next = pending.peek().map_or(f64::INFINITY, |r| r.arrived);
        let event = server.next_event();
        if event.is_infinite() && next.is_infinite() {
            break;
        }
        if event <= next {
            server.advance(event, &mut finished);
        } else if let Some(request) = pending.next() {
            server.push(request, next, &mut finished);
        }
        single.append(&mut finished.served);
    }
    assert!(server.counters.preemptions > 0, "the load is such that the cache is full at times");
    single.sort_by(|a, b| a.request.arrived.total_cmp(&b.request.arrived));
    assert_eq!(jumped.len(), requests.len());
    for (a, b) in jumped.iter().zip(&single) {
        assert_eq!(a.request, b.request);
        assert!(
            (a.first_token - b.first_token).abs() < 1e-6 && (a.ended - b.ended).abs() < 1e-6,
            "{a:?} {b:?}"
        );
    }
}

#[test]
fn counters_show_what_was_done_within_a_batch_as_well() {
    let engine = Engine { per_prompt_token: 0.00001, ..PLAIN };
    let mut server = Server::new(engine, f64::INFINITY);
    let mut finished = FinishedRequests::default();
    server.push(request(0.0, 500, 11), 0.0, &mut finished);
    server.advance(server.next_event(), &mut finished);
    // The prompt took 6 ms and made a token; five steps later five more are there.
    let counters = server.counters(0.006 + 0.005);
    assert_eq!(
        (counters.prompt_tokens, counters.generated, counters.gaps, counters.requests),
        (500, 6, 5, 0)
    );
    at(counters.gap_seconds, 0.005, "between tokens");
    server.advance(server.next_event(), &mut finished);
    let counters = server.counters(1.0);
    assert_eq!((counters.generated, counters.gaps, counters.requests), (11, 10, 1));
    at(counters.gap_seconds, 0.010, "between tokens");
    at(counters.prefill_seconds, 0.006, "prefill");
}

#[test]
fn a_share_of_the_requests_is_not_counted_when_they_end() {
    let mut server = Server::new(PLAIN, f64::INFINITY).with_uncounted_share(0.25);
    let mut finished = FinishedRequests::default();
    for i in 0..8_u32 {
        server.push(request(f64::from(i), 1, 1), f64::from(i), &mut finished);
        server.advance(server.next_event(), &mut finished);
    }
    assert_eq!((finished.served.len(), server.counters(9.0).requests), (8, 6));
}

/// As vLLM counts with speculative decoding: tokens by tokens, but one latency for all that a step makes of a request.
#[test]
fn a_step_makes_several_tokens_of_a_sequence_and_one_latency() {
    let engine = Engine { tokens: StepTokens { min: 3, max: 3 }, ..PLAIN };
    let mut server = Server::new(engine, f64::INFINITY);
    let mut finished = FinishedRequests::default();
    server.push(request(0.0, 1, 12), 0.0, &mut finished);
    server.advance(server.next_event(), &mut finished);
    let counters = server.counters(0.003);
    assert_eq!((counters.generated, counters.gaps), (7, 2), "the first token, and two steps");
    server.advance(server.next_event(), &mut finished);
    // Of the eleven others the last step makes two, and one too many.
    at(finished.served[0].ended, 0.001 + 4.0 * 0.001, "the last token");
    let counters = server.counters(1.0);
    assert_eq!((counters.generated, counters.gaps, counters.output), (12, 4, 12));
    at(counters.gap_seconds, 0.004, "between outputs");
    assert_eq!((server.cached, server.tokens_per_step), (0, 0), "all is given back");
}

#[test]
fn each_request_has_its_own_number_of_tokens_a_step() {
    let tokens = StepTokens { min: 2, max: 4 };
    let requests: Vec<Request> = (0..300_u32).map(|i| request(f64::from(i), 1, 1201)).collect();
    let (done, _) = served(Engine { tokens, max_seqs: 1000, ..PLAIN }, &requests);
    let with = |steps: f64| {
        let took = |s: &&ServedRequest| ((s.ended - s.first_token) / 0.001 - steps).abs() < 0.5;
        done.iter().filter(took).count()
    };
    let each = [with(600.0), with(400.0), with(300.0)];
    assert_eq!(each.iter().sum::<usize>(), 300, "{each:?}");
    assert!(each.iter().all(|n| (70..130).contains(n)), "{each:?}");
    // On the average a token takes (1/2 + 1/3 + 1/4) / 3 steps.
    assert!((tokens.steps_per_token() - 13.0 / 36.0).abs() < 1e-12);
}

#[test]
fn the_last_sequence_ends_though_its_last_step_makes_too_much() {
    let tokens = StepTokens { min: 4, max: 4 };
    let (done, server) = served(Engine { kv_blocks: 113, tokens, ..PLAIN }, &[request(0.0, 10, 102)]);
    assert_eq!((done.len(), server.counters.preemptions, server.cached), (1, 0, 0));
}

#[test]
fn a_draft_takes_of_the_budget_of_a_step() {
    let engine = Engine { max_batched_tokens: 40, max_seqs: 2, ..PLAIN };
    let first_token = |tokens| {
        let requests = [request(0.0, 1, 1000), request(0.0105, 60, 2)];
        served(Engine { tokens, ..engine }, &requests).0[1].first_token
    };
    at(first_token(StepTokens::ONE), 0.013, "39 and 21 tokens of its prompt");
    at(first_token(StepTokens { min: 11, max: 11 }), 0.014, "29, 29 and 2");
}

#[test]
fn prefill_ends_with_the_first_token_decode_skips_prompts() {
    let engine = Engine { per_prompt_token: 0.0001, ..PLAIN };
    let run = |role| {
        let mut server = Server::new(engine, f64::INFINITY).with_role(Some(role));
        let mut finished = FinishedRequests::default();
        server.push(request(0.0, 500, 11), 0.0, &mut finished);
        while server.next_event().is_finite() {
            server.advance(server.next_event(), &mut finished);
        }
        assert_eq!((server.cached, server.running()), (0, 0));
        (finished.served[0], server.counters)
    };
    let (served, counters) = run(Role::Prefill);
    at(served.ended, 0.001 + 500.0 * 0.0001, "its prompt");
    assert_eq!(
        (counters.requests, counters.prompt_tokens, counters.generated, counters.output),
        (1, 500, 1, 1)
    );
    let (served, counters) = run(Role::Decode);
    at(served.first_token, 0.001 + 0.0001, "the last token of the prompt is computed again");
    at(served.ended, served.first_token + 10.0 * 0.001, "the rest");
    assert_eq!((counters.requests, counters.prompt_tokens, counters.generated), (1, 500, 11));
}
