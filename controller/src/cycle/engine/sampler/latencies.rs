//! Measured latencies of models with an objective. Their queries are heavy and no target waits for them, so they are
//! rounds of their own: loads never wait for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use wva_scaling::control_loop::AttainmentMemory;

use super::Sampler;
use super::series::model_filter;
use crate::collect::scope::Scope;
use crate::collect::signals::Query;
use crate::collect::{self, Answers};
use crate::cycle::attainment::{add_answer, latency};
use crate::cycle::engine::TIMER_TOLERANCE;
use crate::cycle::engine::inputs::Inputs;

/// Time between two rounds: an alert on five minutes needs newer figures, and each round reads some 20 series of every
/// pod and latency.
const INTERVAL: Duration = Duration::from_mins(1);

/// Series of a model in an answer: vLLM has 24 buckets, and the router 25. A model has at least one pod.
const BUCKETS: usize = 50;

/// Answers of one round.
pub(in crate::cycle::engine) struct LatencyRound {
    began: Instant,
    answers: Answers,
}

#[derive(Debug, Default)]
pub(in crate::cycle::engine) struct LatencyState {
    /// Start of the last round; `None`: a round is due at once.
    queried: Option<Instant>,
    is_failing: bool,
}

impl LatencyState {
    /// Makes a round due at once: a new objective does not wait for the interval.
    pub(in crate::cycle::engine) fn request(&mut self) {
        self.queried = None;
    }

    fn is_due(&self) -> bool {
        self.queried.is_none_or(|at| at.elapsed() + TIMER_TOLERANCE >= INTERVAL)
    }

    /// Adds a round, and logs a change between failure and success.
    pub(in crate::cycle::engine) fn add(
        &mut self,
        LatencyRound { began, answers }: LatencyRound,
        attainment: &mut AttainmentMemory<Instant>,
    ) {
        let error = answers.iter().find_map(|answer| answer.rows.as_ref().err()).map(ToString::to_string);
        for answer in answers {
            add_answer(attainment, began, answer);
        }
        let was_failing = std::mem::replace(&mut self.is_failing, error.is_some());
        match error {
            Some(error) if !was_failing => tracing::warn!(
                error,
                "Prometheus queries for latencies failed; their attainment is unknown until they succeed"
            ),
            None if was_failing => tracing::info!("Prometheus queries for latencies succeed again"),
            _ => {}
        }
    }
}

impl Sampler {
    /// Starts the queries for latencies that are due, if any model has an objective.
    pub(in crate::cycle::engine) fn due_latencies<'e>(
        &mut self,
        inputs: Inputs<'e>,
        attainment: &AttainmentMemory<Instant>,
    ) -> Option<BoxFuture<'e, LatencyRound>> {
        let Inputs { sources, metrics, config } = inputs;
        let latencies = &mut self.latencies;
        if !latencies.is_due() {
            return None;
        }
        let mut requests = Vec::new();
        let managed = inputs.managed();
        for query in Query::LATENCY {
            let names: BTreeSet<&str> = attainment.namespaces(latency(query)).collect();
            if names.is_empty() {
                continue;
            }
            let mut pods = inputs.expected_pods(&managed);
            pods.retain(|namespace, _| names.contains(namespace.as_str()));
            requests.extend(Scope::for_pods(&pods, BUCKETS).into_iter().map(|scope| (query, scope)));
        }
        if requests.is_empty() {
            return None;
        }
        let began = Instant::now();
        latencies.queried = Some(began);
        let (filter, within) = (Arc::new(model_filter(&managed)), config.longest_round());
        let prometheus = &sources.prometheus;
        let answers = collect::stream_answers(prometheus, requests, filter, &metrics.telemetry, within);
        Some(answers.collect().map(move |answers| LatencyRound { began, answers }).boxed())
    }
}
