//! Frame of a page that loads nothing else: style for light and dark, and the policy that forbids requests.

const STYLE: &str = include_str!("page.css");

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A whole page. `script` runs last.
pub(super) fn render_page(title: &str, body: &str, script: Option<&str>) -> String {
    let script = script.map(|code| ["<script>", code, "</script>"].concat()).unwrap_or_default();
    [
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; ",
        "script-src 'unsafe-inline'\"><meta name=\"viewport\" content=\"width=device-width\"><title>",
        &escape(title),
        "</title><style>",
        STYLE,
        "</style></head><body><h1>",
        &escape(title),
        "</h1>",
        body,
        &script,
        "</body></html>\n",
    ]
    .concat()
}

/// A table: titles, then rows. The cells are HTML.
pub(super) fn render_table(rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |(i, cells): (usize, Vec<String>)| {
        let tag = if i == 0 { "th" } else { "td" };
        let cells: String = cells.iter().map(|cell| ["<", tag, ">", cell, "</", tag, ">"].concat()).collect();
        format!("<tr>{cells}</tr>")
    };
    format!("<table>{}</table>", rows.enumerate().map(line).collect::<String>())
}
