//! User values in messages and in shell commands.

pub(crate) use wva_crds::text::{FOUND_CHARS, escape, join_field, nearest, quote, shorten, show};

pub(crate) fn shell_quote(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
