//! A manager whose API server is away: it waits, and says so.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Scratch;
use super::cli::kubeconfig_of;

const DEADLINE: Duration = Duration::from_secs(30);

/// Status line and body of a plain request; `None`: no answer.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn a_replica_waits_for_the_api_server_instead_of_crashing() {
    let scratch = Scratch::new("waiting");
    let kubeconfig = scratch.file("config", &kubeconfig_of("http://127.0.0.1:9"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut manager = Command::new(env!("CARGO_BIN_EXE_manager"));
    manager.args([format!("--health-probe-bind-address=127.0.0.1:{port}")]);
    manager.env_clear().env("KUBECONFIG", kubeconfig).env("PROMETHEUS_BASE_URL", "http://127.0.0.1:9");
    let mut manager = manager.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let ready = loop {
        match get(port, "/readyz") {
            Some(answer) => break answer,
            None => assert!(began.elapsed() < DEADLINE, "no answer; ended: {:?}", manager.try_wait()),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("[-]the API server answers"), "{ready}");
    let alive = get(port, "/healthz").unwrap();
    assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");
    // The second attempt follows two seconds after the first.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(manager.try_wait().unwrap(), None, "it ended");
    let stopped = Command::new("kill").arg(manager.id().to_string()).status().unwrap();
    let out = manager.wait_with_output().unwrap();
    assert!(stopped.success() && out.status.success(), "{out:?}");
    let log = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(log.contains("Waiting for the API server: cannot read the ConfigMap"), "{log}");
    assert!(log.contains("\"attempts\":2") || log.contains("attempts=2"), "{log}");
}
