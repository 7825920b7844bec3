//! Words and numbers of a vLLM command line. An argument may be a script for `sh -c`. Variables are not expanded.

/// Splits at whitespace and shell operators; removes quotes and comments.
#[must_use]
pub fn split_shell_words(argument: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = argument.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            // A shell keeps most backslashes within double quotes; the flags we read contain none.
            (None | Some('"'), '\\') => match chars.next() {
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => {
                chars.by_ref().find(|c| *c == '\n');
            }
            (None, ';' | '&' | '|' | '(' | ')') => words.extend(word.take()),
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Parses a whole number above 0. Like vLLM it accepts `25.6k` (factor 1000) and `8K` (factor 1024, whole).
pub(crate) fn parse_vllm_integer(text: &str) -> Option<f64> {
    let (digits, factor) = match text.char_indices().next_back()? {
        (at, suffix @ ('k' | 'm' | 'g' | 't')) => (&text[..at], power_of_suffix(1000.0, suffix)),
        (at, suffix @ ('K' | 'M' | 'G' | 'T')) => (&text[..at], power_of_suffix(1024.0, suffix)),
        _ => (text, 1.0),
    };
    let fraction_allowed = text.ends_with(['k', 'm', 'g', 't']);
    let well_formed = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_digit() || (c == '.' && fraction_allowed));
    let number = digits.parse::<f64>().ok().filter(|_| well_formed)?;
    Some((number * factor).trunc()).filter(|n| *n > 0.0 && n.is_finite())
}

fn power_of_suffix(base: f64, suffix: char) -> f64 {
    base.powi(match suffix.to_ascii_lowercase() {
        'k' => 1,
        'm' => 2,
        'g' => 3,
        _ => 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_scripts_like_a_shell() {
        for (argument, expected) in [
            ("--max-num-seqs=64", &["--max-num-seqs=64"][..]),
            ("", &[]),
            ("exec vllm serve m  --a 1", &["exec", "vllm", "serve", "m", "--a", "1"]),
            ("A=\"0\" vllm --b='2 3' --c \"4 5\" ''", &["A=0", "vllm", "--b=2 3", "--c", "4 5", ""]),
            (
                "export A=0; vllm --b 1&& echo --c|cat",
                &["export", "A=0", "vllm", "--b", "1", "echo", "--c", "cat"],
            ),
            ("vllm \\\n  --a 1 \\\n  --b\\ 2", &["vllm", "--a", "1", "--b 2"]),
            ("# don't: --a 1\nvllm m#1 # --b 2", &["vllm", "m#1"]),
            ("'never closed --a", &["never closed --a"]),
            ("{\"a\": 1}", &["{a:", "1}"]),
            ("tail\\", &["tail"]),
        ] {
            assert_eq!(split_shell_words(argument), expected, "{argument}");
        }
    }

    #[test]
    fn parses_suffixes_of_vllm() {
        for (text, expected) in [
            ("8192", Some(8192.0)),
            ("8k", Some(8000.0)),
            ("25.6k", Some(25_600.0)),
            ("8K", Some(8192.0)),
            ("1m", Some(1e6)),
            ("1M", Some(1_048_576.0)),
            ("1g", Some(1e9)),
            ("1T", Some(1_099_511_627_776.0)),
            ("1.5K", None),
            ("1.5", None),
            ("0", None),
            ("-1", None),
            ("+1", None),
            ("k", None),
            ("1e3", None),
            ("many", None),
            ("auto", None),
            ("", None),
            ("8kk", None),
            ("1.2.3k", None),
        ] {
            assert_eq!(parse_vllm_integer(text).map(f64::to_bits), expected.map(f64::to_bits), "{text}");
        }
    }
}
