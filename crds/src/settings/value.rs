//! Parsed values of settings: `60s` equals `1m`.

use std::net::SocketAddr;

use super::matchers::is_matchers;
use super::text::{is_dns_name, is_label_value, is_name, is_selector, is_url, without_password};
use crate::GoDuration;

/// Kind of values of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`, in Go's spellings (`1`, `t`, `TRUE` ...).
    Bool,
    /// A whole number.
    Int {
        /// Minimum.
        min: i64,
    },
    /// A Go duration.
    Duration {
        /// Minimum in milliseconds.
        min_ms: u64,
    },
    /// `:8443`, `127.0.0.1:8443`, or `0` to disable it.
    Address,
    /// An address, which must be a loopback address.
    LoopbackAddress,
    /// An `http` or `https` URL.
    Url,
    /// Any text.
    Text,
    /// Surrounding white space is removed.
    Token,
    /// Possibly empty.
    LabelValue,
    /// Possibly empty.
    Name {
        /// Namespaces and Services have no dots.
        dots: bool,
    },
    /// Possibly empty.
    DnsName,
    /// An empty selector selects all.
    Selector,
    /// Label matchers of PromQL, possibly empty.
    Matchers,
    /// One of several words.
    OneOf(&'static [&'static str]),
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Value of [`Kind::Bool`].
    Bool(bool),
    /// Value of [`Kind::Int`].
    Int(i64),
    /// Value of [`Kind::Duration`].
    Duration(GoDuration),
    /// `None`: disabled.
    Address(Option<SocketAddr>),
    /// Value of any other kind.
    Text(String),
}

/// They say what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The text is not a duration.
    #[error(transparent)]
    Duration(#[from] crate::duration::DurationError),
    /// The text of a bearer token is secret.
    #[error(
        "the token is empty or has characters that an HTTP header cannot have; use one line without spaces, or remove the setting to send no token"
    )]
    Token,
    /// Wrong type or out of range.
    #[error("{found:?} is not valid; {}", kind.advice())]
    Invalid {
        /// A password in a URL is masked.
        found: String,
        /// Expected kind.
        kind: Kind,
    },
}

impl Kind {
    /// Parses a value.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn parse(self, text: &str) -> Result<Value, ValueError> {
        let text_if = |is_valid: bool| {
            if is_valid { Ok(Value::Text(text.to_owned())) } else { Err(self.invalid(text)) }
        };
        match self {
            Self::Bool => match text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
                _ => Err(self.invalid(text)),
            },
            Self::Int { min } => match text.parse() {
                Ok(n) if n >= min => Ok(Value::Int(n)),
                _ => Err(self.invalid(text)),
            },
            Self::Duration { min_ms } => match text.parse::<GoDuration>()? {
                duration if duration < millis(min_ms) => Err(self.invalid(text)),
                duration => Ok(Value::Duration(duration)),
            },
            Self::Address => parse_address(text).map(Value::Address),
            Self::LoopbackAddress => match parse_address(text)? {
                Some(a) if !a.ip().is_loopback() => Err(self.invalid(text)),
                a => Ok(Value::Address(a)),
            },
            Self::Url => text_if(is_url(text)),
            Self::Text => text_if(true),
            Self::Token => match text.trim() {
                token if !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic()) => {
                    Ok(Value::Text(token.to_owned()))
                }
                _ => Err(ValueError::Token),
            },
            Self::LabelValue => text_if(is_label_value(text)),
            Self::Name { dots } => text_if(text.is_empty() || is_name(text, dots)),
            Self::DnsName => text_if(text.is_empty() || is_dns_name(text)),
            Self::Selector => text_if(is_selector(text)),
            Self::Matchers if is_matchers(text) => Ok(Value::Text(text.trim().to_owned())),
            Self::Matchers => text_if(false),
            Self::OneOf(words) => text_if(words.contains(&text)),
        }
    }

    fn invalid(self, text: &str) -> ValueError {
        let found = if self == Self::Url { without_password(text) } else { text.to_owned() };
        ValueError::Invalid { found, kind: self }
    }

    fn advice(self) -> String {
        let advice = match self {
            Self::Bool => "use true or false",
            Self::Int { min } => return format!("use a whole number of {min} or more"),
            Self::Duration { min_ms } => return format!("use a duration of {} or more", millis(min_ms)),
            Self::Address => "use an address such as \":8443\" or \"127.0.0.1:8443\", or \"0\" to disable it",
            Self::LoopbackAddress => {
                "this endpoint has no authentication, so use a loopback address such as \"127.0.0.1:8082\", or \"0\" to disable it"
            }
            Self::Url => "use a URL with http:// or https://, a host and, optionally, a port up to 65535",
            Self::Text | Self::Token => "use text",
            Self::LabelValue => {
                "use a label value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            }
            Self::Name { dots } => {
                let more = if dots { ", '.' and" } else { " and" };
                return format!(
                    "use the name of one object: lower-case letters, digits{more} '-', with a letter or digit at both ends"
                );
            }
            Self::DnsName => {
                "use the DNS name in the certificate, such as \"prometheus.monitoring.svc\", without address, port or scheme"
            }
            Self::Selector => {
                "use a label selector such as \"gpu=a100,zone in (a, b),!spot\", or leave it empty for all"
            }
            Self::Matchers => {
                "use PromQL label matchers without braces and without __name__, such as cluster=\"a\",region=~\"eu.*\""
            }
            Self::OneOf(words) => {
                let list: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
                let or_empty = if list.len() < words.len() { ", or leave it empty" } else { "" };
                return format!("use one of {}{or_empty}", list.join(", "));
            }
        };
        advice.to_owned()
    }

    /// Placeholder of the value in `--help`.
    #[must_use]
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::Bool => "true|false",
            Self::Int { .. } => "N",
            Self::Duration { .. } => "DURATION",
            Self::Address | Self::LoopbackAddress => "ADDRESS",
            Self::Url => "URL",
            Self::Text => "TEXT",
            Self::Token => "TOKEN",
            Self::LabelValue => "LABEL",
            Self::Name { .. } | Self::DnsName => "NAME",
            Self::Selector => "SELECTOR",
            Self::Matchers => "MATCHERS",
            Self::OneOf(_) => "WORD",
        }
    }
}

fn millis(millis: u64) -> GoDuration {
    std::time::Duration::from_millis(millis).into()
}

/// `:PORT` means all addresses, as in Go.
fn parse_address(text: &str) -> Result<Option<SocketAddr>, ValueError> {
    if text == "0" || text.is_empty() {
        return Ok(None);
    }
    let full = if text.starts_with(':') {
        format!("[::]{text}")
    } else {
        text.replacen("localhost:", "127.0.0.1:", 1)
    };
    full.parse().map(Some).map_err(|_| Kind::Address.invalid(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_parsed() {
        let d = Kind::Duration { min_ms: 1 };
        assert_eq!(d.parse("60s"), d.parse("1m"));
        assert_eq!(Kind::Bool.parse("1"), Kind::Bool.parse("true"));
        assert_eq!(Kind::Address.parse("0"), Ok(Value::Address(None)));
        assert_eq!(Kind::Address.parse(":8443"), Kind::Address.parse("[::]:8443"));
    }

    #[test]
    fn errors_say_what_is_expected() {
        let error = |kind: Kind, text: &str| kind.parse(text).unwrap_err().to_string();
        assert!(error(Kind::Bool, "yes").contains("true or false"));
        assert!(error(Kind::Int { min: 1 }, "0").contains("1 or more"));
        assert!(error(Kind::Duration { min_ms: 60_000 }, "10s").contains("1m0s or more"));
        assert!(error(Kind::Duration { min_ms: 1 }, "10").contains("unit"));
        assert!(error(Kind::Address, "8443").contains("\":8443\""));
        assert!(error(Kind::LoopbackAddress, ":8082").contains("loopback"));
        for url in ["prometheus:9090", "ftp://x", "http://", "https://:9090", "http://a b"] {
            assert!(error(Kind::Url, url).contains("http://"), "{url}");
        }
        assert!(error(Kind::Name { dots: false }, "a.b").contains("digits and '-'"));
        assert!(error(Kind::Name { dots: true }, "Not A Name").contains("name of one object"));
        assert!(
            Kind::Name { dots: true }.parse("a.b").is_ok() && Kind::Name { dots: false }.parse("").is_ok()
        );
        for name in [
            "10.0.0.7",
            "::1",
            "https://p",
            "p:9090",
            "p..svc",
            "-p",
            "p-.svc",
            "a b",
            "p.7",
            "é",
            &"p".repeat(64),
        ] {
            assert!(error(Kind::DnsName, name).contains("DNS name"), "{name}");
        }
        for name in ["", "p", "prometheus.monitoring.svc", "Prometheus_1.example.com"] {
            assert!(Kind::DnsName.parse(name).is_ok(), "{name}");
        }
        assert!(error(Kind::Selector, "(((").contains("label selector"));
        assert!(error(Kind::Matchers, "cluster=a").contains("cluster=\"a\""));
        assert!(error(Kind::Url, "http://u:hunter2@h:99999").contains("http://u:***@h:99999"));
        assert!(error(Kind::LabelValue, "a b").contains("label value"));
        assert!(error(Kind::OneOf(&["json", "text"]), "xml").contains("json, text"));
    }

    #[test]
    fn trims_tokens_and_refuses_unusable_ones() {
        assert_eq!(Kind::Token.parse(" abc.d-e_f=\r\n"), Ok(Value::Text("abc.d-e_f=".to_owned())));
        for text in ["", " \n", "a\nb", "a b", "a\0", "é"] {
            assert_eq!(Kind::Token.parse(text), Err(ValueError::Token), "{text:?}");
        }
    }
}
