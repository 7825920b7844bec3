//! Syntax of texts in settings. Values that the API server or the HTTP client would refuse later fail at the start.

/// The API server does not limit the parts of a name.
const NAME_CHARS: usize = 253;
/// Limit of a name without dots, and of a label value.
const LABEL_CHARS: usize = 63;

/// DNS labels (RFC 1123), separated by dots if `dots`. Names of Namespaces and Services have no dots.
#[must_use]
pub fn is_name(text: &str, dots: bool) -> bool {
    let part = |part: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    let most = if dots { NAME_CHARS } else { LABEL_CHARS };
    text.len() <= most && text.split('.').all(part) && (dots || !text.contains('.'))
}

/// IP addresses are not DNS names.
#[must_use]
pub(super) fn is_dns_name(text: &str) -> bool {
    let part = |part: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let edges = !part.starts_with('-') && !part.ends_with('-');
        (1..=LABEL_CHARS).contains(&part.len()) && part.bytes().all(inner) && edges
    };
    let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    text.len() <= NAME_CHARS && text.split('.').all(part) && !text.rsplit('.').next().is_none_or(is_number)
}

/// Possibly empty.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= LABEL_CHARS
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && edge(text.chars().next())
        && edge(text.chars().next_back())
}

/// Whether a text is a label key: a name of up to 63 characters, optionally after a domain and a slash.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    domain.is_none_or(|domain| is_name(domain, true)) && !name.is_empty() && is_label_value(name)
}

/// A selector for `kubectl -l` and the API server. An empty one selects all.
pub(super) fn is_selector(text: &str) -> bool {
    let tokens = split_tokens(text);
    let mut rest = tokens.as_slice();
    if rest.is_empty() {
        return true;
    }
    loop {
        let Some(after) = skip_requirement(rest) else { return false };
        match after {
            [] => return true,
            // A trailing comma is not valid.
            [",", next @ ..] => rest = next,
            _ => return false,
        }
    }
}

/// Returns the rest; `None` if the first requirement is not valid.
fn skip_requirement<'t, 's>(tokens: &'t [&'s str]) -> Option<&'t [&'s str]> {
    if let ["!", key, rest @ ..] = tokens {
        return is_label_key(key).then_some(rest);
    }
    let (key, rest) = tokens.split_first()?;
    if !is_label_key(key) {
        return None;
    }
    match rest {
        ["=" | "==" | "!=", value, rest @ ..] if *value != "," => is_label_value(value).then_some(rest),
        // `key=` selects a label with an empty value.
        ["=" | "==" | "!=", rest @ ..] => Some(rest),
        [">" | "<", value, rest @ ..] => value.parse::<i64>().is_ok().then_some(rest),
        ["in" | "notin", "(", rest @ ..] => {
            let end = rest.iter().position(|token| *token == ")")?;
            let valid = |token: &&str| *token == "," || is_label_value(token);
            (end > 0 && rest[..end].iter().all(valid)).then_some(&rest[end + 1..])
        }
        _ => Some(rest),
    }
}

fn split_tokens(text: &str) -> Vec<&str> {
    let is_operator = |c: char| "=!(),<>".contains(c);
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if is_operator(first) {
            1
        } else {
            rest.find(|c: char| is_operator(c) || c.is_whitespace()).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// Whether a text is a URL whose host the HTTP client accepts.
pub(super) fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    // The client's parser tolerates missing and extra slashes.
    let host = rest.and_then(|r| r.split(['/', '?', '#', '\\']).next()).unwrap_or_default();
    !host.is_empty()
        && !text.contains(|c: char| c.is_whitespace() || c.is_control())
        && url::Url::parse(text).is_ok_and(|url| url.host_str().is_some_and(|host| !host.is_empty()))
}

/// Masks the password in `user:password@`, or a user without password, which may be a token. Also works on invalid
/// URLs.
#[must_use]
pub fn without_password(text: &str) -> String {
    let (scheme, rest) = text.find("://").map_or(("", text), |at| text.split_at(at + 3));
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    // A password may contain a slash by mistake; then the text after the colon is not a port.
    let port = authority.split_once(':').map(|(_, port)| port);
    let is_not_a_port = port.is_some_and(|p| p.is_empty() || !p.bytes().all(|b| b.is_ascii_digit()));
    let end = authority.rfind('@').or_else(|| if is_not_a_port { rest.rfind('@') } else { None });
    let Some(end) = end else { return text.to_owned() };
    let user = rest[..end].split_once(':').map(|(user, _)| format!("{user}:")).unwrap_or_default();
    format!("{scheme}{user}***{}", &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_object_names() {
        for (text, label, name) in [
            ("wva", true, true),
            ("72dd1cf1.llm-d.ai", false, true),
            ("0", true, true),
            ("Not A Name", false, false),
            ("a_b", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", false, false),
            (".a", false, false),
            ("prod,staging", false, false),
            (&"a".repeat(64), false, true),
            (&["a"; 127].join("."), false, true),
            (&["a"; 128].join("."), false, false),
        ] {
            assert_eq!((is_name(text, false), is_name(text, true)), (label, name), "{text}");
        }
    }

    #[test]
    fn accepts_selectors_of_the_api_server() {
        for text in [
            "",
            " ",
            "gpu",
            "!gpu",
            "! gpu",
            "a=b",
            "a==b",
            "a!=b",
            " a = b , c",
            "a=",
            "a=,b",
            "a!=",
            "in in (in)",
            "nvidia.com/gpu.product in (A100, H100-80GB),!x.y/z",
            "a notin (b)",
            "a in (,b)",
            "a>1",
            "a < -2,b",
        ] {
            assert!(is_selector(text), "{text:?}");
        }
        for text in [
            "(((", "a in", "a in b", "a in ()", "a in (b", "a=b,", ",", ",a", "a,,b", "a b", "=b", "!",
            "!!a", "!a=b", "a=b=c", "a=-b", "a=b c", "a/b/c", "A.b/", "/a", "a>b", "a in (b c/d)",
            "a in ((b))", "a===b", "a)",
        ] {
            assert!(!is_selector(text), "{text:?}");
        }
    }

    #[test]
    fn accepts_urls_of_the_http_client() {
        for text in [
            "http://p", "https://p:9090/prom?x=1", "http://u:s@p", "http://[::1]:9090", "http://my_prom.svc",
            "http://10.0.0.1",
        ] {
            assert!(is_url(text), "{text}");
        }
        for text in [
            "", "p:9090", "ftp://x", "http://", "https://:9090", "http://a b", "http://[::bad",
            "http://[zz]", "http://h:99999", "http://h:port", "http:///x", "http://u@", "http://u:p@:9",
            "http://\\x", "http://x\n", "http://1.2.3.999",
        ] {
            assert!(!is_url(text), "{text}");
        }
    }

    #[test]
    fn masks_passwords() {
        for (text, shown) in [
            ("http://p:9090", "http://p:9090"),
            ("https://u:s@p/x@y", "https://u:***@p/x@y"),
            ("https://p:9090/x@y", "https://p:9090/x@y"),
            ("http://u:a@b@p", "http://u:***@p"),
            ("http://token@p", "http://***@p"),
            ("http://u:a/b@p:1/x", "http://u:***@p:1/x"),
            ("http://u:a#b?@p", "http://u:***@p"),
            ("u:s@p:9090", "u:***@p:9090"),
            ("http:/u:s@p", "http:***@p"),
            ("", ""),
        ] {
            assert_eq!(without_password(text), shown);
            assert_eq!(without_password(shown), shown, "again");
        }
    }
}
