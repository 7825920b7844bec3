//! `wva certs`: output of `make` passes `inspect`, faults are found, and no key is printed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::{RunResult, Scratch, assert_contains, run};

fn certs(args: &[&str], input: &str) -> RunResult {
    run(&[&["certs"], args].concat(), input)
}

/// Asserts the status and parts of the output on either stream; returns the output.
#[track_caller]
fn check_output(out: RunResult, code: i32, parts: &[&str]) -> String {
    let out = out.ends(code);
    let output = out.stdout + &out.stderr;
    assert_contains(&output, parts);
    output
}

/// Makes certificates in a folder of the directory, which does not exist at first.
fn make(scratch: &Scratch, folder: &str) -> RunResult {
    certs(&["make", "--namespace", "wva", "--service", "hook", "--out", &scratch.path(folder)], "")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(path)).unwrap()
}

fn secret() -> String {
    let out = certs(&["make", "--namespace", "wva", "--secret", "hook-ca", "--ca-lifetime", "72h"], "");
    out.ends(0).prints(&["kind: Secret", "name: hook-ca", "namespace: wva", "ca.crt:", "ca.key:"]).stdout
}

#[test]
fn made_files_match_and_are_not_overwritten() {
    let scratch = Scratch::new("certs-make");
    let make = || make(&scratch, "made");
    check_output(make(), 0, &["tls.crt", "tls.key", "ca.crt"]);
    let [cert, key, ca] = ["made/tls.crt", "made/tls.key", "made/ca.crt"].map(|name| scratch.path(name));
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let output = check_output(
        certs(&["inspect", &cert, &key, &ca], ""),
        0,
        &[
            "hook.wva.svc,hook.wva.svc.cluster.local,hook.wva",
            "serving certificate",
            "current CA",
            "in 89 days",
            "tls.crt verifies",
            "is the key of",
        ],
    );
    let secret = read(&key);
    assert!(secret.lines().all(|line| !output.contains(line)), "a key was printed:\n{output}");

    let before = read(&cert);
    check_output(make(), 1, &["tls.crt exists already", "another directory"]);
    assert_eq!(read(&cert), before);
    std::fs::remove_file(&cert).unwrap();
    check_output(make(), 1, &["tls.key exists already"]);
    assert!(!Path::new(&cert).exists(), "all or nothing");
}

#[test]
fn inspects_secret_and_configuration_from_stdin() {
    let secret = secret();
    let value: serde_json::Value = serde_saphyr::from_str(&secret).unwrap();
    let ca = value["data"]["ca.crt"].as_str().unwrap();
    let output = check_output(
        certs(&["inspect", "-"], &secret),
        0,
        &["Secret wva/hook-ca: ca.crt", "current CA", "in 2 days"],
    );
    assert!(!output.contains(value["data"]["ca.key"].as_str().unwrap()));

    let configuration = |bundle: &str| {
        format!(
            "apiVersion: v1\nkind: List\nitems:\n- kind: ValidatingWebhookConfiguration\n  metadata: {{name: w}}\n  webhooks:\n  - {{name: a.b.c, clientConfig: {{caBundle: {bundle}}}}}\n  - {{name: unregistered, clientConfig: {{}}}}\n"
        )
    };
    let both = |bundle: &str| format!("{secret}---\n{}", configuration(bundle));
    check_output(
        certs(&["inspect", "-"], &both(ca)),
        0,
        &["ValidatingWebhookConfiguration w, a.b.c: caBundle"],
    );
    let other = self::secret();
    let other: serde_json::Value = serde_saphyr::from_str(&other).unwrap();
    let other = other["data"]["ca.crt"].as_str().unwrap();
    check_output(
        certs(&["inspect", "-"], &both(other)),
        1,
        &["FINDING:", "does not contain the CA of Secret wva/hook-ca: ca.crt"],
    );
    check_output(certs(&["inspect", "-"], &both("bm9uc2Vuc2U=")), 1, &["holds no certificate"]);
    // JSON, as `kubectl -o json` prints it.
    check_output(certs(&["inspect", "-"], &value.to_string()), 0, &["current CA"]);
}

#[test]
fn faults_end_with_1() {
    let scratch = Scratch::new("certs-faults");
    for folder in ["one", "other"] {
        check_output(make(&scratch, folder), 0, &[]);
    }
    let cert = scratch.path("one/tls.crt");
    for (file, part) in [("other/ca.crt", "does not verify"), ("other/tls.key", "is not the key of")] {
        check_output(certs(&["inspect", &cert, &scratch.path(file)], ""), 1, &[part]);
    }
    for (what, input, part) in [
        ("nothing", "", "is empty"),
        ("garbage", "garbage", "holds no certificate in PEM"),
        ("an object without any", "kind: ConfigMap\nmetadata: {name: a}\n", "contains no certificate"),
        (
            "half a block",
            "-----BEGIN CERTIFICATE-----\nAAAA\n",
            "holds no X.509 certificate in its PEM block 1",
        ),
    ] {
        let output = check_output(certs(&["inspect", "-"], input), 1, &["FINDING:", part]);
        assert!(!output.is_empty(), "{what}");
    }
}

#[test]
fn wrong_usage_ends_with_2_and_invalid_value_is_named() {
    check_output(certs(&[], ""), 2, &["inspect", "make"]);
    check_output(certs(&["inspect"], ""), 2, &["<PATH>"]);
    check_output(certs(&["inspect", "/no/such/file"], ""), 2, &["/no/such/file: cannot read the file"]);
    check_output(certs(&["make", "--namespace", "a", "--service", "b"], ""), 2, &["--out"]);
    check_output(certs(&["make", "--namespace", "a", "--out", "x"], ""), 2, &["--service"]);
    let make = |namespace: &str, life: &str| {
        certs(&["make", "--namespace", namespace, "--secret", "x", "--ca-lifetime", life], "")
    };
    check_output(make("Not A Name", "1h"), 2, &["--namespace", "\"Not A Name\"", "lower-case"]);
    check_output(make("a", "soon"), 2, &["--ca-lifetime", "\"soon\""]);
    check_output(make("a", "1s"), 2, &["--ca-lifetime", "1s is too short", "1m"]);
}
