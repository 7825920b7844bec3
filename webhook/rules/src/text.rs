//! How values from users are shown in messages, and how a command with them is written.

pub(crate) use wva_crds::text::{FOUND_CHARS, escape, inside, nearest, quote, shorten, show};

/// A text as one word of a POSIX shell.
pub(crate) fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
