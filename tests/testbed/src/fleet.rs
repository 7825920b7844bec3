//! Emulated vLLM fleet, since the real vLLM needs GPUs. It watches the ready pods of a model, serves a metrics page
//! for each on loopback, adds them to Prometheus' targets, and advances the queueing model. It runs on its own thread
//! and runtime, so it may outlive the test that started it.

mod export;
mod latency;
mod queueing;
mod requests;
mod serve;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::queueing::{Queueing, Service};
use self::requests::Requests;
use self::state::{Shared, State};
use crate::testbed::Testbed;
use crate::testbed::prometheus::write_targets;
use crate::wait::eventually;

pub use self::requests::Request;
pub use self::serve::serving_name;

/// Path of the emulated endpoint picker's metrics page.
const GATEWAY: &str = "/gateway/metrics";

/// Settings of an emulated fleet.
#[derive(Debug, Clone)]
pub struct FleetConfig {
    pub namespace: String,
    /// Label selector of the pods, such as `wva-test/model=m`. All variants of the model form one fleet.
    pub selector: String,
    /// Value of the label `model_name` on all series.
    pub model: String,
    /// Initial arrival rate, requests per second.
    pub rate: f64,
    /// Requests that a pod runs at once.
    pub max_seqs: u32,
    /// Mean duration of a request, and share of a pod's KV cache that it uses, 0..=1. An engine replaces both.
    pub run_time: Duration,
    /// Share of a pod's KV cache that a running request uses, 0..=1.
    pub kv_per_request: f64,
    /// Step time of the engine. A request needs one step for each output token.
    pub engine: Option<Engine>,
    /// Maximum queue of one pod, in requests; more are rejected.
    pub max_queue: u32,
    /// Mean input of a request, in tokens.
    pub prompt_tokens: u32,
    /// Mean output of a request, in tokens.
    pub generation_tokens: u32,
    /// Share of input tokens found in the prefix cache, 0..=1.
    pub prefix_hit_rate: f64,
    /// KV cache of a pod, in blocks.
    pub num_gpu_blocks: u64,
    pub block_size: u64,
    /// Data-parallel engines of a pod, at least 1. They share its load and its KV cache evenly.
    pub engines: u32,
    /// Share of the requests that clients cancel after the first token, at least 0 and below 1.
    pub cancelled: f64,
    /// Whether requests of a pod that ends are served to their end, unseen, as in a graceful shutdown. Else clients send
    /// them again.
    pub drains: bool,
    /// Makes the page of another model server, or of another release, from a page.
    pub page: Option<fn(&str) -> String>,
}

impl FleetConfig {
    /// A fleet whose pods run 20 requests of 2 s at once (10 per second). Each request uses 4.5% of the KV cache, 90%
    /// when full. Up to 100 requests wait.
    pub fn new(namespace: &str, selector: &str, model: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            selector: selector.to_owned(),
            model: model.to_owned(),
            rate: 0.0,
            max_seqs: 20,
            run_time: Duration::from_secs(2),
            kv_per_request: 0.045,
            engine: None,
            max_queue: 100,
            prompt_tokens: 512,
            generation_tokens: 128,
            prefix_hit_rate: 0.25,
            num_gpu_blocks: 4096,
            block_size: 16,
            engines: 1,
            cancelled: 0.0,
            drains: false,
            page: None,
        }
    }

    fn service(&self) -> anyhow::Result<Service> {
        if self.max_seqs == 0 || self.run_time.is_zero() || !(0.0..=1.0).contains(&self.kv_per_request) {
            bail!("max_seqs and run_time must be above 0 and kv_per_request within 0..=1: {self:?}");
        }
        if self.engines == 0 || !(0.0..1.0).contains(&self.cancelled) {
            bail!("engines must be above 0 and cancelled at least 0 and below 1: {self:?}");
        }
        if self.engine.is_some_and(|engine| engine.a <= 0.0) {
            bail!("the fixed time of a step must be above 0: {self:?}");
        }
        let (input, output) = (f64::from(self.prompt_tokens), f64::from(self.generation_tokens));
        let service = Service {
            max_seqs: f64::from(self.max_seqs),
            run_time: self.run_time.as_secs_f64(),
            per_running: 0.0,
            kv_per_request: self.kv_per_request,
            prompt_tokens: input,
            output_tokens: output,
            max_queue: f64::from(self.max_queue),
            cancelled: self.cancelled,
            drains: self.drains,
        };
        let Some(Engine { a, b, c }) = self.engine else { return Ok(service) };
        let cache = f64::from(u32::try_from(self.num_gpu_blocks * self.block_size)?);
        Ok(Service {
            run_time: output * a,
            per_running: output * b + input * c,
            // On average half of the output exists.
            kv_per_request: ((input + output / 2.0) / cache).min(1.0),
            ..service
        })
    }
}

/// Step time of an emulated engine, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Engine {
    /// Fixed part, above 0.
    pub a: f64,
    /// Added by each running request.
    pub b: f64,
    /// Added by each prompt token.
    pub c: f64,
}

/// Fault of a pod's metrics page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFault {
    /// Every scrape fails: 503.
    Down,
    /// KV cache use and queue length are NaN.
    NotANumber,
    /// The page is empty.
    Empty,
}

/// Figures of a ready pod, without faults.
#[derive(Debug, Clone, PartialEq)]
pub struct PodLoad {
    pub pod: String,
    /// Share of the KV cache in use, 0..=1.
    pub kv: f64,
    pub waiting: f64,
    pub running: f64,
}

/// A running emulation. Drop it to stop it and remove its pods from Prometheus.
pub struct Fleet {
    shared: Arc<Shared>,
    end: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Fleet {
    /// Starts the emulation. It notices pod changes within half a second; Prometheus scrapes them one interval later.
    pub fn start(testbed: &Testbed, config: FleetConfig) -> anyhow::Result<Self> {
        let service = config.service()?;
        let listener =
            std::net::TcpListener::bind(("127.0.0.1", 0)).context("no port for the metrics pages")?;
        listener.set_nonblocking(true).context("cannot use the port of the metrics pages")?;
        let address = listener.local_addr().context("the metrics pages have no address")?;
        let mut queueing = Queueing::new(service);
        queueing.set_rate(config.rate);
        let state = State {
            queueing,
            requests: Requests::default(),
            fixed_all: None,
            fixed: BTreeMap::new(),
            faults: BTreeMap::new(),
            asleep: BTreeSet::new(),
            created: BTreeMap::new(),
            unseen: false,
            blind: Some("the pods were not looked at yet".to_owned()),
        };
        let shared = Arc::new(Shared {
            targets: format!("fleet-{}", testbed.next()),
            config,
            address,
            data: testbed.data().to_owned(),
            state: Mutex::new(state),
        });
        let end = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot make the fleet's runtime")?;
        let kube = testbed.config.clone();
        let thread = std::thread::Builder::new()
            .name("vllm-fleet".to_owned())
            .spawn({
                let (shared, end) = (shared.clone(), end.clone());
                move || runtime.block_on(serve::run(&shared, kube, listener, end))
            })
            .context("cannot start the fleet's thread")?;
        Ok(Self { shared, end, thread: Some(thread) })
    }

    /// Sets the arrival rate of the whole model, in requests per second.
    pub fn set_rate(&self, requests_per_second: f64) {
        self.shared.state.lock().queueing.set_rate(requests_per_second);
    }

    /// Sets the mean input of the requests that come from now on, in tokens.
    pub fn set_prompt_tokens(&self, prompt_tokens: u32) -> anyhow::Result<()> {
        let service = FleetConfig { prompt_tokens, ..self.shared.config.clone() }.service()?;
        self.shared.state.lock().queueing.set_service(service);
        Ok(())
    }

    /// Port of the pods' metrics, for [`crate::fixtures::VariantFixture::port`].
    pub fn port(&self) -> u16 {
        self.shared.address.port()
    }

    /// Hides single requests from scrapes, as if each scrape came just after a request ended. The pods still show
    /// them.
    pub fn hide_requests(&self) {
        self.shared.state.lock().unseen = true;
    }

    /// Sends one request of this duration.
    pub fn send(&self, lasts: Duration) {
        let mut state = self.shared.state.lock();
        let State { queueing, requests, .. } = &mut *state;
        requests.send(lasts, queueing.replicas(), Instant::now());
    }

    /// Sends one request of this duration to a ready pod.
    pub fn send_to(&self, pod: &str, lasts: Duration) {
        self.shared.state.lock().requests.send_to(pod, lasts, Instant::now());
    }

    /// Ends all running requests early.
    pub fn end_requests(&self) {
        self.shared.state.lock().requests.end_all(Instant::now());
    }

    /// Requests of [`Fleet::send`], in order.
    pub fn requests(&self) -> Vec<Request> {
        let mut state = self.shared.state.lock();
        state.requests.end(Instant::now());
        state.requests.all().to_vec()
    }

    /// Fixes KV cache use (0..=1) and queue length of one pod, which may not be ready yet.
    pub fn set_fixed(&self, pod: &str, kv: f64, waiting: f64) {
        self.shared.state.lock().fixed.insert(pod.to_owned(), (kv, waiting));
    }

    /// Fixes both for all present and later pods without figures of their own.
    pub fn set_fixed_all(&self, kv: f64, waiting: f64) {
        self.shared.state.lock().fixed_all = Some((kv, waiting));
    }

    /// Sets or clears a fault of one pod's metrics page.
    pub fn set_fault(&self, pod: &str, fault: Option<ExportFault>) {
        let mut state = self.shared.state.lock();
        match fault {
            Some(fault) => state.faults.insert(pod.to_owned(), fault),
            None => state.faults.remove(pod),
        };
    }

    /// Lets the engine of a pod sleep, with an empty KV cache and queue.
    pub fn set_asleep(&self, pod: &str) {
        let mut state = self.shared.state.lock();
        state.fixed.insert(pod.to_owned(), (0.0, 0.0));
        state.asleep.insert(pod.to_owned());
    }

    /// Figures of the ready pods, by name.
    pub fn pods(&self) -> Vec<PodLoad> {
        let state = self.shared.state.lock();
        let shown = |pod: &String| {
            let ((kv, waiting), running) = (state.shown_load(pod)?, state.replica(pod)?.running);
            Some(PodLoad { pod: pod.clone(), kv, waiting, running })
        };
        state.queueing.replicas().keys().filter_map(shown).collect()
    }

    /// Requests that wait because no pod is ready.
    pub fn at_gateway(&self) -> f64 {
        self.shared.state.lock().at_gateway()
    }

    /// Metrics page of the emulated endpoint picker: its flow-control queue is [`Fleet::at_gateway`].
    pub fn gateway_url(&self) -> String {
        format!("http://{}{GATEWAY}", self.shared.address)
    }

    /// Waits until exactly `count` pods are ready and returns their names.
    pub async fn wait_ready(&self, count: usize, deadline: Duration) -> anyhow::Result<Vec<String>> {
        let shared = &self.shared;
        let what =
            format!("{count} ready pods with {} in {}", shared.config.selector, shared.config.namespace);
        eventually(&what, deadline, async || {
            let state = shared.state.lock();
            let ready: Vec<String> = state.queueing.replicas().keys().cloned().collect();
            match &state.blind {
                Some(why) => bail!("cannot list the pods: {why}"),
                None if ready.len() == count => Ok(ready),
                None => bail!("ready pods: {ready:?}"),
            }
        })
        .await
    }

    /// Metrics page of a pod, for tests without Prometheus.
    pub fn metrics_url(&self, pod: &str) -> String {
        format!("http://{}/pods/{}/{pod}/metrics", self.shared.address, self.shared.config.namespace)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is already on stderr.
            let _ = thread.join();
        }
        // The folder is missing if the testbed ended first.
        let _ = write_targets(&self.shared.data, &self.shared.targets, &serde_json::json!([]));
    }
}
