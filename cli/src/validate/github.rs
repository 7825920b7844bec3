//! Findings as workflow commands of GitHub Actions, which show them beside the changed lines.

use super::report::{Finding, Report};

/// The whole output.
pub(super) fn render(report: &Report<'_>) -> String {
    let mut out: String = report.findings.iter().map(command).collect();
    out.push_str(&report.totals());
    out.push('\n');
    out
}

fn command(finding: &Finding<'_>) -> String {
    let level = if finding.denied { "error" } else { "warning" };
    let file = property(&finding.source.name);
    let Finding { line, column, code, .. } = finding;
    let end = finding.end_column.max(column + 1) - 1;
    let message = data(&format!("{} ({})", finding.sentence(), finding.docs()));
    format!("::{level} file={file},line={line},col={column},endColumn={end},title={code}::{message}\n")
}

/// What stands after the last `::`.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// What stands between commas.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_ends_a_property_or_a_command() {
        assert_eq!(property("a,b:c%\r\nd"), "a%2Cb%3Ac%25%0D%0Ad");
        assert_eq!(data("50%: a, b\n::error::x"), "50%25: a, b%0A::error::x");
    }
}
