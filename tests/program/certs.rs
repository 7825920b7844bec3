//! `wva certs` as a user meets it: what is made can be inspected, what does not fit is found, and no key is printed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::{Finished, holds, run};

fn certs(args: &[&str], input: &str) -> Finished {
    run(&[&["certs"], args].concat(), input)
}

/// Asserts the status and parts of what a run says on either stream.
#[track_caller]
fn says(out: Finished, code: i32, parts: &[&str]) -> String {
    let out = out.ends(code);
    let said = out.stdout + &out.stderr;
    holds(&said, parts);
    said
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wva-certs-cli-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn make(&self) -> Finished {
        let out = self.0.display().to_string();
        certs(&["make", "--namespace", "wva", "--service", "hook", "--out", &out], "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(path)).unwrap()
}

fn secret() -> String {
    let out = certs(&["make", "--namespace", "wva", "--secret", "hook-ca", "--ca-lifetime", "72h"], "");
    out.ends(0).prints(&["kind: Secret", "name: hook-ca", "namespace: wva", "ca.crt:", "ca.key:"]).stdout
}

#[test]
fn what_is_made_fits_and_is_not_overwritten() {
    let folder = Folder::new("make");
    says(folder.make(), 0, &["tls.crt", "tls.key", "ca.crt"]);
    let (cert, key, ca) = (folder.file("tls.crt"), folder.file("tls.key"), folder.file("ca.crt"));
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let told = says(
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
    assert!(secret.lines().all(|line| !told.contains(line)), "a key was printed:\n{told}");

    let before = read(&cert);
    says(folder.make(), 1, &["tls.crt exists already", "another directory"]);
    assert_eq!(read(&cert), before);
    std::fs::remove_file(&cert).unwrap();
    says(folder.make(), 1, &["tls.key exists already"]);
    assert!(!Path::new(&cert).exists(), "all or nothing");
}

#[test]
fn a_secret_and_a_configuration_are_read_from_standard_input() {
    let secret = secret();
    let value: serde_json::Value = serde_saphyr::from_str(&secret).unwrap();
    let ca = value["data"]["ca.crt"].as_str().unwrap();
    let told = says(
        certs(&["inspect", "-"], &secret),
        0,
        &["Secret wva/hook-ca: ca.crt", "current CA", "in 2 days"],
    );
    assert!(!told.contains(value["data"]["ca.key"].as_str().unwrap()));

    let configuration = |bundle: &str| {
        format!(
            "apiVersion: v1\nkind: List\nitems:\n- kind: ValidatingWebhookConfiguration\n  metadata: {{name: w}}\n  webhooks:\n  - {{name: a.b.c, clientConfig: {{caBundle: {bundle}}}}}\n  - {{name: shut, clientConfig: {{}}}}\n"
        )
    };
    let both = |bundle: &str| format!("{secret}---\n{}", configuration(bundle));
    says(certs(&["inspect", "-"], &both(ca)), 0, &["ValidatingWebhookConfiguration w, a.b.c: caBundle"]);
    let other = self::secret();
    let other: serde_json::Value = serde_saphyr::from_str(&other).unwrap();
    let other = other["data"]["ca.crt"].as_str().unwrap();
    says(
        certs(&["inspect", "-"], &both(other)),
        1,
        &["FINDING:", "does not contain the CA of Secret wva/hook-ca: ca.crt"],
    );
    says(certs(&["inspect", "-"], &both("bm9uc2Vuc2U=")), 1, &["holds no certificate"]);
    // JSON, as `kubectl -o json` prints it.
    says(certs(&["inspect", "-"], &value.to_string()), 0, &["current CA"]);
}

#[test]
fn what_does_not_fit_ends_with_1() {
    let (one, other) = (Folder::new("one"), Folder::new("other"));
    says(one.make(), 0, &[]);
    says(other.make(), 0, &[]);
    says(certs(&["inspect", &one.file("tls.crt"), &other.file("ca.crt")], ""), 1, &["does not verify"]);
    let pair = [one.file("tls.crt"), other.file("tls.key")];
    says(certs(&["inspect", &pair[0], &pair[1]], ""), 1, &["is not the key of"]);
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
        let told = says(certs(&["inspect", "-"], input), 1, &["FINDING:", part]);
        assert!(!told.is_empty(), "{what}");
    }
}

#[test]
fn wrong_usage_ends_with_2_and_a_wrong_value_is_named() {
    says(certs(&[], ""), 2, &["inspect", "make"]);
    says(certs(&["inspect"], ""), 2, &["<PATH>"]);
    says(certs(&["inspect", "/no/such/file"], ""), 2, &["/no/such/file: cannot read the file"]);
    says(certs(&["make", "--namespace", "a", "--service", "b"], ""), 2, &["--out"]);
    says(certs(&["make", "--namespace", "a", "--out", "x"], ""), 2, &["--service"]);
    let make = |namespace: &str, life: &str| {
        certs(&["make", "--namespace", namespace, "--secret", "x", "--ca-lifetime", life], "")
    };
    says(make("Not A Name", "1h"), 1, &["--namespace \"Not A Name\"", "lower-case"]);
    says(make("a", "soon"), 1, &["--ca-lifetime", "\"soon\""]);
    says(make("a", "1s"), 1, &["--ca-lifetime 1s is too short", "1m"]);
}
