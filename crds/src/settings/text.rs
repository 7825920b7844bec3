//! Grammars of the texts that settings hold: names of objects, label selectors and URLs. What the API server or the
//! HTTP client would refuse later is refused here, before the process starts with it.

/// The longest name of an object. The API server does not bound its parts.
const NAME_CHARS: usize = 253;
/// The longest name without dots, and the longest label value.
const LABEL_CHARS: usize = 63;

/// Whether a text can be the name of an object: parts as DNS has them (RFC 1123), several with dots between them only
/// where `dots` allows that, as most kinds do and Namespace and Service do not.
#[must_use]
pub fn is_name(text: &str, dots: bool) -> bool {
    let part = |part: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    let most = if dots { NAME_CHARS } else { LABEL_CHARS };
    text.len() <= most && text.split('.').all(part) && (dots || !text.contains('.'))
}

/// Whether a text is a DNS name as certificates carry them: what an address could be is none.
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

/// Whether a text is a Kubernetes label value; the empty one is.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= LABEL_CHARS
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && edge(text.chars().next())
        && edge(text.chars().next_back())
}

/// A label key: a name of up to 63 characters, perhaps after a domain and a slash.
fn is_label_key(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    domain.is_none_or(|domain| is_name(domain, true)) && !name.is_empty() && is_label_value(name)
}

/// Whether a text is a label selector as `kubectl -l` and the API server take it. The empty one selects all.
pub(super) fn is_selector(text: &str) -> bool {
    let tokens = tokens(text);
    let mut rest = tokens.as_slice();
    if rest.is_empty() {
        return true;
    }
    loop {
        let Some(after) = requirement(rest) else { return false };
        match after {
            [] => return true,
            // A comma at the end promises one more.
            [",", next @ ..] => rest = next,
            _ => return false,
        }
    }
}

/// What follows the requirement at the beginning; `None` where there is none.
fn requirement<'t, 's>(tokens: &'t [&'s str]) -> Option<&'t [&'s str]> {
    if let ["!", key, rest @ ..] = tokens {
        return is_label_key(key).then_some(rest);
    }
    let (key, rest) = tokens.split_first()?;
    if !is_label_key(key) {
        return None;
    }
    match rest {
        ["=" | "==" | "!=", value, rest @ ..] if *value != "," => is_label_value(value).then_some(rest),
        // `key=` is a label that is there and empty.
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

/// Words, and the signs that stand between them.
fn tokens(text: &str) -> Vec<&str> {
    let sign = |c: char| "=!(),<>".contains(c);
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if sign(first) {
            1
        } else {
            rest.find(|c: char| sign(c) || c.is_whitespace()).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// Whether a text is an `http` or `https` URL that names a host, as the HTTP client reads it.
pub(super) fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    // The client's parser mends what is left out or too much here.
    let host = rest.and_then(|r| r.split(['/', '?', '#', '\\']).next()).unwrap_or_default();
    !host.is_empty()
        && !text.contains(|c: char| c.is_whitespace() || c.is_control())
        && url::Url::parse(text).is_ok_and(|url| url.host_str().is_some_and(|host| !host.is_empty()))
}

/// A URL as it may be shown: the password in `user:password@` is `***`, and so is a user without one, which may be a
/// token. Does the same for texts that are no URLs as long as an `@` tells where the host begins.
#[must_use]
pub fn without_password(text: &str) -> String {
    let (scheme, rest) = text.find("://").map_or(("", text), |at| text.split_at(at + 3));
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    // A password may hold a slash by mistake: what follows the colon is then no port.
    let port = authority.split_once(':').map(|(_, port)| port);
    let no_port = port.is_some_and(|p| p.is_empty() || !p.bytes().all(|b| b.is_ascii_digit()));
    let end = authority.rfind('@').or_else(|| if no_port { rest.rfind('@') } else { None });
    let Some(end) = end else { return text.to_owned() };
    let user = rest[..end].split_once(':').map(|(user, _)| format!("{user}:")).unwrap_or_default();
    format!("{scheme}{user}***{}", &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_objects() {
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
    fn selectors_are_those_of_the_api_server() {
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
    fn urls_are_what_the_client_takes() {
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
    fn a_password_is_never_shown() {
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
