//! Single requests of an emulated fleet, in addition to the fluid model, which never empties. Each runs on one pod
//! for its exact duration and stays recorded. Requests wait at the gateway while no pod is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::queueing::{PREFILL, Replica};

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Time of sending.
    pub sent: Instant,
    /// Duration of the run.
    pub lasts: Duration,
    /// Pod and start of the run; `None` while waiting.
    pub runs: Option<(String, Instant)>,
    /// Number of starts: above 1 if a pod disappeared.
    pub begins: u32,
    /// Time of completion.
    pub ended: Option<Instant>,
}

/// All requests sent.
#[derive(Debug, Default)]
pub(super) struct Requests {
    all: Vec<Request>,
    /// Completed requests of the present pods.
    completed: BTreeMap<String, f64>,
}

impl Requests {
    pub(super) fn send(&mut self, lasts: Duration, pods: &BTreeMap<String, Replica>, now: Instant) {
        self.all.push(Request { sent: now, lasts, runs: None, begins: 0, ended: None });
        self.place(pods.keys(), now);
    }

    /// The request runs on this pod at once.
    pub(super) fn send_to(&mut self, pod: &str, lasts: Duration, now: Instant) {
        let runs = Some((pod.to_owned(), now));
        self.all.push(Request { sent: now, lasts, runs, begins: 1, ended: None });
    }

    /// Updates the ready pods. Requests of a removed pod are sent again with their full duration.
    pub(super) fn set_replicas(&mut self, ready: &BTreeSet<String>, now: Instant) {
        self.end(now);
        self.completed.retain(|pod, _| ready.contains(pod));
        for request in self.all.iter_mut().filter(|r| r.ended.is_none()) {
            if request.runs.as_ref().is_some_and(|(pod, _)| !ready.contains(pod)) {
                request.runs = None;
            }
        }
        self.place(ready.iter(), now);
    }

    /// Ends requests whose duration has passed.
    pub(super) fn end(&mut self, now: Instant) {
        for request in self.all.iter_mut().filter(|r| r.ended.is_none()) {
            if let Some((pod, since)) = &request.runs
                && now.duration_since(*since) >= request.lasts
            {
                *self.completed.entry(pod.clone()).or_default() += 1.0;
                request.ended = Some(*since + request.lasts);
            }
        }
    }

    /// Ends all running requests.
    pub(super) fn end_all(&mut self, now: Instant) {
        for request in self.all.iter_mut().filter(|r| r.ended.is_none()) {
            if let Some((_, since)) = &request.runs {
                request.lasts = now.duration_since(*since);
            }
        }
        self.end(now);
    }

    /// Assigns waiting requests to pods, round robin.
    fn place<'a>(&mut self, pods: impl Iterator<Item = &'a String> + Clone, now: Instant) {
        let waiting = self.all.iter_mut().filter(|r| r.ended.is_none() && r.runs.is_none());
        for (request, pod) in waiting.zip(pods.cycle()) {
            request.runs = Some((pod.clone(), now));
            request.begins += 1;
        }
    }

    /// Figures of a pod including its single requests.
    pub(super) fn over(&self, pod: &str, replica: &Replica, prompt_tokens: f64) -> Replica {
        let running = self.all.iter().filter(|r| r.ended.is_none());
        let running = running.filter(|r| r.runs.as_ref().is_some_and(|(on, _)| on == pod)).count();
        let running = u32::try_from(running).map_or(f64::INFINITY, f64::from);
        let completed = self.completed.get(pod).copied().unwrap_or_default();
        let mut latencies = replica.latencies;
        latencies.first_tokens.observe(PREFILL, running + completed);
        Replica {
            latencies,
            running: replica.running + running,
            admitted: replica.admitted + running + completed,
            completed: replica.completed + completed,
            prompt_tokens: replica.prompt_tokens + (running + completed) * prompt_tokens,
            completed_prompt_tokens: replica.completed_prompt_tokens + completed * prompt_tokens,
            ..*replica
        }
    }

    /// Requests that wait because no pod is ready.
    pub(super) fn waiting(&self) -> f64 {
        let waiting = self.all.iter().filter(|r| r.ended.is_none() && r.runs.is_none()).count();
        u32::try_from(waiting).map_or(f64::INFINITY, f64::from)
    }

    pub(super) fn all(&self) -> &[Request] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn request_restarts_when_its_pod_is_removed() {
        let (mut requests, begin) = (Requests::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let figures = |requests: &Requests, pod: &str| {
            let over = requests.over(pod, &Replica::default(), 512.0);
            let first_tokens = over.latencies.first_tokens.count();
            assert!(
                (first_tokens - over.running - over.completed).abs() < 1e-9,
                "{first_tokens} first tokens"
            );
            format!("{} run, {} done, {} wait", over.running, over.completed, requests.waiting())
        };
        requests.send(Duration::from_secs(10), &BTreeMap::new(), at(0));
        assert_eq!(figures(&requests, "a"), "0 run, 0 done, 1 wait");
        requests.set_replicas(&ready(&["a"]), at(1));
        assert_eq!(figures(&requests, "a"), "1 run, 0 done, 0 wait");
        requests.set_replicas(&ready(&["b"]), at(9));
        requests.end(at(18));
        assert_eq!(figures(&requests, "b"), "1 run, 0 done, 0 wait", "it runs as long as at first");
        requests.end(at(19));
        assert_eq!(figures(&requests, "b"), "0 run, 1 done, 0 wait");
        let request = &requests.all()[0];
        assert_eq!((request.ended, request.begins), (Some(at(19)), 2));
        requests.set_replicas(&ready(&[]), at(20));
        assert_eq!(figures(&requests, "b"), "0 run, 0 done, 0 wait");
    }

    #[test]
    fn ends_running_requests() {
        let (mut requests, begin) = (Requests::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        requests.send(Duration::MAX, &BTreeMap::new(), begin);
        requests.end_all(at(1));
        assert_eq!(requests.all()[0].ended, None, "it waits");
        requests.set_replicas(&ready(&["a"]), at(2));
        requests.end_all(at(5));
        let request = &requests.all()[0];
        assert_eq!((request.lasts, request.ended), (Duration::from_secs(3), Some(at(5))));
    }
}
