//! The rule reference: one page a code, made from the table of rules and the examples that its tests judge. What the
//! pages quote as answers is what the rules say about those examples.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use wva_rules::{Check, Kind, RULES, Rule, Scope, Severity, Verdict};

use crate::example::{Example, Outcome};
use crate::{finish, wva};

/// What is wrong with a file before any rule can be asked; `wva validate` alone says it.
const FILE_CODE: &str = "WVA-FILE-001";
const NOTE: &str = "<!-- Written by `make generate` from webhook/rules (the rules and their examples): change it there. -->\n";

/// Every page by its name.
pub(crate) fn pages() -> BTreeMap<String, String> {
    let mut pages: BTreeMap<_, _> = RULES.iter().map(|r| (format!("{}.md", r.code), page(r))).collect();
    pages.insert(format!("{FILE_CODE}.md"), file_page());
    pages.insert("README.md".to_owned(), index());
    pages
}

fn index() -> String {
    let mut out = format!(
        "# Rules of admission\n\n{NOTE}\nEvery refusal and every warning begins with the code of its rule. A page says \
         what the rule wants, with an example\nthat is refused and one that is accepted. [Admission](../admission.md) \
         says who asks the rules and when;\n[wva validate](../validate.md) asks them of files.\n",
    );
    let about = |prefix: &'static str| RULES.iter().filter(move |r| r.code.starts_with(prefix)).map(row);
    section(&mut out, "VariantAutoscaling", about("WVA-VA-"));
    section(&mut out, "ConfigMaps", about("WVA-CM-"));
    section(&mut out, "HPAs and ScaledObjects, by `wva validate` alone", about("WVA-HPA-"));
    let file = format!("| [{FILE_CODE}]({FILE_CODE}.md) | refused | | {} |", Example::of(FILE_CODE).title);
    section(&mut out, "Files, by `wva validate` alone", std::iter::once(file));
    out
}

fn section(out: &mut String, title: &str, rows: impl Iterator<Item = String>) {
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    let rows = rows.join("\n");
    let _ = write!(out, "\n## {title}\n\n| code | what happens | field | why |\n|---|---|---|---|\n{rows}\n");
}

fn row(rule: &Rule) -> String {
    let happens = match rule.kind {
        Kind::Deny => "refused",
        Kind::Warn => "warning",
        Kind::Mutate => "completed",
    };
    let (code, title) = (rule.code, Example::of(rule.code).title);
    format!("| [{code}]({code}.md) | {happens} | `{}` | {title} |", rule.field)
}

fn page(rule: &Rule) -> String {
    let example = Example::of(rule.code);
    let (_, verdict) = example.verdicts();
    let update = example.given.before.is_some();
    let mut out = format!("# {}: {}\n\n{NOTE}\n{}\n\n", rule.code, example.title, rule.docs);
    let of_variants = matches!(rule.check, Check::Variant(_));
    let in_files_alone = example.in_files_alone || matches!(rule.check, Check::Autoscaler(_));
    let kind = match rule.check {
        Check::Variant(_) => "VariantAutoscaling",
        Check::ConfigMap(_) => "[ConfigMap](../admission.md#which-configmaps)",
        Check::Autoscaler(_) => "HorizontalPodAutoscaler or ScaledObject that follows the metric",
    };
    let when = if update { "when it is updated" } else { "when it is created and when it is updated" };
    let _ = writeln!(out, "- Looks at: `{}` of a {kind}, {when}", rule.field);
    let happens = match (rule.kind, update) {
        (Kind::Deny, false) => "it is refused. An update that leaves the fault as it was is only warned of",
        (Kind::Deny, true) => "the update is refused",
        (Kind::Warn, _) => "it is admitted with a warning",
        (Kind::Mutate, _) => "it is completed",
    };
    let _ = writeln!(out, "- What happens: {happens}");
    if rule.scope == Scope::Cluster && of_variants {
        out.push_str("- Looks at other objects too, so it is not asked while the controller is starting\n");
    }
    if matches!(rule.check, Check::Autoscaler(_)) {
        out.push_str("- Said by `wva validate`: no webhook of wva is asked about these kinds\n");
    } else if in_files_alone {
        out.push_str(
            "- Said by `wva validate`: an API server refuses or drops it before it asks a webhook\n",
        );
    }
    given(&mut out, &example);
    let (outcome, object) = example.shown();
    let (title, answer) = match outcome {
        Outcome::Refused => ("Refused", "The answer"),
        Outcome::Warned => ("Warned of", "The answer"),
        Outcome::Completed => ("Completed", "What is added"),
    };
    let said = if in_files_alone { of_files(&verdict) } else { of_kubectl(&verdict) };
    let _ = write!(
        out,
        "\n## {title}\n\n{}{answer}:\n\n```text\n{said}```\n\n## Accepted\n\n{}",
        yaml(object, if example.given.starting { "While the controller is starting:\n\n" } else { "" }),
        yaml(&example.accepted, if example.given.starting { "Later:\n\n" } else { "" }),
    );
    exception(&mut out, &example);
    out
}

/// What is there before the object of an example comes.
fn given(out: &mut String, example: &Example) {
    let given = &example.given;
    if !given.environment.is_empty() {
        let shown: Vec<String> = given.environment.iter().map(|(k, v)| format!("`{k}={v}`")).collect();
        let _ = writeln!(out, "\nThe controller of the examples runs with {}.", shown.join(" and "));
    }
    if !given.cluster.is_empty() {
        let _ = write!(out, "\nIn the cluster of the examples there is:\n\n{}", yaml(&given.cluster, ""));
        // The last block ends the section.
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    if let Some(before) = &given.before {
        let _ = write!(out, "\nThe object of the examples was:\n\n{}", yaml(before, ""));
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
}

fn exception(out: &mut String, example: &Example) {
    out.truncate(out.trim_end().len());
    out.push('\n');
    if !example.exception.is_empty() {
        let _ = write!(out, "\n## Ways round it\n\n{}\n", example.exception.trim_end());
    }
}

fn yaml(text: &str, before: &str) -> String {
    format!("{before}```yaml\n{}\n```\n\n", text.trim_end())
}

/// A verdict as kubectl prints it: warnings, then what is wrong, one a line where there are several.
fn of_kubectl(verdict: &Verdict) -> String {
    let mut out = String::new();
    for warning in &verdict.warnings {
        let _ = writeln!(out, "Warning: {warning}");
    }
    if let Some(details) = verdict.to_status().and_then(|s| s.details) {
        let causes: Vec<String> = details
            .causes
            .iter()
            .flatten()
            .map(|c| format!("{}: {}", c.field.as_deref().unwrap_or(""), c.message.as_deref().unwrap_or("")))
            .collect();
        let told = if let [one] = &causes[..] { one.clone() } else { format!("\n* {}", causes.join("\n* ")) };
        let _ = writeln!(out, "The {} \"{}\" is invalid: {told}", verdict.kind, verdict.name);
    }
    for op in &verdict.patch {
        let _ = writeln!(out, "{}", serde_json::to_string(op).unwrap());
    }
    out
}

/// A verdict as `wva validate` prints it.
fn of_files(verdict: &Verdict) -> String {
    let mut out = String::new();
    for v in &verdict.violations {
        let level = if v.severity == Severity::Deny { "error" } else { "warning" };
        let _ = writeln!(out, "{level}[{}]: {}: {}", v.code, v.field, v.message);
    }
    out
}

/// The page of what is wrong with a file. The program itself judges its examples.
fn file_page() -> String {
    let example = Example::of(FILE_CODE);
    let accepted = validate("text", &example.accepted);
    assert!(accepted.contains(": 0 denied, 0 warnings"), "{accepted}");
    let refused = validate("text", example.shown().1);
    assert!(refused.starts_with(&format!("error[{FILE_CODE}]: ")), "{refused}");
    let sarif: Value = serde_json::from_str(&validate("sarif", &example.accepted)).unwrap();
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    let docs =
        rules.iter().find(|r| r["id"] == FILE_CODE).unwrap()["shortDescription"]["text"].as_str().unwrap();
    let mut out = format!(
        "# {FILE_CODE}: {}\n\n{NOTE}\n{docs}\n\n- Looks at: a file, or the standard input, given to [wva validate]\
         (../validate.md)\n- What happens: it is refused, and no other rule is asked about what could not be read\n\n\
         ## Refused\n\n{}The answer:\n\n```text\n{refused}```\n\n## Accepted\n\n{}",
        example.title,
        yaml(example.shown().1, ""),
        yaml(&example.accepted, ""),
    );
    exception(&mut out, &example);
    out
}

/// What `wva validate` says about a text.
fn validate(format: &str, input: &str) -> String {
    finish(wva(&["validate", "--format", format, "-"]).env("NO_COLOR", "1"), input).stdout
}
