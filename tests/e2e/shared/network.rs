//! Nodes and networks: a kernel without IPv6, by a shim with its error, and a real forward proxy on loopback between the
//! program and the API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::manifests::account;
use wva_testbed::install::program::Program;
use wva_testbed::install::{InstallOptions, SYSTEM};
use wva_testbed::{CommandOutput, Process, Testbed, Tools, eventually, free_port, run};

use crate::support::{DEADLINE, install_options, repository_path};

const LIMIT: Duration = Duration::from_mins(1);
/// A name of the API server's certificate, which does not resolve here.
const API_SERVER: &str = "kubernetes.default.svc";
/// A host that does not resolve anywhere.
const PROMETHEUS: &str = "prometheus.invalid";

/// A second release for its own namespace: the controller of the group keeps its Lease and its variants.
async fn release(testbed: &Testbed, name: &str) -> anyhow::Result<(InstallOptions, PathBuf)> {
    let mut options = install_options();
    options.release = Some(name.to_owned());
    let account = account(testbed, &options).await?;
    let namespace = options.named(SYSTEM);
    let kubeconfig = testbed.service_account_kubeconfig(&namespace, &account).await?;
    Ok((options.with(&[("WATCH_NAMESPACE", &namespace)]), kubeconfig))
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_listens_without_ipv6() -> anyhow::Result<()> {
    let testbed = &crate::support::cluster().await?.testbed;
    let shim = testbed.data().join("no_ipv6.so");
    let mut compile = tokio::process::Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&shim);
    compile.arg(repository_path("tests/fixtures/shims/no_ipv6.c")).arg("-ldl");
    run("cc", compile, "", LIMIT).await?.success()?;
    let shim = shim.to_str().context("the path is not UTF-8")?;
    let (options, kubeconfig) = release(testbed, "no-ipv6").await?;
    let all =
        ["WEBHOOK_BIND_ADDRESS", "METRICS_BIND_ADDRESS", "HEALTH_PROBE_BIND_ADDRESS"].map(|key| (key, ":0"));
    let options = options.with(&all);
    let with_shim = options.clone().with(&[("LD_PRELOAD", shim)]);
    let mut runs = vec![(with_shim, "0.0.0.0:")];
    // Shows that the shim makes the difference, where the machine has IPv6.
    if std::net::TcpListener::bind("[::]:0").is_ok() {
        runs.push((options, "[::]:"));
    }
    for (options, wanted) in runs {
        let program = Program::start(testbed, &options, "no-ipv6", "no-ipv6", &kubeconfig).await?;
        for server in ["admission", "metrics", "health"] {
            let address = program.address(server)?;
            ensure!(address.starts_with(wanted), "{server} listens on {address}, not {wanted}");
        }
        let health = format!("http://127.0.0.1:{}/healthz", program.port("health")?);
        let (status, text) = wva_testbed::install::get(&health).await?;
        ensure!(status == 200, "/healthz answered {status}: {text}");
    }
    Ok(())
}

/// The proxy, and the requests that it got.
struct Proxy {
    process: Process,
    url: String,
}

impl Proxy {
    async fn start(testbed: &Testbed) -> anyhow::Result<Self> {
        let program = tokio::task::spawn_blocking(|| Tools::on_request("proxy")).await??;
        let port = free_port()?;
        let listen = format!("-listen=127.0.0.1:{port}");
        let log = testbed.logs().join("proxy.log");
        let process = Process::spawn("proxy", &program, &[&listen], &[], &log)?;
        eventually("the proxy to listen", DEADLINE, async || {
            Ok(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.map(drop)?)
        })
        .await?;
        Ok(Self { process, url: format!("http://127.0.0.1:{port}") })
    }

    /// Number of requests for a host so far.
    fn requests(&self, host: &str) -> usize {
        self.process.log().lines().filter(|line| line.contains(&format!(" {host}"))).count()
    }
}

/// Writes a kubeconfig whose API server has a name, and a proxy if there is one.
fn named_server(kubeconfig: &Path, file: &str, proxy: Option<&str>) -> anyhow::Result<PathBuf> {
    let mut config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    let cluster = &mut config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().context("no server")?;
    cluster["server"] = server.replace("127.0.0.1", API_SERVER).into();
    if let Some(proxy) = proxy {
        cluster["proxy-url"] = proxy.into();
    }
    let path = kubeconfig.with_file_name(file);
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

async fn wva(args: &[&str], kubeconfig: &Path, env: &[(&str, &str)]) -> anyhow::Result<CommandOutput> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_wva"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.args(args).env("KUBECONFIG", kubeconfig).envs(env.iter().copied());
    run(&format!("wva {args:?}"), command, "", LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_manager_use_a_forward_proxy() -> anyhow::Result<()> {
    let testbed = &crate::support::cluster().await?.testbed;
    let proxy = Proxy::start(testbed).await?;
    let admin = testbed.admin_kubeconfig();
    let named = named_server(admin, "named.kubeconfig", None)?;
    let with_url = named_server(admin, "proxied.kubeconfig", Some(&proxy.url))?;
    let variable = ("HTTPS_PROXY", proxy.url.as_str());
    let reaches = |ran: &CommandOutput| ran.stdout.contains("Server: Kubernetes v");
    let commands: [&[&str]; 5] =
        [&["version"], &["status", "-A"], &["doctor", "-A"], &["migrate", "-A"], &["run", "--print-config"]];
    for args in commands {
        for (kubeconfig, env) in [(&with_url, vec![]), (&named, vec![variable])] {
            let before = proxy.requests(API_SERVER);
            let ran = wva(args, kubeconfig, &env).await?;
            ensure!(
                proxy.requests(API_SERVER) > before,
                "wva {args:?} with {env:?} went past the proxy: {ran:?}"
            );
            ensure!(
                reaches(&ran) || args != ["version"],
                "the proxy does not lead to the API server: {ran:?}"
            );
        }
    }
    // Not through the proxy: NO_PROXY, and a loopback address. The first then has no address.
    let seen = proxy.requests("");
    let ran = wva(&["version"], &named, &[variable, ("NO_PROXY", API_SERVER)]).await?;
    ensure!(!reaches(&ran), "NO_PROXY is not honoured: {ran:?}");
    let ran = wva(&["version"], admin, &[variable]).await?;
    ensure!(reaches(&ran), "a loopback address is not reached: {ran:?}");
    ensure!(proxy.requests("") == seen, "the proxy got a request: {}", proxy.process.log_tail(3));

    let prometheus = testbed.prometheus_url()?.replace("127.0.0.1", PROMETHEUS);
    let (options, kubeconfig) = release(testbed, "by-proxy").await?;
    // Without a variant nothing is queried.
    testbed.apply(&VariantFixture::new(&options.named(SYSTEM), "a").all()).await?;
    let kubeconfig = named_server(&kubeconfig, "by-proxy.kubeconfig", None)?;
    let env = [variable, ("HTTP_PROXY", &proxy.url), ("PROMETHEUS_BASE_URL", &prometheus)];
    let before = proxy.requests(API_SERVER);
    let program = Program::start(testbed, &options.with(&env), "by-proxy", "by-proxy", &kubeconfig).await?;
    eventually("the manager to be ready and to query Prometheus", DEADLINE, async || {
        program.is_ready().await?;
        ensure!(proxy.requests(API_SERVER) > before, "no request to the API server through the proxy");
        ensure!(proxy.requests(PROMETHEUS) > 0, "no query of Prometheus through the proxy");
        Ok(())
    })
    .await
    .with_context(|| program.evidence())
}
