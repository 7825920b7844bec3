//! The install under faults: two replicas behind their Service, a proxy in front of Prometheus, and steady reviews.
//! Causes each fault, and ends it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::sync::RwLock;
use tokio::time::timeout;
use wva_testbed::install::{InstallOptions, program};
use wva_testbed::replicas::Replicas;
use wva_testbed::reviews::{Reviews, Tally};
use wva_testbed::{Component, FaultProxy, ProxyMode, Signal, Testbed, eventually};

use super::kind::Kind;
use super::refusals::{failing_webhook, throttle};
use crate::bench::count;
use crate::usage::{Usage, open_files, threads};

const BOTH: [usize; 2] = [0, 1];
/// Reviews per second.
const REVIEWS: u32 = 10;
/// How late a slow Prometheus answers.
const SLOW: Duration = Duration::from_secs(5);
/// Interval at which watches are cut.
const CUT: Duration = Duration::from_secs(5);
/// Time limit until a replica leads.
const LEADS: Duration = Duration::from_mins(2);

/// Longest look at a page: a frozen replica answers nothing.
const LOOK: Duration = Duration::from_secs(2);

/// The install and its surroundings.
pub(crate) struct Site<'a> {
    pub(crate) testbed: &'a Testbed,
    replicas: RwLock<Replicas<'a>>,
    proxy: FaultProxy,
    reviews: Reviews,
    /// Namespace of the reviews.
    judged: String,
}

/// What both replicas show at one moment.
pub(super) struct ReplicaPages {
    /// Value of the variant's series for each replica that has it.
    pub(super) published: Vec<f64>,
    /// Resident memory of the larger process, KiB.
    pub(super) resident: u64,
}

/// What a process holds.
pub(crate) struct Vitals {
    /// Resident memory, KiB.
    pub(crate) resident: f64,
    pub(crate) descriptors: f64,
    pub(crate) threads: f64,
    /// Series at `/metrics` of the leader.
    pub(crate) series: Option<f64>,
}

impl<'a> Site<'a> {
    pub(crate) async fn start(testbed: &'a Testbed, options: InstallOptions) -> anyhow::Result<Self> {
        let behind = testbed.prometheus_url()?;
        let trusted = testbed.serving_certificate("prometheus", &["localhost"])?;
        let wrong = testbed.serving_certificate("stranger", &["localhost"])?;
        let to = behind.strip_prefix("http://").context("an URL without a scheme")?;
        let proxy = FaultProxy::open_https(to, &trusted, &wrong).await?;
        let ca = trusted.join("ca.crt").display().to_string();
        let https = [("PROMETHEUS_BASE_URL", proxy.url()), ("PROMETHEUS_CA_CERT_PATH", ca)];
        let https = https.each_ref().map(|(key, value)| (*key, value.as_str()));
        let options = options.with(&https);
        let mut replicas = Replicas::install(testbed, options, "judged").await?;
        replicas.start_all(&BOTH).await?;
        replicas.wait_ready(&BOTH).await?;
        replicas.wait_webhooks().await?;
        let judged = replicas.namespace().to_owned();
        let reviews = Reviews::start(testbed, &judged, REVIEWS).await?;
        Ok(Self { testbed, replicas: RwLock::new(replicas), proxy, reviews, judged })
    }

    /// Reviews so far.
    pub(crate) fn reviews(&self) -> Tally {
        self.reviews.so_far()
    }

    /// What the replicas show of a variant. A replica that does not answer shows nothing.
    pub(super) async fn pages(&self, labels: &[(&str, &str)]) -> anyhow::Result<ReplicaPages> {
        let replicas = self.replicas.read().await;
        let mut pages = ReplicaPages { published: Vec::new(), resident: 0 };
        for index in BOTH {
            let Ok(page) = replicas.metrics(index).await else { continue };
            pages.published.extend(program::series(&page, "wva_desired_replicas", labels)?);
            let usage = Usage::read(replicas.process(index)?.pid());
            pages.resident = pages.resident.max(usage.map_or(0, |usage| usage.resident));
        }
        Ok(pages)
    }

    /// Waits until a replica publishes this number of the variants `variant-*`; returns how long that took.
    pub(crate) async fn wait_published(&self, variants: usize, within: Duration) -> anyhow::Result<Duration> {
        let began = tokio::time::Instant::now();
        eventually("the series of all variants", within, async || {
            let replicas = self.replicas.read().await;
            let mut found = 0;
            for index in BOTH {
                let page = timeout(LOOK, replicas.metrics(index)).await;
                let Ok(Ok(page)) = page else { continue };
                let is_ours = |line: &&str| {
                    line.starts_with("wva_desired_replicas{") && line.contains("variant_name=\"variant-")
                };
                found = found.max(page.lines().filter(is_ours).count());
            }
            ensure!(found >= variants, "{found} have one");
            Ok(())
        })
        .await?;
        Ok(began.elapsed())
    }

    /// Freezes the leader; returns its index.
    pub(crate) async fn freeze_leader(&self) -> anyhow::Result<usize> {
        let replicas = self.replicas.read().await;
        let leader = leader(&replicas).await?;
        replicas.signal(leader, Signal::Stop)?;
        Ok(leader)
    }

    /// Ends [`Site::freeze_leader`].
    pub(crate) async fn wake(&self, index: usize) -> anyhow::Result<()> {
        self.replicas.read().await.signal(index, Signal::Cont)
    }

    /// What each process holds now.
    pub(crate) async fn vitals(&self) -> anyhow::Result<Vec<(usize, Vitals)>> {
        let replicas = self.replicas.read().await;
        let mut all = Vec::new();
        for index in BOTH {
            let pid = replicas.process(index)?.pid();
            let page = timeout(LOOK, replicas.metrics(index)).await;
            let page = page.ok().and_then(Result::ok).filter(|page| page.contains("\nwva_leader 1"));
            let series = page.map(|page| page.lines().filter(|line| !line.starts_with('#')).count());
            let vitals = Vitals {
                resident: count(usize::try_from(Usage::read(pid)?.resident)?),
                descriptors: count(open_files(pid)?),
                threads: count(usize::try_from(threads(pid)?)?),
                series: series.map(count),
            };
            all.push((index, vitals));
        }
        Ok(all)
    }

    /// Logs of both replicas.
    pub(crate) async fn logs(&self) -> anyhow::Result<Vec<String>> {
        let replicas = self.replicas.read().await;
        let log = |index| {
            let path = replicas.process(index)?.log_path();
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        BOTH.into_iter().map(log).collect()
    }

    /// The leader's `/explain` of a namespace, as JSON.
    pub(super) async fn explain(&self, namespace: &str) -> anyhow::Result<Value> {
        let replicas = self.replicas.read().await;
        let port = replicas.port(leader(&replicas).await?, "debug")?;
        let url = format!("http://127.0.0.1:{port}/explain?format=json&namespace={namespace}");
        let (_, text) = wva_testbed::install::get(&url).await?;
        serde_json::from_str(&text).context("no explanation")
    }

    /// Causes a fault that affects every model, keeps it for `lasts`, and ends it. `namespace`: of the model.
    pub(crate) async fn suffer(&self, kind: Kind, lasts: Duration, namespace: &str) -> anyhow::Result<()> {
        if let Some(mode) = answers_of(kind) {
            return self.behind(mode, lasts).await;
        }
        match kind {
            Kind::Down => self.without(Component::Prometheus, lasts, Duration::ZERO).await,
            Kind::ApiserverStopped => self.without(Component::Apiserver, lasts / 3, lasts * 2 / 3).await,
            Kind::Frozen => self.frozen(Component::Prometheus, lasts, Duration::ZERO).await,
            Kind::EtcdFrozen => self.frozen(Component::Etcd, lasts / 2, lasts / 2).await,
            Kind::EtcdFull => self.full_etcd(lasts).await,
            Kind::EtcdRestored => self.restored_etcd(lasts).await,
            Kind::Throttled => self.with(&throttle(), lasts).await,
            Kind::WritesFail => self.with(&failing_webhook(namespace), lasts).await,
            Kind::WatchesCut => self.cut_watches(lasts).await,
            Kind::ClockAhead => self.with_clock("+1h", lasts).await,
            Kind::ClockBehind => self.with_clock("-1h", lasts).await,
            Kind::LeaderKilled => self.killed_leader(lasts).await,
            Kind::ManyReviews => self.many_reviews(lasts).await,
            Kind::RolloutAndDrain => self.roll_out_and_drain(namespace, lasts).await,
            _ => anyhow::bail!("{kind:?} is a fault of one model"),
        }
    }

    /// Stops a component for this time, and waits for `then`.
    async fn without(&self, component: Component, lasts: Duration, then: Duration) -> anyhow::Result<()> {
        self.testbed.stop(component).await?;
        tokio::time::sleep(lasts).await;
        self.testbed.start_again(component).await?;
        tokio::time::sleep(then).await;
        Ok(())
    }

    /// Freezes a component for this time, and waits for `then`.
    async fn frozen(&self, component: Component, lasts: Duration, then: Duration) -> anyhow::Result<()> {
        self.testbed.pause(component)?;
        tokio::time::sleep(lasts).await;
        self.testbed.resume(component)?;
        tokio::time::sleep(then).await;
        Ok(())
    }

    async fn full_etcd(&self, lasts: Duration) -> anyhow::Result<()> {
        self.testbed.etcd_is_full(true).await?;
        tokio::time::sleep(lasts).await;
        self.testbed.etcd_is_full(false).await
    }

    async fn restored_etcd(&self, lasts: Duration) -> anyhow::Result<()> {
        let backup = self.testbed.back_up_etcd().await?;
        tokio::time::sleep(lasts / 2).await;
        self.testbed.restore_etcd(&backup).await?;
        tokio::time::sleep(lasts / 2).await;
        Ok(())
    }

    async fn killed_leader(&self, lasts: Duration) -> anyhow::Result<()> {
        let killed = {
            let mut replicas = self.replicas.write().await;
            let killed = leader(&replicas).await?;
            replicas.kill(killed)?;
            killed
        };
        tokio::time::sleep(lasts / 3).await;
        self.replicas.write().await.start(killed).await?;
        tokio::time::sleep(lasts * 2 / 3).await;
        Ok(())
    }

    async fn many_reviews(&self, lasts: Duration) -> anyhow::Result<()> {
        let more = Reviews::start(self.testbed, &self.judged, REVIEWS * 9).await?;
        tokio::time::sleep(lasts).await;
        let tally = more.end().await?;
        let faults = tally.faults();
        ensure!(faults.is_empty(), "of {} more reviews: {}", tally.sent(), faults.join("; "));
        Ok(())
    }

    async fn behind(&self, mode: ProxyMode, lasts: Duration) -> anyhow::Result<()> {
        self.proxy.set(mode);
        tokio::time::sleep(lasts).await;
        self.proxy.set(ProxyMode::Open);
        Ok(())
    }

    /// Keeps objects in the cluster for this time.
    async fn with(&self, objects: &Value, lasts: Duration) -> anyhow::Result<()> {
        let objects = objects.to_string();
        self.testbed.apply(&objects).await?;
        tokio::time::sleep(lasts).await;
        let delete = ["delete", "-f", "-", "--wait=false"];
        self.testbed.kubectl_with(&delete, &objects).await?.success().map(drop)
    }

    async fn cut_watches(&self, lasts: Duration) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + lasts;
        while tokio::time::Instant::now() < end {
            let replicas = self.replicas.read().await;
            for index in BOTH {
                replicas.cut(index);
                replicas.heal(index);
            }
            drop(replicas);
            tokio::time::sleep(CUT).await;
        }
        Ok(())
    }

    /// Starts a replica with another clock and makes it the leader; at the end it gets the right clock again.
    async fn with_clock(&self, offset: &str, lasts: Duration) -> anyhow::Result<()> {
        let [wrong, right] = BOTH;
        let library = faketime()?;
        let preload = [
            ("LD_PRELOAD", library.to_str().context("the path of libfaketime is not UTF-8")?),
            ("FAKETIME", offset),
            // A machine whose clock is wrong still counts seconds.
            ("DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        self.restart(wrong, &preload).await?;
        self.restart(right, &[]).await?;
        eventually("the replica with the wrong clock to lead", LEADS, async || {
            let found = leader(&*self.replicas.read().await).await?;
            ensure!(found == wrong, "wva-{found} leads");
            Ok(())
        })
        .await?;
        tokio::time::sleep(lasts).await;
        self.restart(wrong, &preload.map(|(key, _)| (key, ""))).await
    }

    /// Replaces a replica as a Deployment does, with these settings from now on.
    async fn restart(&self, index: usize, settings: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut replicas = self.replicas.write().await;
        for (key, value) in settings {
            replicas.set(index, key, value).await?;
        }
        replicas.terminate(index)?;
        replicas.ended(index).await?;
        replicas.start(index).await?;
        replicas.wait_ready(&[index]).await
    }

    async fn roll_out_and_drain(&self, namespace: &str, lasts: Duration) -> anyhow::Result<()> {
        let kubectl = async |args: &[&str]| self.testbed.kubectl(args).await?.success();
        kubectl(&["-n", namespace, "rollout", "restart", "deployment"]).await?;
        let nodes = kubectl(&["get", "nodes", "-o", "name"]).await?;
        let half: Vec<&str> = nodes.lines().filter(|node| node.contains("h100")).step_by(2).collect();
        ensure!(!half.is_empty(), "no node has h100 in its name: {nodes}");
        for node in &half {
            let name = node.trim_start_matches("node/");
            kubectl(&["drain", name, "--ignore-daemonsets", "--force", "--timeout=60s"]).await?;
        }
        tokio::time::sleep(lasts).await;
        for node in half {
            kubectl(&["uncordon", node.trim_start_matches("node/")]).await?;
        }
        Ok(())
    }
}

/// What the proxy answers in place of Prometheus, or does to its answers.
fn answers_of(kind: Kind) -> Option<ProxyMode> {
    match kind {
        Kind::Unavailable => Some(ProxyMode::Unavailable),
        Kind::Hung => Some(ProxyMode::Hung),
        Kind::Slow => Some(ProxyMode::Slow(SLOW)),
        Kind::Empty => Some(ProxyMode::Empty),
        Kind::OtherPods => Some(ProxyMode::OtherPods),
        Kind::ExpiredToken => Some(ProxyMode::Unauthorized),
        Kind::WrongCertificate => Some(ProxyMode::WrongCertificate),
        _ => None,
    }
}

async fn leader(replicas: &Replicas<'_>) -> anyhow::Result<usize> {
    for index in BOTH {
        if replicas.leads(index).await.is_ok_and(|leads| leads == Some(true)) {
            return Ok(index);
        }
    }
    anyhow::bail!("no replica leads")
}

/// The library of Debian's package faketime.
fn faketime() -> anyhow::Result<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").context("cannot read /usr/lib")?;
    let mut found = folders
        .filter_map(Result::ok)
        .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
        .filter(|library| library.exists());
    found.next().context("no libfaketimeMT.so.1 below /usr/lib: install Debian's package faketime")
}
