//! Findings like those of a compiler, with the line and a caret under the value.

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};

use super::report::{Finding, Report, command};
use super::secrets;
use crate::output::printable;

/// Longest line that is printed, in bytes. Longer ones, such as JSON on one line, get only a position.
const MAX_LINE: usize = 2_000;

pub(super) fn render(report: &Report<'_>, coloured: bool) -> String {
    let renderer = if coloured { Renderer::styled() } else { Renderer::plain() };
    let mut out = String::new();
    for finding in &report.findings {
        out.push_str(&render_finding(&renderer, finding));
        out.push_str("\n\n");
    }
    out.push_str(&report.totals());
    out.push('\n');
    out
}

fn render_finding(renderer: &Renderer, finding: &Finding<'_>) -> String {
    let level = if finding.is_denied { Level::ERROR } else { Level::WARNING };
    let title = level.primary_title(finding.sentence()).id(finding.code);
    let (line, start) = finding.source.line_of(finding.offset);
    let group = if line.len() <= MAX_LINE && secrets::is_printable(finding) {
        let before = printable(line.get(..finding.offset - start).unwrap_or(line));
        let marked = printable(
            finding.source.text.get(finding.offset..finding.offset + finding.length).unwrap_or_default(),
        );
        let span = before.len()..before.len() + marked.len();
        let snippet = Snippet::source(printable(line)).line_start(finding.line).path(&finding.source.name);
        title.element(snippet.annotation(AnnotationKind::Primary.span(span)))
    } else {
        title.element(Origin::path(&finding.source.name).line(finding.line).char_column(finding.column))
    };
    let group = match finding.object_name() {
        Some(name) => group.element(Level::NOTE.message(name)),
        None => group,
    };
    let group = finding.note.into_iter().fold(group, |group, note| group.element(Level::NOTE.message(note)));
    renderer.render(&[group.element(Level::HELP.message(command(finding.code)))])
}
