//! Verdicts of all callers of the rules in one form, for the differential tests: code and field of each violation that
//! denies the object.

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

/// Codes and fields of the violations that deny an object; empty where it is admitted.
pub(crate) type Violations = BTreeSet<(String, String)>;

/// Longest run of `wva validate` over all cases of a test.
const RUN: Duration = Duration::from_mins(3);

/// Violations in a verdict of the rules.
pub(crate) fn violations_of_verdict(verdict: &Verdict) -> Violations {
    verdict.denials().map(|v| (v.code.to_owned(), v.field.clone())).collect()
}

/// Violations in a denial by a webhook.
pub(crate) fn violations_of_status(status: &Status) -> Violations {
    let causes = status.details.iter().flat_map(|d| &d.causes);
    let code = |message: &str| Some(message.strip_prefix('[')?.split_once(']')?.0.to_owned());
    causes.filter_map(|c| Some((code(&c.message)?, c.field.clone()))).collect()
}

/// An answer as text, for the log.
pub(crate) fn describe_answer(answer: &ApiAnswer) -> String {
    match answer {
        Ok(_) => "accepted".to_owned(),
        Err(status) => format!("refused: {} {} {}", status.code, status.reason, status.message),
    }
}

/// A Deployment of the program: `wva validate` reads from it the names of the maps and the namespace of the global
/// ones.
pub(crate) fn deployment() -> Value {
    let env = [("CONFIG_MAP_NAME", "wva-variantautoscaling-config"), ("POD_NAMESPACE", SYSTEM)];
    let env: Vec<Value> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "wva", "namespace": SYSTEM},
        "spec": {"template": {"spec": {"containers": [{"name": "manager", "env": env}]}}},
    })
}

/// An object as JSON that is also valid YAML: YAML allows no raw control characters.
pub(crate) fn escaped_json(object: &Value) -> String {
    let escaped = |c: char| if c.is_control() { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    object.to_string().chars().map(escaped).collect()
}

/// A directory of files that is removed at the end of the test.
pub(crate) struct TempFiles(PathBuf);

impl TempFiles {
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

impl Drop for TempFiles {
    fn drop(&mut self) {
        // What cannot be removed stays in the target directory.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Findings of `wva validate`.
pub(crate) struct Findings {
    /// Denials by file.
    pub(crate) by_file: BTreeMap<String, Violations>,
    /// Denials by name of the object.
    pub(crate) by_name: BTreeMap<String, Violations>,
    /// Number of objects in the files.
    pub(crate) objects: u64,
}

/// Runs `wva validate` in the directory of these files.
pub(crate) async fn validate(files: &TempFiles, args: &[&str]) -> anyhow::Result<Findings> {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_wva"));
    command.args(["validate", "--format", "json"]).args(args).current_dir(&files.0).stdin(Stdio::null());
    let out = within("wva validate", RUN, command.kill_on_drop(true).output()).await?;
    let report: Value = serde_json::from_slice(&out.stdout)
        .with_context(|| format!("no findings: {}", String::from_utf8_lossy(&out.stderr)))?;
    let mut findings = Findings { by_file: BTreeMap::new(), by_name: BTreeMap::new(), objects: 0 };
    findings.objects = report["summary"]["objects"].as_u64().context("no count of objects")?;
    let denied = report["summary"]["deny"].as_u64().context("no count of refusals")? > 0;
    ensure!(out.status.code() == Some(i32::from(denied)), "it ended with {}", out.status);
    for finding in report["findings"].as_array().context("no findings")? {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        if text("severity") == "deny" {
            let fault = (text("code"), text("field"));
            findings.by_file.entry(text("file")).or_default().insert(fault.clone());
            findings.by_name.entry(text("name")).or_default().insert(fault);
        }
    }
    Ok(findings)
}

/// Disagreements between the rules and one run of `wva validate`, in which each object has a file of its own. Objects
/// of one name count as one object, so they do not share their target.
pub(crate) async fn judge_files(
    name: &str,
    objects: &[Value],
    verdicts: &[Violations],
    stored: Option<&Value>,
) -> anyhow::Result<Vec<String>> {
    let files = TempFiles::new(name)?;
    files.write("install.json", &escaped_json(&deployment()))?;
    for (number, object) in objects.iter().enumerate() {
        files.write(&format!("{number}.json"), &escaped_json(object))?;
    }
    let mut args = vec!["."];
    if let Some(stored) = stored {
        files.write("stored", &escaped_json(stored))?;
        args.extend(["--against", "stored"]);
    }
    let found = validate(&files, &args).await?;
    let (read, sent) = (found.objects, objects.len() as u64 + 1);
    ensure!(read == sent, "{read} of {sent} objects were read");
    let mut wrong = Vec::new();
    for (number, (object, wanted)) in objects.iter().zip(verdicts).enumerate() {
        let reported = found.by_file.get(&format!("{number}.json")).cloned().unwrap_or_default();
        if reported != *wanted {
            wrong.push(describe_disagreement(object, wanted, "wva validate", &format!("{reported:?}")));
        }
    }
    Ok(wrong)
}

/// A disagreement as text.
pub(crate) fn describe_disagreement(object: &Value, wanted: &Violations, judge: &str, found: &str) -> String {
    format!("{object}\n  rules: {wanted:?}\n  {judge}: {found}")
}

/// Prints the figures of a differential test.
#[expect(clippy::print_stdout, reason = "the figures are for the person who runs the test")]
pub(crate) fn print_figures<'f>(what: &str, callers: &str, verdicts: impl Iterator<Item = &'f Violations>) {
    let (mut all, mut refused, mut codes) = (0, 0, BTreeSet::new());
    for faults in verdicts {
        all += 1;
        refused += usize::from(!faults.is_empty());
        codes.extend(faults.iter().map(|(code, _)| code.as_str()));
    }
    println!("{what}: {all}, {refused} refused by {} codes, 0 disagreements among {callers}", codes.len());
    println!("  {}", codes.into_iter().collect::<Vec<_>>().join(" "));
}
