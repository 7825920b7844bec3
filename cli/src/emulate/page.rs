//! Text of a metrics page.

use std::fmt::Write as _;

/// Page under construction.
#[derive(Debug)]
pub(super) struct Page<'a> {
    text: String,
    /// Labels of every series.
    labels: &'a str,
    /// Value of all `_created` series.
    created: f64,
}

impl<'a> Page<'a> {
    /// An empty page. `created` is in seconds since 1970.
    pub(super) const fn new(labels: &'a str, created: f64) -> Self {
        Self { text: String::new(), labels, created }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn declare(&mut self, name: &str, kind: &str) {
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
    }

    /// Writes a sample with more labels: empty, or a comma and the labels.
    pub(super) fn sample(&mut self, name: &str, more: &str, value: f64) {
        let _ = writeln!(self.text, "{name}{{{}{more}}} {value}", self.labels);
    }

    pub(super) fn gauge(&mut self, name: &str, value: f64) {
        self.declare(name, "gauge");
        self.sample(name, "", value);
    }

    /// Writes a metric that describes the server, with its own labels only.
    pub(super) fn info(&mut self, name: &str, labels: &str) {
        self.declare(name, "gauge");
        let _ = writeln!(self.text, "{name}{{{labels}}} 1");
    }

    /// Writes a counter whose name has no `_total`, with a series for each of these labels.
    pub(super) fn counter(&mut self, name: &str, series: &[(&str, f64)]) {
        let (total, created) = (format!("{name}_total"), format!("{name}_created"));
        self.declare(&total, "counter");
        for (label, value) in series {
            self.sample(&total, label, *value);
        }
        self.declare(&created, "gauge");
        for (label, _) in series {
            self.sample(&created, label, self.created);
        }
    }

    /// Writes a histogram with these upper bounds, each with the observations up to it. The last bound, infinity, is
    /// left out.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        sum: f64,
        count: u64,
        buckets: impl IntoIterator<Item = (f64, u64)>,
    ) {
        self.declare(name, "histogram");
        let labels = self.labels;
        for (bound, up_to) in buckets {
            // Debug writes 1 as 1.0, as vLLM does.
            let _ = writeln!(self.text, "{name}_bucket{{{labels},le=\"{bound:?}\"}} {up_to}");
        }
        let _ = writeln!(
            self.text,
            "{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}"
        );
        self.gauge(&format!("{name}_created"), self.created);
    }
}
