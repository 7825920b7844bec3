//! The page of a rule as text for people, without Markdown.

use crate::output::{TerminalSize, terminal_size, use_colours, wrap};

const BOLD: &str = "\x1b[1m";
const END_BOLD: &str = "\x1b[22m";
const CYAN: &str = "\x1b[36m";
const END_CYAN: &str = "\x1b[39m";
/// Characters of a line in a pipe, and at most on a terminal.
const WIDTH: usize = 80;
const MAX_WIDTH: usize = 100;

#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) width: usize,
    pub(super) is_coloured: bool,
}

impl Style {
    /// Style of standard output.
    pub(super) fn of_output() -> Self {
        let columns = terminal_size().map_or(WIDTH, |TerminalSize { columns, .. }| usize::from(columns));
        Self { width: columns.min(MAX_WIDTH), is_coloured: use_colours() }
    }
}

/// The page with indented code and without the targets of links. Examples keep their lines, so that they can be copied.
pub(super) fn render(page: &str, style: Style) -> String {
    let mut lines = Vec::new();
    // Language of the code block.
    let mut code = None;
    for line in page.lines() {
        if let Some(language) = line.strip_prefix("```") {
            code = if code.is_some() { None } else { Some(language) };
            continue;
        }
        match (code, line.trim_start_matches('#')) {
            (Some("text"), _) => {
                lines.extend(
                    wrap(line, style.width.saturating_sub(2), 4).iter().map(|line| format!("  {line}")),
                );
            }
            (Some(_), _) => lines.push(format!("  {line}")),
            (None, heading) if line.starts_with("# ") => lines.push(bold(heading.trim(), style)),
            (None, heading) if heading.len() < line.len() => {
                lines.push(bold(&heading.trim().to_uppercase(), style));
            }
            (None, _) => {
                let indent = if line.starts_with("- ") { 2 } else { 0 };
                lines.push(spans(&wrap(&without_links(line), style.width, indent).join("\n"), style));
            }
        }
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    format!("{}\n", lines.join("\n").trim_end())
}

fn bold(text: &str, style: Style) -> String {
    if style.is_coloured { format!("{BOLD}{text}{END_BOLD}") } else { text.to_owned() }
}

/// `[text](target)` as `text`.
fn without_links(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, text, after)) = first_link(rest) {
        out.push_str(before);
        out.push_str(text);
        rest = after;
    }
    out + rest
}

/// What comes before the first link, its text, and what comes after it.
fn first_link(line: &str) -> Option<(&str, &str, &str)> {
    let (before, target) = line.split_once("](")?;
    let (before, text) = before.rsplit_once('[')?;
    let (_, after) = target.split_once(')')?;
    Some((before, text, after))
}

/// `` `code` `` in a colour of its own.
fn spans(text: &str, style: Style) -> String {
    if !style.is_coloured {
        return text.to_owned();
    }
    let parts = text.split('`').enumerate();
    parts
        .map(|(i, part)| if i % 2 == 0 { part.to_owned() } else { format!("{CYAN}{part}{END_CYAN}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# WVA-X-001: A title

A rule about `data` of a [ConfigMap](../admission.md#maps) and of [another](x.md).

- Checks: `data`

## Denied

```yaml
data:
  a: 1
```

Output:

```text
The map is invalid: data.a: 1 is a number
```
";

    #[test]
    fn page_is_plain_in_a_pipe() {
        let want = "\
WVA-X-001: A title

A rule about `data` of a ConfigMap and
of another.

- Checks: `data`

DENIED

  data:
    a: 1

Output:

  The map is invalid: data.a: 1 is a
      number
";
        assert_eq!(render(PAGE, Style { width: 38, is_coloured: false }), want);
    }

    #[test]
    fn terminal_has_colours_in_place_of_marks() {
        let text = render(PAGE, Style { width: 100, is_coloured: true });
        for part in [
            "\x1b[1mWVA-X-001: A title\x1b[22m\n", "\x1b[1mDENIED\x1b[22m\n", "about \x1b[36mdata\x1b[39m of",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains(['`', '#']), "{text}");
    }
}
