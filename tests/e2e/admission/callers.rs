//! What each of the callers of the rules says to an object, in one form, so that the differential tests can compare
//! them: the code and the field of everything that refuses it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::core::Status;
use serde_json::{Value, json};
use wva_rules::Verdict;
use wva_testbed::install::SYSTEM;
use wva_testbed::within;

use crate::support::ApiAnswer;

/// Codes and fields of what refuses an object; empty where it is admitted.
pub(crate) type Faults = BTreeSet<(String, String)>;

/// Longest run of `wva validate` over all cases of a test.
const RUN: Duration = Duration::from_mins(3);

/// What a verdict of the rules refuses.
pub(crate) fn of_verdict(verdict: &Verdict) -> Faults {
    verdict.denials().map(|v| (v.code.to_owned(), v.field.clone())).collect()
}

/// The causes of a refusal by a webhook.
pub(crate) fn of_status(status: &Status) -> Faults {
    let causes = status.details.iter().flat_map(|d| &d.causes);
    let code = |message: &str| Some(message.strip_prefix('[')?.split_once(']')?.0.to_owned());
    causes.filter_map(|c| Some((code(&c.message)?, c.field.clone()))).collect()
}

/// An answer as a person would tell it.
pub(crate) fn told(answer: &ApiAnswer) -> String {
    match answer {
        Ok(_) => "accepted".to_owned(),
        Err(status) => format!("refused: {} {} {}", status.code, status.reason, status.message),
    }
}

/// A Deployment of the program, which says to `wva validate` what its maps are called and where the global ones are.
pub(crate) fn deployment() -> Value {
    let env = [("CONFIG_MAP_NAME", "wva-variantautoscaling-config"), ("POD_NAMESPACE", SYSTEM)];
    let env: Vec<Value> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "wva", "namespace": SYSTEM},
        "spec": {"template": {"spec": {"containers": [{"name": "manager", "env": env}]}}},
    })
}

/// An object as JSON that is YAML too: which takes no control character as it is, where JSON takes some.
pub(crate) fn text(object: &Value) -> String {
    let escaped = |c: char| if c.is_control() { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    object.to_string().chars().map(escaped).collect()
}

/// A directory of files, gone at the end of the test.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new(name: &str) -> anyhow::Result<Self> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What cannot be removed stays below the target directory.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// What `wva validate` said.
pub(crate) struct Findings {
    /// Every refusal, by file.
    pub(crate) by_file: BTreeMap<String, Faults>,
    /// Every refusal, by the name of the object.
    pub(crate) by_name: BTreeMap<String, Faults>,
    /// Objects in the files.
    pub(crate) objects: u64,
}

/// One run of `wva validate` in the directory of these files.
pub(crate) async fn validate(files: &Files, args: &[&str]) -> anyhow::Result<Findings> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_wva"));
    command.args(["validate", "--format", "json"]).args(args).current_dir(&files.0).stdin(Stdio::null());
    let out = within("wva validate", RUN, command.kill_on_drop(true).output()).await?;
    let told: Value = serde_json::from_slice(&out.stdout)
        .with_context(|| format!("no findings: {}", String::from_utf8_lossy(&out.stderr)))?;
    let mut findings = Findings { by_file: BTreeMap::new(), by_name: BTreeMap::new(), objects: 0 };
    findings.objects = told["summary"]["objects"].as_u64().context("no count of objects")?;
    let denied = told["summary"]["deny"].as_u64().context("no count of refusals")? > 0;
    ensure!(out.status.code() == Some(i32::from(denied)), "it ended with {}", out.status);
    for finding in told["findings"].as_array().context("no findings")? {
        let word = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        if word("severity") == "deny" {
            let fault = (word("code"), word("field"));
            findings.by_file.entry(word("file")).or_default().insert(fault.clone());
            findings.by_name.entry(word("name")).or_default().insert(fault);
        }
    }
    Ok(findings)
}

/// The disagreements between the rules and one run of `wva validate`, in which each object has a file of its own.
/// Objects of one name are one object, so these do not share their targets.
pub(crate) async fn judge_files(
    name: &str,
    objects: &[Value],
    verdicts: &[Faults],
    stored: Option<&Value>,
) -> anyhow::Result<Vec<String>> {
    let files = Files::new(name)?;
    files.write("install.json", &text(&deployment()))?;
    for (number, object) in objects.iter().enumerate() {
        files.write(&format!("{number}.json"), &text(object))?;
    }
    let mut args = vec!["."];
    if let Some(stored) = stored {
        files.write("stored", &text(stored))?;
        args.extend(["--against", "stored"]);
    }
    let found = validate(&files, &args).await?;
    let (read, sent) = (found.objects, objects.len() as u64 + 1);
    ensure!(read == sent, "{read} of {sent} objects were read");
    let mut wrong = Vec::new();
    for (number, (object, wanted)) in objects.iter().zip(verdicts).enumerate() {
        let said = found.by_file.get(&format!("{number}.json")).cloned().unwrap_or_default();
        if said != *wanted {
            wrong.push(against(object, wanted, "wva validate", &format!("{said:?}")));
        }
    }
    Ok(wrong)
}

/// A disagreement, for people.
pub(crate) fn against(object: &Value, wanted: &Faults, judge: &str, found: &str) -> String {
    format!("{object}\n  rules: {wanted:?}\n  {judge}: {found}")
}

/// The figures of a differential test, for people.
#[expect(clippy::print_stdout, reason = "the figures are what a person reads who runs the test")]
pub(crate) fn figures<'f>(what: &str, callers: &str, verdicts: impl Iterator<Item = &'f Faults>) {
    let (mut all, mut refused, mut codes) = (0, 0, BTreeSet::new());
    for faults in verdicts {
        all += 1;
        refused += usize::from(!faults.is_empty());
        codes.extend(faults.iter().map(|(code, _)| code.as_str()));
    }
    println!("{what}: {all}, {refused} refused by {} codes, 0 disagreements among {callers}", codes.len());
    println!("  {}", codes.into_iter().collect::<Vec<_>>().join(" "));
}
