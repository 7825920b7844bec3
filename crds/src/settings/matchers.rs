//! Label matchers of PromQL without braces: `cluster="a",region=~"eu.*"`.

/// Possibly empty, without `__name__`.
#[must_use]
pub(super) fn is_matchers(text: &str) -> bool {
    let mut rest = text.trim();
    while !rest.is_empty() {
        let Some(after) = skip_matcher(rest) else { return false };
        rest = match after.strip_prefix(',') {
            // A trailing comma is not valid.
            Some(next) if next.trim().is_empty() => return false,
            Some(next) => next.trim_start(),
            None => return after.is_empty(),
        };
    }
    true
}

/// Returns the rest; `None` if the first matcher is not valid.
fn skip_matcher(text: &str) -> Option<&str> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (label, rest) = text.split_at(text.find(|c| !is_inner(c))?);
    if label.is_empty() || label == "__name__" || label.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let rest = rest.trim_start();
    let value = ["=~", "!~", "!=", "="].iter().find_map(|sign| rest.strip_prefix(sign))?;
    let quoted = value.trim_start().strip_prefix('"')?;
    let mut is_escaped = false;
    let end = quoted.find(|c: char| {
        let ends = (c == '"' && !is_escaped) || c.is_control();
        is_escaped = c == '\\' && !is_escaped;
        ends
    })?;
    Some(quoted[end..].strip_prefix('"')?.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_promql_matchers() {
        for text in [
            "", " ", r#"cluster="a""#, r#" cluster = "a" , region=~"eu.*" "#, r#"a!="",b!~"x|y",_c1="d,e""#,
            r#"a="quote \" and backslash \\""#, r#"namespace=~"team-.*""#,
        ] {
            assert!(is_matchers(text), "{text:?}");
        }
        for text in [
            "cluster", "cluster=a", "cluster='a'", r#"{cluster="a"}"#, r#"cluster="a",,region="b""#,
            r#"cluster="a","#, r#"cluster="a" region="b""#, r#"cluster=="a""#, r#"="a""#, r#"1a="b""#,
            r#"a-b="c""#, r#"a="b"#, r#"a="b\""#, "a=\"b\nc\"", r#"__name__="up""#,
            r#"a="b"} or vector(1) or x{c="d""#,
        ] {
            assert!(!is_matchers(text), "{text:?}");
        }
    }
}
