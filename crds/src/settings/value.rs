//! Values of settings: parsed once at the edge, so that what is invalid cannot be expressed further in. Values are
//! compared parsed (`60s` is `1m`), which is what the rule on immutable keys needs.

use std::net::SocketAddr;

use super::matchers::is_matchers;
use super::text::{is_dns_name, is_label_value, is_name, is_selector, is_url, without_password};
use crate::GoDuration;

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`, in Go's spellings (`1`, `t`, `TRUE` ...).
    Bool,
    /// A whole number from the given minimum.
    Int {
        /// Smallest value.
        min: i64,
    },
    /// A Go duration of at least so many milliseconds.
    Duration {
        /// Smallest value in milliseconds.
        min_ms: u64,
    },
    /// Where to listen: `:8443`, `127.0.0.1:8443`, or `0` for not at all.
    Address,
    /// Like [`Kind::Address`], but only on a loopback address.
    LoopbackAddress,
    /// An `http` or `https` URL.
    Url,
    /// Any text.
    Text,
    /// A bearer token, without the white space around it.
    Token,
    /// A Kubernetes label value, or nothing.
    LabelValue,
    /// The name of an object, or nothing.
    Name {
        /// Dots may stand in it. In that of a Namespace or a Service they may not.
        dots: bool,
    },
    /// A DNS name that a certificate can carry, or nothing.
    DnsName,
    /// A label selector; nothing selects all.
    Selector,
    /// Label matchers of PromQL, or nothing.
    Matchers,
    /// One of a few words.
    OneOf(&'static [&'static str]),
}

/// A valid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Int`].
    Int(i64),
    /// Of [`Kind::Duration`].
    Duration(GoDuration),
    /// Of [`Kind::Address`]; `None` is "off".
    Address(Option<SocketAddr>),
    /// Of every other kind.
    Text(String),
}

/// Why a value is not valid; the text says what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// No duration.
    #[error(transparent)]
    Duration(#[from] crate::duration::DurationError),
    /// No bearer token. The text is a secret.
    #[error(
        "it is empty, or it holds white space or another character that no HTTP header carries: write the token in one line, or remove the setting to send no token"
    )]
    Token,
    /// A text of another kind, or out of range.
    #[error("found {found:?}: {}", kind.advice())]
    Invalid {
        /// The text, without the password that may be in a URL.
        found: String,
        /// What was expected.
        kind: Kind,
    },
}

impl Kind {
    /// Reads a value from the notation of flags, environment and ConfigMap.
    ///
    /// # Errors
    /// [`ValueError`], which names what was found and what would be right.
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
            Self::Address => address(text).map(Value::Address),
            Self::LoopbackAddress => match address(text)? {
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

    /// What to write.
    fn advice(self) -> String {
        let advice = match self {
            Self::Bool => "write true or false",
            Self::Int { min } => return format!("write a whole number of {min} or more"),
            Self::Duration { min_ms } => return format!("write a duration of {} or more", millis(min_ms)),
            Self::Address => {
                "write an address such as \":8443\" or \"127.0.0.1:8443\", or \"0\" to switch it off"
            }
            Self::LoopbackAddress => {
                "this endpoint has no authentication, so write a loopback address such as \"127.0.0.1:8082\", or \"0\" to switch it off"
            }
            Self::Url => {
                "write a URL that starts with http:// or https:// and names a host, and a port up to 65535 if any"
            }
            Self::Text | Self::Token => "write a text",
            Self::LabelValue => {
                "write a label value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            }
            Self::Name { dots } => {
                let more = if dots { ", '.' and" } else { " and" };
                return format!(
                    "write the name of one object: lower-case letters, digits{more} '-', with a letter or digit at both ends"
                );
            }
            Self::DnsName => {
                "write the DNS name that the certificate carries, such as \"prometheus.monitoring.svc\": no address, no port and no scheme"
            }
            Self::Selector => {
                "write a label selector such as \"gpu=a100,zone in (a, b),!spot\", or leave it empty for all"
            }
            Self::Matchers => {
                "write label matchers of PromQL without braces, such as cluster=\"a\",region=~\"eu.*\"; __name__ cannot be among them"
            }
            Self::OneOf(words) => return format!("write one of {}", words.join(", ")),
        };
        advice.to_owned()
    }

    /// What stands for the value in `--help`.
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

/// `:PORT` means every address of the machine, as it does in Go.
fn address(text: &str) -> Result<Option<SocketAddr>, ValueError> {
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
    fn what_is_wrong_is_said_with_what_is_right() {
        let refused = |kind: Kind, text: &str| kind.parse(text).unwrap_err().to_string();
        assert!(refused(Kind::Bool, "yes").contains("true or false"));
        assert!(refused(Kind::Int { min: 1 }, "0").contains("1 or more"));
        assert!(refused(Kind::Duration { min_ms: 60_000 }, "10s").contains("1m0s or more"));
        assert!(refused(Kind::Duration { min_ms: 1 }, "10").contains("unit"));
        assert!(refused(Kind::Address, "8443").contains("\":8443\""));
        assert!(refused(Kind::LoopbackAddress, ":8082").contains("loopback"));
        for url in ["prometheus:9090", "ftp://x", "http://", "https://:9090", "http://a b"] {
            assert!(refused(Kind::Url, url).contains("http://"), "{url}");
        }
        assert!(refused(Kind::Name { dots: false }, "a.b").contains("digits and '-'"));
        assert!(refused(Kind::Name { dots: true }, "Not A Name").contains("name of one object"));
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
            assert!(refused(Kind::DnsName, name).contains("DNS name"), "{name}");
        }
        for name in ["", "p", "prometheus.monitoring.svc", "Prometheus_1.example.com"] {
            assert!(Kind::DnsName.parse(name).is_ok(), "{name}");
        }
        assert!(refused(Kind::Selector, "(((").contains("label selector"));
        assert!(refused(Kind::Matchers, "cluster=a").contains("cluster=\"a\""));
        assert!(refused(Kind::Url, "http://u:hunter2@h:99999").contains("http://u:***@h:99999"));
        assert!(refused(Kind::LabelValue, "a b").contains("label value"));
        assert!(refused(Kind::OneOf(&["json", "text"]), "xml").contains("json, text"));
    }

    #[test]
    fn trims_tokens_and_refuses_unusable_ones() {
        assert_eq!(Kind::Token.parse(" abc.d-e_f=\r\n"), Ok(Value::Text("abc.d-e_f=".to_owned())));
        for text in ["", " \n", "a\nb", "a b", "a\0", "é"] {
            assert_eq!(Kind::Token.parse(text), Err(ValueError::Token), "{text:?}");
        }
    }
}
