//! A manager whose API server is away: it waits, and says so.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
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

/// A manager without an API server, and its answer at `/readyz`.
fn start(scratch: &Scratch, stderr: Stdio) -> (Child, u16, String) {
    let kubeconfig = scratch.file("config", &kubeconfig_of("http://127.0.0.1:9"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut manager = Command::new(env!("CARGO_BIN_EXE_manager"));
    manager.args([format!("--health-probe-bind-address=127.0.0.1:{port}")]);
    manager.env_clear().env("KUBECONFIG", kubeconfig).env("PROMETHEUS_BASE_URL", "http://127.0.0.1:9");
    let mut manager = manager.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    let began = Instant::now();
    let ready = loop {
        match get(port, "/readyz") {
            Some(answer) => break answer,
            None => assert!(began.elapsed() < DEADLINE, "no answer; ended: {:?}", manager.try_wait()),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    (manager, port, ready)
}

/// It lives after its second attempt, which follows two seconds after the first, and ends when it is asked to.
fn end(mut manager: Child) -> Output {
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(manager.try_wait().unwrap(), None, "it ended");
    let stopped = Command::new("kill").arg(manager.id().to_string()).status().unwrap();
    let out = manager.wait_with_output().unwrap();
    assert!(stopped.success() && out.status.success(), "{out:?}");
    out
}

#[test]
fn a_replica_waits_for_the_api_server_instead_of_crashing() {
    let (manager, port, ready) = start(&Scratch::new("waiting"), Stdio::piped());
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("[-]the API server answers"), "{ready}");
    let alive = get(port, "/healthz").unwrap();
    assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");
    let out = end(manager);
    let log = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(log.contains("Waiting for the API server: cannot read the ConfigMap"), "{log}");
    assert!(log.contains("\"attempts\":2") || log.contains("attempts=2"), "{log}");
}

/// Each line fails with ENOSPC.
#[test]
fn a_full_disk_under_its_log_ends_no_replica() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (manager, ..) = start(&Scratch::new("full-disk"), full.into());
    end(manager);
}
