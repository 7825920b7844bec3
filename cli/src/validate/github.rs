//! Workflow commands of GitHub Actions, which annotate the changed lines.

use super::report::{self, Finding, Report};

pub(super) fn render(report: &Report<'_>) -> String {
    let mut out: String = report.findings.iter().map(command).collect();
    out.push_str(&report.totals());
    out.push('\n');
    out
}

fn command(finding: &Finding<'_>) -> String {
    let level = if finding.is_denied { "error" } else { "warning" };
    let file = escape_property(&finding.source.name);
    let Finding { line, column, code, .. } = finding;
    let end = finding.end_column.max(column + 1) - 1;
    let message = escape_data(&format!("{} ({})", finding.sentence(), report::command(code)));
    format!("::{level} file={file},line={line},col={column},endColumn={end},title={code}::{message}\n")
}

fn escape_data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_separators_of_commands() {
        assert_eq!(escape_property("a,b:c%\r\nd"), "a%2Cb%3Ac%25%0D%0Ad");
        assert_eq!(escape_data("50%: a, b\n::error::x"), "50%25: a, b%0A::error::x");
    }
}
