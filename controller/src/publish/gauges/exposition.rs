//! The text format of Prometheus, written line by line: a `MetricFamily` of thousands of variants takes megabytes.

use std::fmt;
use std::io::{self, Write};

/// Writes families of series.
pub(super) struct Exposition<'w> {
    to: &'w mut dyn Write,
    /// Label `controller_instance` of all series.
    instance: Option<&'w str>,
}

/// Labels and value of a series.
pub(super) struct Series<'s> {
    labels: Vec<(&'s str, &'s str)>,
    value: f64,
}

/// Type of a family.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

impl<'s> Series<'s> {
    pub(super) fn new(labels: &[(&'s str, &'s str)], value: f64) -> Self {
        Self { labels: labels.to_vec(), value }
    }

    /// Adds labels.
    pub(super) fn with(mut self, labels: &[(&'s str, &'s str)]) -> Self {
        self.labels.extend_from_slice(labels);
        self
    }
}

impl<'w> Exposition<'w> {
    pub(super) fn new(to: &'w mut dyn Write, instance: Option<&'w str>) -> Self {
        Self { to, instance }
    }

    /// Writes a gauge. Without series, nothing: it would be a bare header.
    pub(super) fn gauge<'s>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = Series<'s>>,
    ) -> io::Result<()> {
        self.family(name, Kind::Gauge, help, series)
    }

    pub(super) fn family<'s>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        series: impl IntoIterator<Item = Series<'s>>,
    ) -> io::Result<()> {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        write!(self.to, "# HELP {name} {help}\n# TYPE {name} {kind}\n")?;
        series.try_for_each(|series| self.line(name, series))
    }

    /// Labels are sorted by name.
    fn line(&mut self, name: &str, Series { mut labels, value }: Series<'_>) -> io::Result<()> {
        labels.extend(self.instance.map(|instance| ("controller_instance", instance)));
        labels.sort_unstable();
        self.to.write_all(name.as_bytes())?;
        for (i, (label, value)) in labels.iter().enumerate() {
            let before = if i == 0 { "{" } else { "," };
            write!(self.to, "{before}{label}=\"{}\"", Escaped(value))?;
        }
        if !labels.is_empty() {
            self.to.write_all(b"}")?;
        }
        writeln!(self.to, " {value}")
    }
}

/// Value of a label.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['\\', '"', '\n']) {
            let (plain, special) = rest.split_at(at);
            f.write_str(plain)?;
            f.write_str(match special.as_bytes()[0] {
                b'\n' => "\\n",
                b'"' => "\\\"",
                _ => "\\\\",
            })?;
            rest = &special[1..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use prometheus::proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType};
    use prometheus::{Encoder, TextEncoder};

    use super::*;

    /// Sample as the library writes it.
    fn of_library(labels: &[(&str, &str)], value: f64) -> String {
        let pair = |(name, value): &(&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        };
        let mut metric = Metric::from_label(labels.iter().map(pair).collect());
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
        let mut family = MetricFamily::default();
        family.set_name("wva_test".to_owned());
        family.set_help("Test.".to_owned());
        family.set_field_type(MetricType::GAUGE);
        family.set_metric(vec![metric]);
        let mut text = Vec::new();
        TextEncoder::new().encode(&[family], &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_text_is_that_of_the_library() {
        let odd = "back\\slash \"quoted\"\nlines, \u{e9} {}";
        for labels in [&[][..], &[("a", "")], &[("a", odd), ("b", "\\"), ("c", "\"")]] {
            for value in [0.0, -0.5, 3.0, 1e-9, 1.5e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                let mut text = Vec::new();
                let series = [Series::new(labels, value)];
                Exposition::new(&mut text, None).gauge("wva_test", "Test.", series).unwrap();
                assert_eq!(String::from_utf8(text).unwrap(), of_library(labels, value));
            }
        }
    }

    #[test]
    fn labels_are_sorted_and_a_family_without_series_is_left_out() {
        let mut text = Vec::new();
        let mut exposition = Exposition::new(&mut text, Some("x"));
        exposition.gauge("wva_none", "None.", []).unwrap();
        let series = [Series::new(&[("namespace", "ns"), ("by", "gpus")], 1.0)];
        exposition.family("wva_test", Kind::Counter, "Test.", series).unwrap();
        let want = "# HELP wva_test Test.\n# TYPE wva_test counter\n\
            wva_test{by=\"gpus\",controller_instance=\"x\",namespace=\"ns\"} 1\n";
        assert_eq!(String::from_utf8(text).unwrap(), want);
    }
}
