//! Help of commands within 80 columns. clap breaks lines only with a crate that knows the terminal's width.

use crate::output::wrap;

/// Characters of a line, also on a wider terminal.
const WIDTH: usize = 80;

/// The help with long lines continued below their text, with colours or without.
#[must_use]
pub fn fit_help(help: &str) -> String {
    help.lines().map(|line| fit_line(line) + "\n").collect()
}

fn fit_line(line: &str) -> String {
    let plain = without_colours(line);
    if plain.chars().count() <= WIDTH {
        return line.to_owned();
    }
    let indent = text_column(&plain);
    let (option, text) = line.split_at(index_of_column(line, indent));
    let lines = wrap(&without_colours(text), WIDTH - indent, 0);
    format!("{option}{}", lines.join(&format!("\n{:indent$}", "")))
}

/// Column at which the text of `  -o, --output <FORMAT>  Output format` begins. Only options and names have a gap of
/// two spaces.
fn text_column(plain: &str) -> usize {
    let begin = plain.len() - plain.trim_start().len();
    let gap = plain[begin..].find("  ").map(|gap| begin + gap);
    let column = gap.map_or(begin, |gap| plain.len() - plain[gap..].trim_start().len());
    if column + 24 <= WIDTH { column } else { begin }
}

/// Index of the character after `column` visible ones.
fn index_of_column(line: &str, column: usize) -> usize {
    let (mut seen, mut is_code) = (0, false);
    for (index, character) in line.char_indices() {
        match character {
            '\x1b' => is_code = true,
            'm' if is_code => is_code = false,
            _ if is_code => {}
            _ if seen == column => return index,
            _ => seen += 1,
        }
    }
    line.len()
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_continue_below_their_beginning() {
        let words = "word ".repeat(20);
        let option = format!("  -o, --output <FORMAT>  {words}");
        let want = "  -o, --output <FORMAT>  word word word word word word word word word word word\n                         word word word word word word word word word\n";
        assert_eq!(fit_help(option.trim_end()), want);
        let coloured = option.replace("--output", "\x1b[1m--output\x1b[0m");
        assert_eq!(fit_help(coloured.trim_end()), want.replace("--output", "\x1b[1m--output\x1b[0m"));
        assert_eq!(fit_help("short  line\n\nend"), "short  line\n\nend\n");
        let indented = fit_help(&format!("          {words}"));
        assert!(
            indented.lines().all(|line| line.starts_with("          word") && line.len() <= 80),
            "{indented}"
        );
    }
}
