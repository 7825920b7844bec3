//! One model in a namespace, with a real picker, a real Envoy and emulated servers.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_crds::picker_report::{PickerPodReport, PickerReport};
use wva_testbed::fixtures::{VariantFixture, scale_to_zero_map};
use wva_testbed::install::get;
use wva_testbed::picker::pool_of_ranks;
use wva_testbed::{Fleet, FleetConfig, eventually};

use super::RouterTestbed;
use super::envoy::{Answer, Gateway};
use super::epp::{Epp, PICKER};
use crate::support::{Cluster, DEADLINE, find_condition, has_condition, target};

/// Name of the variant and its workload.
pub(super) const NAME: &str = "model";
/// Retention period of scale to zero.
pub(super) const RETENTION: Duration = Duration::from_secs(8);
/// Duration of a request at a pod.
const REQUEST: Duration = Duration::from_millis(100);
/// Longest time from a request to `/scale`. It takes a second, and more while other programs use both cores.
const SCALED: Duration = Duration::from_secs(15);

/// Differences between the cases.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, set by its name")]
pub(super) struct SiteOptions {
    pub(super) replicas: u32,
    pub(super) has_flow_control: bool,
    /// The picker may ask the API server for reviews of tokens.
    pub(super) may_review: bool,
    /// The pod of the picker names its metrics port; else only its arguments do.
    pub(super) names_port: bool,
    /// wva sends its token to the namespace, and the token opens `/metrics`.
    pub(super) has_token: bool,
}

/// A model at zero whose picker is set up right.
pub(super) const AT_ZERO: SiteOptions =
    SiteOptions { replicas: 0, has_flow_control: true, may_review: true, names_port: true, has_token: true };

/// A model with its servers, its picker and its gateway.
pub(super) struct Site<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) namespace: String,
    pub(super) model: VariantFixture,
    pub(super) fleet: Fleet,
    pub(super) epp: Epp,
    pub(super) gateway: Gateway,
}

/// Times since a request that woke the model.
pub(super) struct WakeTimes {
    scaled: Duration,
    answered: Duration,
}

impl fmt::Display for WakeTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scaled, answered) = (self.scaled.as_secs_f64(), self.answered.as_secs_f64());
        write!(f, "/scale after {scaled:.1} s, answered after {answered:.1} s")
    }
}

impl<'a> Site<'a> {
    /// Deploys a model in a new namespace.
    pub(super) async fn start(
        testbed: &'a RouterTestbed,
        name: &str,
        options: SiteOptions,
    ) -> anyhow::Result<Self> {
        let namespace = testbed.cluster.testbed.namespace(name).await?;
        Self::start_in(testbed, namespace, options).await
    }

    /// The same in this namespace.
    pub(super) async fn start_in(
        testbed: &'a RouterTestbed,
        namespace: String,
        options: SiteOptions,
    ) -> anyhow::Result<Self> {
        let cluster = &testbed.cluster;
        if options.has_token {
            testbed.label(&namespace).await?;
            testbed.allow_metrics().await?;
        }
        let model = VariantFixture::new(&namespace, NAME).replicas(options.replicas);
        let fleet = Fleet::start(&cluster.testbed, FleetConfig { run_time: REQUEST, ..model.fleet() })?;
        let model = model.port(fleet.port());
        cluster.testbed.apply(&pool_of_ranks(&namespace, PICKER, &[fleet.port()])).await?;
        let epp = Epp::start(testbed, &namespace, options).await?;
        let gateway = Gateway::start(testbed, &namespace, &epp).await?;
        let site = Self { cluster, namespace, model, fleet, epp, gateway };
        if options.replicas == 0 {
            site.allow_zero().await?;
        }
        cluster.testbed.apply(&site.model.all()).await?;
        Ok(site)
    }

    /// Switches scale to zero on. Without it, the minimum of the HPA starts a replica.
    pub(super) async fn allow_zero(&self) -> anyhow::Result<()> {
        self.cluster.testbed.apply(&scale_to_zero_map(&self.namespace, RETENTION)).await
    }

    pub(super) async fn replicas(&self) -> anyhow::Result<u64> {
        self.cluster.replicas(&self.namespace, NAME).await
    }

    /// Waits until `holds` is true of the variant.
    pub(super) async fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        self.cluster.wait_for(&self.namespace, NAME, what, holds).await
    }

    /// Waits until the message of the condition `OptimizationReady` contains this text.
    pub(super) async fn wait_for_message(&self, text: &str) -> anyhow::Result<()> {
        let contains = |va: &Value| {
            find_condition(va, "OptimizationReady")
                .is_ok_and(|condition| condition["message"].to_string().contains(text))
        };
        self.wait_for(&format!("say {text:?}"), contains).await.map(drop)
    }

    /// Waits until the model is at rest at zero, and requests would wake it.
    pub(super) async fn wait_at_zero(&self) -> anyhow::Result<()> {
        let is_at_rest = |va: &Value| {
            has_condition(va, "MetricsAvailable", ("True", "ScaleFromZero"))
                && has_condition(va, "OptimizationReady", ("True", "ScaleFromZeroMode"))
                && target(va) == Some(0)
        };
        eventually(&format!("{} to be at rest at 0", self.namespace), DEADLINE, async || {
            let va = self.cluster.variant(&self.namespace, NAME).await?;
            ensure!(is_at_rest(&va), "{}", va["status"]);
            let replicas = self.replicas().await?;
            ensure!(replicas == 0, "{replicas} replicas");
            Ok(())
        })
        .await
    }

    /// What wva last read of the picker.
    async fn report(&self) -> anyhow::Result<PickerPodReport> {
        let address = self.cluster.install.address("debug")?;
        let (status, text) = get(&format!("http://{address}/pickers")).await?;
        ensure!(status == 200, "/pickers answered {status}: {text}");
        let mut page: Value = serde_json::from_str(&text)?;
        let mut pickers: Vec<PickerReport> = serde_json::from_value(page["pickers"].take())?;
        pickers.retain(|picker| picker.namespace == self.namespace);
        let [picker] = &pickers[..] else { anyhow::bail!("{pickers:?}") };
        picker.pods.first().cloned().context("it knows no pod of the picker")
    }

    /// Waits until `holds` is true of what wva last read of the picker.
    pub(super) async fn wait_for_report(
        &self,
        what: &str,
        holds: impl Fn(&PickerPodReport) -> bool,
    ) -> anyhow::Result<PickerPodReport> {
        eventually(&format!("the picker of {} to {what}", self.namespace), DEADLINE, async || {
            let report = self.report().await?;
            ensure!(holds(&report), "{report:?}");
            Ok(report)
        })
        .await
    }

    /// Waits until wva has the page of the picker.
    pub(super) async fn wait_until_read(&self) -> anyhow::Result<PickerPodReport> {
        self.wait_for_report("be read", |pod| pod.error.is_none() && pod.is_picker).await
    }

    /// Waits until wva cannot read the picker for this reason, and has this advice.
    pub(super) async fn wait_for_refusal(&self, error: &str, advice: &str) -> anyhow::Result<()> {
        let contains = |text: Option<&str>, part: &str| text.is_some_and(|text| text.contains(part));
        let is_refused = |pod: &PickerPodReport| {
            contains(pod.error.as_deref(), error) && contains(pod.advice.as_deref(), advice)
        };
        self.wait_for_report(&format!("answer {error}"), is_refused).await.map(drop)
    }

    /// Sends a request to the model at zero: it waits, wakes the model, and its first pod answers.
    pub(super) async fn wake(&self, asked: &str) -> anyhow::Result<WakeTimes> {
        let began = Instant::now();
        let scaled = async {
            self.cluster.wait_for_replicas(&self.namespace, NAME, 1).await?;
            anyhow::Ok(began.elapsed())
        };
        let answered = async {
            let answer = self.gateway.send(asked, None).await?;
            anyhow::Ok((answer, began.elapsed()))
        };
        let (scaled, (answer, answered)) = tokio::try_join!(scaled, answered)?;
        check_answer(&answer, asked)?;
        ensure!(scaled < SCALED, "/scale was written {scaled:?} after the request");
        Ok(WakeTimes { scaled, answered })
    }

    /// Waits until a pod answers. The picker may not know it yet.
    pub(super) async fn wait_until_answered(&self) -> anyhow::Result<()> {
        let asked = &self.model.model;
        eventually(&format!("a pod of {} to answer", self.namespace), DEADLINE, async || {
            check_answer(&self.gateway.send(asked, None).await?, asked)
        })
        .await
    }
}

/// A pod of the model has answered.
pub(super) fn check_answer(answer: &Answer, asked: &str) -> anyhow::Result<()> {
    ensure!(answer.status == 200, "{answer:?}");
    let body: Value = serde_json::from_str(&answer.body).with_context(|| format!("{answer:?}"))?;
    let is_from_pod = body["id"].as_str().is_some_and(|id| id.starts_with(&format!("cmpl-{NAME}-")));
    ensure!(is_from_pod && body["model"] == asked, "{body}");
    Ok(())
}
