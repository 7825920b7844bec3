//! Syntax of names, label values and costs.

use wva_crds::settings;

/// DNS-1123.
pub(crate) const MAX_SUBDOMAIN_CHARS: usize = 253;

/// DNS-1123, as names of workloads are.
pub(crate) fn is_subdomain(name: &str) -> bool {
    settings::is_name(name, true)
}

/// Whether a text is the value of a label, and not empty.
pub(crate) fn is_label_value(value: &str) -> bool {
    !value.is_empty() && settings::is_label_value(value)
}

/// Matches `^\d+(\.\d+)?$`.
pub(crate) fn is_decimal(text: &str) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    text.split_once('.').map_or_else(|| digits(text), |(whole, part)| digits(whole) && digits(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_valid_syntax_only() {
        for (name, want) in [
            ("llama", true),
            ("a.b-c.9", true),
            ("", false),
            ("Llama", false),
            ("-a", false),
            ("a-", false),
            ("a..b", false),
            ("a_b", false),
            ("é", false),
        ] {
            assert_eq!(is_subdomain(name), want, "{name:?}");
        }
        assert!(is_subdomain(&"a".repeat(253)) && !is_subdomain(&"a".repeat(254)));
        for (value, want) in
            [("a", true), ("A_b-c.d", true), ("", false), ("a b", false), ("-a", false), ("a.", false)]
        {
            assert_eq!(is_label_value(value), want, "{value:?}");
        }
        assert!(is_label_value(&"a".repeat(63)) && !is_label_value(&"a".repeat(64)));
        for (text, want) in [
            ("10", true),
            ("0.5", true),
            ("007.10", true),
            ("", false),
            (".5", false),
            ("5.", false),
            ("-1", false),
            ("1e3", false),
            ("1.2.3", false),
            ("NaN", false),
            ("10 ", false),
            ("١", false),
        ] {
            assert_eq!(is_decimal(text), want, "{text:?}");
        }
    }
}
