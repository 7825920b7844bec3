//! Report of `wva doctor`: one line for a healthy variant, all checks with remedies for others.

use std::fmt::Write as _;

use super::chain::{Finding, State, VariantFindings};
use crate::output::{count, printable};

/// Choices of the reader.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    /// Every check of healthy variants, too.
    pub(super) is_verbose: bool,
    pub(super) is_coloured: bool,
}

impl Style {
    /// The word in the colour of the state.
    fn paint(self, state: State, word: &str) -> String {
        if !self.is_coloured {
            return word.to_owned();
        }
        let colour = match state {
            State::Fine => "32",
            State::Unknown => "36",
            State::Warning => "33",
            State::Broken => "1;31",
        };
        format!("\x1b[{colour}m{word}\x1b[0m")
    }
}

const NAME_WIDTH: usize = 11;
const STATE_WIDTH: usize = 6;

pub(super) fn render(
    cluster: &[(&'static str, Finding)],
    variants: &[VariantFindings],
    style: Style,
) -> String {
    let mut out = String::from("cluster\n");
    write_findings(&mut out, cluster, style);
    for variant in variants {
        let (name, verdict) = (printable(&variant.variant), verdict(variant, style));
        let _ = writeln!(out, "\n{name}  {verdict}");
        if style.is_verbose || variant.state() > State::Unknown {
            write_findings(&mut out, &variant.findings, style);
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

/// Findings about a cluster without wva, and how many need a person.
pub(super) fn render_cluster(cluster: &[(&'static str, Finding)], is_coloured: bool) -> String {
    let mut out = String::from("cluster\n");
    write_findings(&mut out, cluster, Style { is_verbose: true, is_coloured });
    let number_in = |state: State| cluster.iter().filter(|(_, finding)| finding.state == state).count();
    let (broken, warnings) = (number_in(State::Broken), number_in(State::Warning));
    let verdict =
        if broken == 0 { "wva can be installed" } else { "correct what is broken before the install" };
    let _ = writeln!(out, "\n{verdict}: {broken} broken, {}", count(warnings, "warning"));
    out
}

fn verdict(variant: &VariantFindings, style: Style) -> String {
    match (variant.broken_at(), variant.state()) {
        (Some(check), _) => format!("{} at {check}", style.paint(State::Broken, "BROKEN")),
        (None, State::Warning) => style.paint(State::Warning, "warnings"),
        _ => {
            let decision = variant.findings.iter().find(|(check, _)| *check == "decision");
            let decision = decision.map(|(_, finding)| printable(&finding.message)).unwrap_or_default();
            format!("{}  {decision}", style.paint(State::Fine, "ok")).trim_end().to_owned()
        }
    }
}

fn write_findings(out: &mut String, findings: &[(&'static str, Finding)], style: Style) {
    for (check, finding) in findings {
        let word = match finding.state {
            State::Fine => "ok",
            State::Unknown => "?",
            State::Warning => "warn",
            State::Broken => "BROKEN",
        };
        let state = style.paint(finding.state, &format!("{word:<STATE_WIDTH$}"));
        let message = printable(&finding.message);
        let _ = writeln!(out, "  {state} {check:<NAME_WIDTH$} {message}");
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
        let text = render(&[("crd", Finding::fine("up to date"))], &[healthy, broken], Style::default());
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
