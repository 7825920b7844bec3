//! Probes of a container with the kubelet's periods, time-outs and thresholds.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Container, Probe as Declared};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::time::Instant;

use super::Ports;
use crate::components::http_client;

/// One probe of a running container.
pub(super) struct Probe {
    url: String,
    timeout: Duration,
    period: Duration,
    failures_allowed: u32,
    successes_needed: u32,
    next: Instant,
    failures: u32,
    successes: u32,
}

impl Probe {
    /// Probe of a container that has just started; `None` if none is declared.
    pub(super) fn new(
        declared: Option<&Declared>,
        container: &Container,
        ports: &Ports,
    ) -> anyhow::Result<Option<Self>> {
        let Some(declared) = declared else { return Ok(None) };
        let get = declared.http_get.as_ref().context("only probes by httpGet are supported")?;
        ensure!(get.host.is_none(), "httpGet.host is not supported");
        let of_container = match &get.port {
            IntOrString::Int(number) => u16::try_from(*number)?,
            IntOrString::String(name) => named(container, name)?,
        };
        let local = ports.get(&of_container);
        let local =
            local.with_context(|| format!("the probe's port {of_container} is not a container port"))?;
        let path = get.path.as_deref().unwrap_or("/");
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(value.and_then(|value| value.try_into().ok()).unwrap_or(default))
        };
        let count = |value: Option<i32>, default: u32| {
            value.and_then(|value| value.try_into().ok()).unwrap_or(default)
        };
        Ok(Some(Self {
            url: format!("http://127.0.0.1:{local}{path}"),
            timeout: seconds(declared.timeout_seconds, 1),
            period: seconds(declared.period_seconds, 10),
            failures_allowed: count(declared.failure_threshold, 3),
            successes_needed: count(declared.success_threshold, 1),
            next: Instant::now() + seconds(declared.initial_delay_seconds, 0),
            failures: 0,
            successes: 0,
        }))
    }

    /// Probes when due. Returns a new result after enough successes or failures in a row.
    pub(super) async fn run_if_due(&mut self) -> Option<bool> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next = now + self.period;
        let asked = async { http_client(None).ok()?.get(&self.url).send().await.ok() };
        let answer = tokio::time::timeout(self.timeout, asked).await.ok().flatten();
        // Same rule as the kubelet: any code from 200 up to 399.
        if answer.is_some_and(|answer| (200..400).contains(&answer.status().as_u16())) {
            (self.failures, self.successes) = (0, self.successes + 1);
            (self.successes >= self.successes_needed).then_some(true)
        } else {
            (self.failures, self.successes) = (self.failures + 1, 0);
            (self.failures >= self.failures_allowed).then_some(false)
        }
    }
}

fn named(container: &Container, name: &str) -> anyhow::Result<u16> {
    let mut ports = container.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some(name));
    let port = port.with_context(|| format!("the container has no port named {name:?}"))?;
    Ok(u16::try_from(port.container_port)?)
}
