//! Model server that batches continuously, like vLLM's scheduler: generating sequences first, then prompts in chunks
//! within the token budget, then waiting requests in order. A sequence without room in the cache loses its place and is
//! recomputed (preemption).

mod counters;
mod request;

use std::collections::VecDeque;

use super::batch::Batch;
use super::engine::{Engine, to_f64};
use super::variant::Role;

pub use counters::Counters;
pub use request::{FinishedRequests, Request, ServedRequest};

#[derive(Clone, Copy, Debug)]
struct Sequence {
    request: Request,
    /// The last admitted is preempted first.
    order: u64,
    generated: u32,
    first_token: Option<f64>,
    /// Time of the first admission.
    admitted: f64,
    /// Tokens at its prefill.
    kv_tokens: u64,
    /// Tokens of this sequence.
    tokens_per_step: u64,
}

#[derive(Clone, Copy, Debug)]
struct DecodingSequence {
    sequence: Sequence,
    began: u64,
    ends: u64,
}

/// State of a server.
#[derive(Clone, Debug)]
pub struct Server {
    engine: Engine,
    role: Option<Role>,
    client_timeout: f64,
    /// Share of requests that are not counted when they end.
    uncounted_share: f64,
    /// Fraction of a request that is not counted yet.
    uncounted: f64,
    waiting: VecDeque<Sequence>,
    /// Admitted sequences with the prompt tokens that are still to be computed, in order of admission.
    prefilling: VecDeque<(Sequence, u64)>,
    decoding: Vec<DecodingSequence>,
    /// Tokens of all generating sequences.
    tokens_per_step: u64,
    /// Step in which the first generating sequence ends.
    next_end: u64,
    steps: u64,
    /// Tokens at the end of the last batch.
    cached: u64,
    admitted: u64,
    batch: Option<Batch>,
    /// State at the end of the last batch.
    pub(super) counters: Counters,
}

impl Server {
    /// Clients give up requests that wait longer than `client_timeout` seconds.
    #[must_use]
    pub fn new(engine: Engine, client_timeout: f64) -> Self {
        Self {
            engine,
            role: None,
            client_timeout,
            uncounted_share: 0.0,
            uncounted: 0.0,
            waiting: VecDeque::new(),
            prefilling: VecDeque::new(),
            decoding: Vec::new(),
            tokens_per_step: 0,
            next_end: u64::MAX,
            steps: 0,
            cached: 0,
            admitted: 0,
            batch: None,
            counters: Counters::default(),
        }
    }

    /// This share of the requests is not counted when they end.
    #[must_use]
    pub fn with_uncounted_share(self, share: f64) -> Self {
        Self { uncounted_share: share, ..self }
    }

    /// The server handles this part of each request.
    #[must_use]
    pub fn with_role(self, role: Option<Role>) -> Self {
        Self { role, ..self }
    }

    /// Sets prefix hits and speculation of later requests.
    pub fn set_engine(&mut self, engine: Engine) {
        self.engine = engine;
    }

    /// Infinite while it is idle.
    #[must_use]
    pub fn next_event(&self) -> f64 {
        self.batch.map_or(f64::INFINITY, |batch| batch.end())
    }

    /// Counters with the steps of the batch under way.
    #[must_use]
    pub fn counters(&self, now: f64) -> Counters {
        let mut counters = self.counters;
        if let Some(batch) = self.batch {
            let done = Batch { steps: batch.whole_steps(now), ..batch };
            counters.generate(done, self.decoding.len() as u64, self.tokens_per_step);
        }
        counters
    }

    /// Requests in the batch.
    #[must_use]
    pub fn running(&self) -> usize {
        self.prefilling.len() + self.decoding.len()
    }

    /// Requests that wait for a place.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// All prompt tokens of a request count until its first token.
    #[must_use]
    pub fn prompt_backlog(&self) -> u64 {
        let admitted = self.prefilling.iter().map(|(sequence, _)| sequence);
        let without = self.waiting.iter().chain(admitted).filter(|s| s.first_token.is_none());
        without.map(|s| self.engine.computed_tokens(s.request.input)).sum()
    }

    /// 0..=1.
    #[must_use]
    pub fn kv_usage(&self, now: f64) -> f64 {
        let added = self.batch.map_or(0, |b| b.whole_steps(now) * self.tokens_per_step);
        (to_f64(self.cached + added) / to_f64(self.engine.kv_tokens())).min(1.0)
    }

    /// Requests not finished yet.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        let prefilling = self.prefilling.iter().map(|(s, _)| s.request);
        self.waiting
            .iter()
            .map(|s| s.request)
            .chain(prefilling)
            .chain(self.decoding.iter().map(|d| d.sequence.request))
    }

    /// Takes a request that the engine can hold ([`Engine::can_hold`]).
    pub fn push(&mut self, request: Request, now: f64, finished: &mut FinishedRequests) {
        self.waiting.push_back(Sequence {
            request,
            order: 0,
            generated: 0,
            first_token: None,
            admitted: now,
            kv_tokens: 0,
            tokens_per_step: request.step_tokens(self.engine.tokens),
        });
        if self.batch.is_none() {
            self.start_batch(now, finished);
        } else if self.waiting.len() == 1 && self.has_room() {
            self.shorten_batch(now);
        }
    }

    /// Processes the event due at [`Self::next_event`].
    pub fn advance(&mut self, now: f64, finished: &mut FinishedRequests) {
        let Some(batch) = self.batch.take() else { return };
        self.counters.generate(batch, self.decoding.len() as u64, self.tokens_per_step);
        self.steps += batch.steps;
        self.cached += batch.steps * self.tokens_per_step;
        if self.next_end <= self.steps {
            self.complete(now, finished);
        }
        self.prefill(batch.prompt_tokens, now, finished);
        self.start_batch(now, finished);
    }

    /// Room for the first waiting request, after the step under way.
    fn has_room(&self) -> bool {
        let room = self.waiting.front().is_some_and(|s| {
            let need = u64::from(s.request.input) + self.engine.block_overhead();
            self.cached + need + self.tokens_per_step <= self.engine.kv_tokens()
        });
        room && self.running() < self.engine.max_seqs
    }

    fn shorten_batch(&mut self, now: f64) {
        if let Some(batch) = &mut self.batch {
            batch.end_after_current_step(now);
        }
    }

    fn complete(&mut self, now: f64, finished: &mut FinishedRequests) {
        self.next_end = u64::MAX;
        let mut i = 0;
        while let Some(one) = self.decoding.get(i).copied() {
            if one.ends <= self.steps {
                self.decoding.swap_remove(i);
                let (sequence, generated) =
                    (one.sequence, (one.ends - one.began) * one.sequence.tokens_per_step);
                self.tokens_per_step -= sequence.tokens_per_step;
                self.cached -= sequence.kv_tokens + generated;
                // Tokens of the last step beyond the end are discarded.
                self.counters.generated -=
                    generated - u64::from(sequence.request.output - sequence.generated);
                self.count_finished(sequence, now, finished);
            } else {
                self.next_end = self.next_end.min(one.ends);
                i += 1;
            }
        }
    }

    fn count_finished(&mut self, sequence: Sequence, now: f64, finished: &mut FinishedRequests) {
        let request = sequence.request;
        let first_token = sequence.first_token.unwrap_or(now);
        self.uncounted += self.uncounted_share;
        if self.uncounted >= 1.0 {
            self.uncounted -= 1.0;
        } else {
            self.counters.requests += 1;
            self.counters.input += u64::from(request.input);
            self.counters.output += u64::from(self.output_tokens(request));
            self.counters.prefill_seconds += first_token - sequence.admitted;
        }
        finished.served.push(ServedRequest { request, first_token, ended: now });
    }

    /// A prefill server generates only the first token.
    fn output_tokens(&self, request: Request) -> u32 {
        if self.role == Some(Role::Prefill) { 1 } else { request.output }
    }

    /// A decode server computes only the last token of a prompt.
    fn tokens_to_compute(&self, sequence: &Sequence) -> u64 {
        if self.role == Some(Role::Decode) && sequence.generated == 0 {
            1
        } else {
            self.engine.computed_tokens(sequence.request.input) + u64::from(sequence.generated)
        }
    }

    /// First come first served. A complete prompt yields a token.
    fn prefill(&mut self, mut tokens: u64, now: f64, finished: &mut FinishedRequests) {
        while tokens > 0
            && let Some((_, left)) = self.prefilling.front_mut()
        {
            let spent = tokens.min(*left);
            *left -= spent;
            tokens -= spent;
            if *left > 0 {
                break;
            }
            let Some((mut sequence, _)) = self.prefilling.pop_front() else { break };
            if sequence.first_token.is_none() {
                sequence.first_token = Some(now);
                let input = sequence.request.input;
                self.counters.prompt_tokens += u64::from(input);
                self.counters.cached_tokens +=
                    u64::from(input).saturating_sub(self.engine.computed_tokens(input));
            }
            self.counters.generated += 1;
            sequence.generated += 1;
            if sequence.generated >= self.output_tokens(sequence.request) {
                self.cached -= sequence.kv_tokens;
                self.count_finished(sequence, now, finished);
            } else {
                let left = u64::from(sequence.request.output - sequence.generated);
                let ends = self.steps + left.div_ceil(sequence.tokens_per_step);
                self.next_end = self.next_end.min(ends);
                self.tokens_per_step += sequence.tokens_per_step;
                self.decoding.push(DecodingSequence { sequence, began: self.steps, ends });
            }
        }
    }

    /// Starts a batch if there is anything to compute.
    fn start_batch(&mut self, now: f64, finished: &mut FinishedRequests) {
        if !self.preempt() {
            self.admit(now, finished);
        }
        let left: u64 = self.prefilling.iter().map(|(_, left)| left).sum();
        let prompt_tokens =
            left.min(self.engine.max_batched_tokens.saturating_sub(self.decode_tokens()).max(1));
        let steps = if prompt_tokens > 0 {
            1
        } else if let Some(room) =
            self.engine.kv_tokens().saturating_sub(self.cached).checked_div(self.tokens_per_step)
        {
            (self.next_end - self.steps).min(room).max(1)
        } else {
            return;
        };
        self.batch = Some(Batch {
            began: now,
            steps,
            prompt_tokens,
            first: self.engine.step_time(self.decoding.len(), prompt_tokens, self.cached),
            growth: self.engine.per_cached_token * to_f64(self.tokens_per_step),
        });
    }

    /// Tokens of a step, drafted ones included.
    fn decode_tokens(&self) -> u64 {
        self.decoding.len() as u64 * u64::from(self.engine.tokens.max)
    }

    /// Makes room for one more step of each sequence. True if one lost its place. The last one keeps it
    /// ([`Engine::can_hold`]).
    fn preempt(&mut self) -> bool {
        let before = self.counters.preemptions;
        while self.cached + self.tokens_per_step > self.engine.kv_tokens() && self.running() > 1 {
            let last = self.decoding.iter().enumerate().max_by_key(|(_, d)| d.sequence.order).map(|(i, _)| i);
            let newest_prefill = self.prefilling.back().map(|(s, _)| s.order);
            let mut sequence = match last {
                Some(i) if Some(self.decoding[i].sequence.order) > newest_prefill => {
                    let one = self.decoding.swap_remove(i);
                    let generated = (self.steps - one.began) * one.sequence.tokens_per_step;
                    self.tokens_per_step -= one.sequence.tokens_per_step;
                    self.cached -= one.sequence.kv_tokens + generated;
                    let generated = one.sequence.generated + u32::try_from(generated).unwrap_or(u32::MAX);
                    Sequence { generated, ..one.sequence }
                }
                _ => {
                    let Some((sequence, _)) = self.prefilling.pop_back() else { break };
                    self.cached -= sequence.kv_tokens;
                    sequence
                }
            };
            sequence.kv_tokens = 0;
            self.waiting.push_front(sequence);
            self.counters.preemptions += 1;
        }
        let any = self.counters.preemptions > before;
        if any {
            self.next_end = self.decoding.iter().map(|d| d.ends).min().unwrap_or(u64::MAX);
        }
        any
    }

    fn admit(&mut self, now: f64, finished: &mut FinishedRequests) {
        let taken = self.decode_tokens() + self.prefilling.iter().map(|(_, left)| left).sum::<u64>();
        let mut budget = self.engine.max_batched_tokens.saturating_sub(taken);
        while budget > 0 && self.running() < self.engine.max_seqs {
            let Some(mut sequence) = self.waiting.front().copied() else { break };
            let request = sequence.request;
            if sequence.first_token.is_none() && now - request.arrived > self.client_timeout {
                self.waiting.pop_front();
                finished.timed_out.push(request);
                continue;
            }
            if sequence.first_token.is_none() {
                sequence.admitted = now;
            }
            let generated = u64::from(sequence.generated);
            sequence.kv_tokens = u64::from(request.input) + generated + self.engine.block_overhead();
            if self.cached + sequence.kv_tokens + self.tokens_per_step > self.engine.kv_tokens() {
                break;
            }
            self.waiting.pop_front();
            self.admitted += 1;
            sequence.order = self.admitted;
            self.cached += sequence.kv_tokens;
            let compute = self.tokens_to_compute(&sequence);
            budget -= compute.min(budget);
            self.prefilling.push_back((sequence, compute));
        }
    }
}

#[cfg(test)]
mod tests;
