//! The commands in README.md and docs/getting-started/quickstart.md, run as printed on an unprepared cluster.
//! Why a control plane of its own: a kubelet runs every pod, and only the commands create objects.
#![expect(clippy::print_stdout, reason = "the transcript is for the person who runs the test")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::time::Instant;
use wva_testbed::{Helm, Kubelet, NodeGroup, Options, Pods, Testbed, eventually, run};

use crate::support::{DEADLINE, get_object, program_path, run_wva};

const README: &str = include_str!("../../README.md");
const QUICK_START: &str = include_str!("../../docs/getting-started/quickstart.md");
/// Namespace of the examples.
const DEMO: &str = "wva-demo";
/// Longest time for one command.
const LONGEST: Duration = Duration::from_mins(8);

/// Beginnings of commands that are not run, and their replacements.
const REPLACED: [(&str, &str); 8] = [
    ("make ", "the tests' own commands"),
    ("kind ", "the cluster is the testbed"),
    ("docker ", "the kubelet runs the program of this build"),
    ("helm upgrade --install wva oci://", "tests/release.sh installs a release from a registry"),
    ("curl -fsSL https://github.com/OWNER/", "tests/release.sh installs the program of a release"),
    ("helm repo add ", "no chart repository is available here"),
    ("helm install prometheus ", "the testbed's Prometheus scrapes by the same annotations"),
    ("kubectl logs ", "the kubelet has no server for logs: they are read from its files"),
];

/// Commands in the shell blocks of a section, one per line.
fn commands(page: &str, section: &str) -> Vec<String> {
    let from = page.find(&format!("\n## {section}")).map_or("", |at| &page[at + 1..]);
    let text = from.split("\n## ").next().unwrap_or_default();
    let blocks = text.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let lines = blocks.map(|block| block.replace("\\\n", " ")).collect::<Vec<_>>().join("\n");
    lines.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

/// A cluster with a Prometheus, as a reader of the pages has it.
struct Reader {
    testbed: Testbed,
    kubelet: Kubelet,
    /// `PATH` with kubectl and helm.
    path: String,
}

impl Reader {
    async fn start() -> anyhow::Result<Self> {
        let testbed = Testbed::start(Options {
            name: "front-door".to_owned(),
            nodes: vec![NodeGroup::new("cpu", 2, "none")],
            // As in the Prometheus of the quick start, and in the HPA controller of every cluster.
            scrape_interval: Duration::from_secs(15),
            hpa_sync: Duration::from_secs(15),
            kubelet: Some(Pods::Deployments),
            ..Options::default()
        })
        .await?;
        let kubelet = Kubelet::start(&testbed, &program_path()).await?;
        let helm = Helm::new(&testbed, "helm").await?;
        let folders = [testbed.tools().path("kubectl")?, helm.program()].map(|path| path.parent());
        let mut folders: Vec<&Path> = folders.into_iter().flatten().collect();
        let own: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
        folders.extend(own.iter().map(PathBuf::as_path));
        let path = std::env::join_paths(folders)?.into_string().ok().context("PATH is not UTF-8")?;
        let reader = Self { testbed, kubelet, path };
        reader.prometheus().await?;
        Ok(reader)
    }

    /// Creates the Service of the Prometheus chart, in front of the Prometheus of the testbed.
    async fn prometheus(&self) -> anyhow::Result<()> {
        let url = self.testbed.prometheus_url()?;
        let port: u16 = url.rsplit_once(':').context("no port")?.1.parse()?;
        let ports = json!([{"port": 80, "targetPort": port}]);
        let spec = json!({"type": "ExternalName", "externalName": "localhost", "ports": ports});
        let metadata = json!({"name": "prometheus-server", "namespace": "monitoring"});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        self.testbed.kubectl(&["create", "namespace", "monitoring"]).await?.success()?;
        self.testbed.apply(&service.to_string()).await
    }

    /// Runs the commands of a section as they are printed.
    async fn run_commands(&self, page: &str, section: &str) -> anyhow::Result<()> {
        let commands = commands(page, section);
        ensure!(!commands.is_empty(), "no commands in {section:?}");
        for line in commands {
            if let Some((_, instead)) = REPLACED.iter().find(|(begin, _)| line.starts_with(begin)) {
                println!("\n(not run: {instead})\n$ {line}");
                continue;
            }
            let mut command = tokio::process::Command::new("sh");
            command.args(["-c", &line]).env("PATH", &self.path);
            command.current_dir(env!("CARGO_MANIFEST_DIR"));
            command.env("KUBECONFIG", self.testbed.admin_kubeconfig());
            for home in ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
                command.env(home, self.testbed.data().join("helm"));
            }
            let ran = run(&line, command, "", LONGEST).await?;
            println!("\n$ {line}\n{}{}", ran.stdout, ran.stderr);
            ran.success()?;
        }
        Ok(())
    }

    /// Waits until the HPA follows the target of the example.
    async fn wait_for_hpa(&self) -> anyhow::Result<()> {
        eventually("the HPA to follow the variant", DEADLINE, async || {
            let hpa = get_object(&self.testbed, &["hpa", "llama-a100", "-n", DEMO]).await?;
            let metric = &hpa["status"]["currentMetrics"][0]["external"]["current"]["averageValue"];
            ensure!(metric == "1", "it reads {metric}: {}", hpa["status"]);
            let ready = self.ready().await?;
            ensure!(ready == 1, "{ready} replicas are ready");
            Ok(())
        })
        .await
        .with_context(|| self.kubelet.evidence())
    }

    /// Nothing is broken, also with `--prometheus`: the HPA reads the target from wva, which nothing scrapes.
    async fn doctor(&self) -> anyhow::Result<()> {
        let url = self.testbed.prometheus_url()?;
        let mut command = tokio::process::Command::new(program_path());
        command.args(["doctor", "-n", DEMO, "-o", "wide", "--prometheus", &url]);
        command.env("KUBECONFIG", self.testbed.admin_kubeconfig());
        let ran = run("wva doctor", command, "", LONGEST).await?;
        println!("\n$ wva doctor -n {DEMO} -o wide --prometheus {url}\n{}{}", ran.stdout, ran.stderr);
        ran.success().map(drop)
    }

    /// Checks before an install, with these options: exit code and text.
    async fn check_before_install(&self, options: &[&str], code: i32, parts: &[&str]) -> anyhow::Result<()> {
        let url = self.testbed.prometheus_url()?;
        let args = [&["doctor", "--pre", "--prometheus", &url], options].concat();
        let found = run_wva(&self.testbed, &args, "").await?;
        println!("\n$ wva {}\n{}{}", args.join(" "), found.stdout, found.stderr);
        let missing: Vec<&&str> = parts.iter().filter(|part| !found.stdout.contains(**part)).collect();
        ensure!(found.code == code && missing.is_empty(), "{missing:?} is missing in {found:?}");
        Ok(())
    }

    async fn ready(&self) -> anyhow::Result<u64> {
        let deployment = get_object(&self.testbed, &["deployment", "llama-a100", "-n", DEMO]).await?;
        Ok(deployment["status"]["readyReplicas"].as_u64().unwrap_or(0))
    }

    /// Lines that the load generator printed.
    async fn load(&self) -> anyhow::Result<Vec<Window>> {
        let pods = get_object(&self.testbed, &["pods", "-n", DEMO, "-l", "app=load"]).await?;
        let name = pods["items"][0]["metadata"]["name"].as_str().context("no load")?;
        Ok(self.kubelet.log(name).lines().filter_map(Window::parse).collect())
    }
}

/// A line of the load generator, about 10 s.
#[derive(Clone, Copy, Debug)]
struct Window {
    rate: f64,
    answered: u32,
}

impl Window {
    fn parse(line: &str) -> Option<Self> {
        let (begin, rest) = line.split_once(" requests/s: ")?;
        let rate = begin.split_whitespace().last()?.parse().ok()?;
        let answered = rest.split_once(" answered")?.0.parse().ok()?;
        Some(Self { rate, answered })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_commands_install_and_scale() -> anyhow::Result<()> {
    let reader = Reader::start().await?;
    let ready = [
        "you may create what the chart has", "none is installed", "free: wva can serve external metrics",
        "no series of a model server", "wva can be installed: 0 broken",
    ];
    reader.check_before_install(&[], 0, &ready).await?;
    let powerless = [
        "you may not create deployments in namespace elsewhere",
        "KEDA is not installed",
        "correct what is broken",
    ];
    reader.check_before_install(&["-n", "elsewhere", "--as", "a-reader"], 1, &powerless).await?;
    reader.run_commands(README, "Install").await?;
    reader.wait_for_hpa().await?;
    reader.check_before_install(&[], 0, &["wva is already installed", "served by "]).await?;
    reader.run_commands(QUICK_START, "5. Watch").await?;
    reader.run_commands(QUICK_START, "Remove it").await?;

    let began = Instant::now();
    for section in ["1. A cluster", "2. Prometheus", "3. wva", "4. A model"] {
        reader.run_commands(QUICK_START, section).await?;
    }
    let grown = eventually("as many requests to be answered as arrive", 4 * DEADLINE, async || {
        let windows = reader.load().await?;
        let answered: Vec<u32> = windows.iter().filter(|w| w.rate > 3.0).map(|w| w.answered).collect();
        let ready = reader.ready().await?;
        let (first, now) = (answered.iter().find(|n| **n > 0), answered.last());
        // 40 requests arrive in 10 s; a Poisson process rarely has fewer than 30. One replica answers 14.
        let has_grown = first.is_some_and(|n| *n < 20) && now.is_some_and(|n| *n >= 30);
        ensure!(has_grown && ready > 1, "{ready} replicas; answered in 10 s: {answered:?}");
        Ok(ready)
    });
    let grown = grown.await.with_context(|| reader.kubelet.evidence())?;
    println!(
        "\n{} s after the first command of the quick start: {grown} replicas",
        began.elapsed().as_secs()
    );
    reader.run_commands(QUICK_START, "5. Watch").await?;
    reader.doctor().await?;
    reader.run_commands(QUICK_START, "Remove it").await?;
    eventually("nothing of both to be left", DEADLINE, async || {
        let all = reader.testbed.kubectl(&["get", "all", "-A", "-o", "name"]).await?.success()?;
        let own = |name: &&str| name.contains("wva") || name.contains("llama");
        let left: Vec<&str> = all.lines().filter(own).collect();
        ensure!(left.is_empty(), "left after removal: {left:?}");
        Ok(())
    })
    .await
}
