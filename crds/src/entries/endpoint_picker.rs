//! Where the metrics of a model's endpoint picker are, where no InferencePool says so.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::settings::{is_label_key, is_label_value, is_name};

/// What an endpoint picker is, in messages about another text.
const FORM: &str = "use a Service or labels of pods in the model's own namespace, with the scheme and the port if they are not \
                    those of the pod: \"epp\", \"https://epp:9443\" or \"https://app=epp,role=active:9443\"";
/// Bytes.
const LONGEST: usize = 512;

/// Pods of the endpoint picker of a model, in its namespace. Text: `[http://|https://]SERVICE[:PORT]`, or labels
/// `KEY=VALUE[,KEY=VALUE ...]` in place of the Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct EndpointPicker {
    /// Pods of the picker.
    pub pods: PickerPods,
    /// Port of `/metrics`, 1 to 65535. `None`: the pod says.
    pub port: Option<u16>,
    /// Whether `/metrics` is served over TLS. `None`: the pod says.
    pub tls: Option<bool>,
}

/// Finds the pods of a picker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PickerPods {
    /// Pods that the selector of this Service matches.
    Service(String),
    /// Pods with labels such as `app=epp,role=active`.
    Labels(String),
}

impl EndpointPicker {
    /// The Service that an InferencePool names.
    #[must_use]
    pub fn service(name: impl Into<String>) -> Self {
        Self { pods: PickerPods::Service(name.into()), port: None, tls: None }
    }

    /// Name of its Service.
    #[must_use]
    pub fn service_name(&self) -> Option<&str> {
        match &self.pods {
            PickerPods::Service(name) => Some(name),
            PickerPods::Labels(_) => None,
        }
    }
}

impl fmt::Display for EndpointPicker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.tls {
            None => "",
            Some(true) => "https://",
            Some(false) => "http://",
        })?;
        let (PickerPods::Service(pods) | PickerPods::Labels(pods)) = &self.pods;
        f.write_str(pods)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl From<EndpointPicker> for String {
    fn from(picker: EndpointPicker) -> Self {
        picker.to_string()
    }
}

/// The text names no Service and no labels of the own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{FORM}")]
pub struct InvalidEndpointPicker;

impl FromStr for EndpointPicker {
    type Err = InvalidEndpointPicker;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > LONGEST {
            return Err(InvalidEndpointPicker);
        }
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (Some(true), rest),
            (_, Some(rest)) => (Some(false), rest),
            (None, None) => (None, text),
        };
        let (pods, port) = match rest.split_once(':') {
            Some((pods, port)) => (pods, Some(parse_port(port).ok_or(InvalidEndpointPicker)?)),
            None => (rest, None),
        };
        let pods = if pods.contains('=') {
            pods.split(',').all(is_label).then(|| PickerPods::Labels(pods.to_owned()))
        } else {
            is_name(pods, false).then(|| PickerPods::Service(pods.to_owned()))
        };
        Ok(Self { pods: pods.ok_or(InvalidEndpointPicker)?, port, tls })
    }
}

/// Parses a port without sign and leading zeros.
fn parse_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port: &u16| *port > 0 && port.to_string() == text)
}

fn is_label(pair: &str) -> bool {
    pair.split_once('=').is_some_and(|(key, value)| is_label_key(key) && is_label_value(value))
}

impl<'de> Deserialize<'de> for EndpointPicker {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for EndpointPicker {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "EndpointPicker".into()
    }

    /// `patternErrorMessage` is what editors show.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let word = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";
        let domain = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
        let label = format!(r"({domain}(\.{domain})*/)?{word}=({word})?");
        let service = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";
        let port = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]";
        let pattern = format!("^(https?://)?({service}|{label}(,{label})*)(:({port}))?$");
        json_schema!({
            "type": "string", "maxLength": LONGEST, "pattern": pattern, "patternErrorMessage": FORM
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_services_and_labels_with_scheme_and_port() {
        for (text, pods, port, tls) in [
            ("epp", PickerPods::Service("epp".to_owned()), None, None),
            ("http://epp:9090", PickerPods::Service("epp".to_owned()), Some(9090), Some(false)),
            (
                "https://app.kubernetes.io/name=epp,role=:65535",
                PickerPods::Labels("app.kubernetes.io/name=epp,role=".to_owned()),
                Some(65535),
                Some(true),
            ),
        ] {
            let picker = EndpointPicker { pods, port, tls };
            assert_eq!(text.parse(), Ok(picker.clone()));
            assert_eq!(picker.to_string(), text);
        }
    }

    #[test]
    fn refuses_what_lies_outside_the_namespace_as_the_schema_does() {
        let schema = schemars::generate::SchemaSettings::draft2020_12().into_generator();
        let schema = schema.into_root_schema_for::<EndpointPicker>().to_value();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for (text, is_valid) in [
            ("epp", true),
            ("e", true),
            ("app=epp", true),
            ("example.com/app=epp,b=", true),
            ("epp:1", true),
            ("", false),
            ("epp.other", false),
            ("epp.other.svc.cluster.local:9090", false),
            ("other/epp", false),
            ("https://10.0.0.1:9090", false),
            ("epp:0", false),
            ("epp:070", false),
            ("epp:+70", false),
            ("epp:65536", false),
            ("epp:9090/metrics", false),
            ("ftp://epp", false),
            ("Epp", false),
            ("app=epp,", false),
            ("=epp", false),
            ("app=epp=x", false),
            ("app in (epp)", false),
            ("a_/b=c", false),
            ("https://u:p@epp", false),
            ("9epp", true),
            ("-epp", false),
        ] {
            assert_eq!(text.parse::<EndpointPicker>().is_ok(), is_valid, "{text:?}");
            assert_eq!(validator.is_valid(&serde_json::json!(text)), is_valid, "schema: {text:?}");
        }
    }
}
