//! Report of `wva doctor`: one line for a healthy variant, all checks with remedies for others.

use std::fmt::Write as _;

use super::chain::{Finding, State, VariantFindings};
use crate::output::{count, printable};

const NAME_WIDTH: usize = 11;
const STATE_WIDTH: usize = 6;

pub(super) fn render(
    cluster: &[(&'static str, Finding)],
    variants: &[VariantFindings],
    verbose: bool,
) -> String {
    let mut out = String::from("cluster\n");
    write_findings(&mut out, cluster);
    for variant in variants {
        let (name, verdict) = (printable(&variant.variant), verdict(variant));
        let _ = writeln!(out, "\n{name}  {verdict}");
        if verbose || variant.state() > State::Unknown {
            write_findings(&mut out, &variant.findings);
        }
    }
    let number_with = |state: State| variants.iter().filter(|variant| variant.state() == state).count();
    let (broken, warnings) = (number_with(State::Broken), number_with(State::Warning));
    let ok = variants.len() - broken - warnings;
    let _ = writeln!(
        out,
        "\n{}: {broken} broken, {warnings} with warnings, {ok} ok",
        count(variants.len(), "variant")
    );
    out
}

fn verdict(variant: &VariantFindings) -> String {
    match (variant.broken_at(), variant.state()) {
        (Some(check), _) => format!("BROKEN at {check}"),
        (None, State::Warning) => "warnings".to_owned(),
        _ => {
            let decision = variant.findings.iter().find(|(check, _)| *check == "decision");
            let decision = decision.map(|(_, finding)| printable(&finding.message)).unwrap_or_default();
            format!("ok  {decision}").trim_end().to_owned()
        }
    }
}

fn write_findings(out: &mut String, findings: &[(&'static str, Finding)]) {
    for (check, finding) in findings {
        let state = match finding.state {
            State::Fine => "ok",
            State::Unknown => "?",
            State::Warning => "warn",
            State::Broken => "BROKEN",
        };
        let message = printable(&finding.message);
        let _ = writeln!(out, "  {state:<STATE_WIDTH$} {check:<NAME_WIDTH$} {message}");
        if let Some(remedy) = &finding.remedy {
            let indent = " ".repeat(2 + STATE_WIDTH + 1 + NAME_WIDTH + 1);
            let _ = writeln!(out, "{indent}-> {}", printable(remedy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_checks_and_remedies_of_broken_variants_only() {
        let healthy = VariantFindings {
            variant: "prod/a".to_owned(),
            findings: vec![("variant", Finding::fine("accepted")), ("decision", Finding::fine("1 -> 1"))],
        };
        let broken = VariantFindings {
            variant: "prod/b".to_owned(),
            findings: vec![
                ("variant", Finding::fine("accepted")),
                ("scrape", Finding::broken("no metrics\n", "do this")),
            ],
        };
        let text = render(&[("crd", Finding::fine("up to date"))], &[healthy, broken], false);
        let want = "cluster
  ok     crd         up to date

prod/a  ok  1 -> 1

prod/b  BROKEN at scrape
  ok     variant     accepted
  BROKEN scrape      no metrics\u{fffd}
                     -> do this

2 variants: 1 broken, 0 with warnings, 1 ok
";
        assert_eq!(text, want);
    }
}
